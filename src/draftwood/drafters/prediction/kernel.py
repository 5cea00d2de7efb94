"""For the drafter ``prediction``: the index of expected texts, and kernels that follow an answer through them
and grow the tree of what may come. Importing this loads kernels.

Layout
------
``flat`` int32: the texts one after another, each followed by -1. ``heads`` int32[2, 2**k], ``chain`` int32[2, n]:
hashed n-grams of both `ORDERS`: a hash's latest end in ``flat``, and from each end the one before it, at last -1.

``state`` int64: where the answer is. SEEN tokens of the text were followed, from START. The cursor (POS, RUN) has
just matched RUN tokens. The anchor is the cursor while that is firm, else the place that it left; GAP counts the
answer's tokens since, LEFT how many had matched there. MATCH: RUN as of the last draft. RENAMED counts
replacements; after it the latest `RENAMES` of them stand: place and size of what the prediction has, place in the
answer and size of what it became, and how often in a row it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.index.compiling import FLOATS, compiled, inner, part
from draftwood.index.hashing import mixed

State = NDArray[np.int64]
Texts = tuple[Ints, Ints, Ints, Ints]  # flat, heads, chain, and where each text starts
Near = tuple[State, State]  # scratch for `nearest`: places, and how many tokens match there

SEEN, START, POS, RUN, ANCHOR, GAP, LEFT, MATCH, RENAMED = range(9)
RENAMES, WORD = 8, 8  # replacements that are remembered, and tokens that one may have on either side
OLD, OLD_SIZE, NEW, NEW_SIZE, TIMES = range(5)
STATE = RENAMED + 1 + 5 * RENAMES
SHORT, LONG = ORDERS = (3, 8)  # of hashed n-grams: the longer tells places apart where many end alike
WALKS = 32  # occurrences of a hashed n-gram that are looked at, latest first
MOST = 64  # tokens that a match is measured to
FIRM = 4  # tokens that a match must have for the anchor to move there ...
NEAR_FIRM, NEAR = 2, 8  # ... fewer where the place is so near to the expected one
FAR_FIRM = 6  # ... and more where it lies outside the window
NEAREST = 3  # places in the window that are proposed

Branches = tuple[State, NDArray[np.float64]]  # the table, and how likely each branch's next node is reached
Answer = tuple[Ints, int]  # a buffer and its length
Limits = tuple[int, float]  # most nodes, and how likely a node must be to be reached and right
Grown = tuple[Floats, Ints]  # the accept rates, and the tree as it is written

LOST = 64  # tokens after which a cursor that was not found again is held to be lost
BRANCHES = 16
REACH = 16  # tokens after a divergence up to which a position alone is proposed

# Classes of evidence; of a class with a range, its first.
BEGIN, AGAIN, REPLACED, INSERTED, LONGER, SHORTER = 0, 1, 3, 7, 10, 11
NEAR_1, NEAR_M, OTHER, KEPT, DOUBTED, FAR, CURSOR, GONE = 12, 14, 17, 18, 20, 21, 25, 30
KIND_CURSOR, KIND_NEAR, KIND_OTHER, KIND_FAR, KIND_GONE = 0, 1, 2, 3, 4

# A branch: where it goes on in the texts, its kind, tokens matched before its next node, that node's class and
# parent; and, while it copies a replacement from the answer, from where and how many tokens more.
PLACE, KIND, SIZE, CLASS, NODE, INSTEAD, LEFT_OVER = range(7)
COLUMNS = 7


class Expected:
    """Texts and their hashed n-grams, 20 to 25 bytes per token; see above. Immutable.

    The texts are arrays of token ids, none negative; empty ones are left out. ``starts`` is where each begins.
    """

    def __init__(self, texts: Sequence[NDArray[Any]]) -> None:
        texts = [text for text in texts if len(text)]
        end = np.array([-1], dtype=np.int32)
        parts = [part.astype(np.int32) for text in texts for part in (text, end)]
        self.flat: Ints = np.concatenate(parts or [end])
        self.starts: Ints = np.cumsum([0, *(len(t) + 1 for t in texts)], dtype=np.int32)[: len(texts)].copy()
        slots = 1 << max(4, len(self.flat).bit_length())
        self.heads: Ints = np.full((2, slots), -1, dtype=np.int32)
        self.chain: Ints = np.full((2, len(self.flat)), -1, dtype=np.int32)
        for level, order in enumerate(ORDERS):
            self._link(level, order)

    def _link(self, level: int, order: int) -> None:
        """Fill ``heads`` and ``chain`` for n-grams of ``order`` tokens."""
        borders = np.cumsum(self.flat < 0)  # before which an n-gram may end, but not begin
        ends = np.arange(order - 1, len(self.flat))
        ends = ends[(self.flat[ends - order + 1] >= 0) & (borders[ends] == borders[ends - order + 1])]
        keys = np.full(len(ends), order, dtype=np.uint64)
        for back in range(order - 1, -1, -1):
            keys = mixed.py_func(keys, self.flat[ends - back])
        slots = (keys >> np.uint64(8)).astype(np.int64) & (self.heads.shape[1] - 1)
        by_slot = np.argsort(slots, kind="stable")
        ends, slots = ends[by_slot], slots[by_slot]
        same = slots[1:] == slots[:-1]
        self.chain[level, ends[1:][same]] = ends[:-1][same]
        last = np.append(~same, True)[: len(ends)]
        self.heads[level, slots[last]] = ends[last]


@inner
def _hash(flat: Ints, end: int, order: int) -> np.int64:
    """Hash of the n-gram that ends at ``end``; -1 where it would cross the border of a text."""
    key = np.uint64(order)
    for at in range(end - order + 1, end + 1):
        if flat[at] < 0:
            return np.int64(-1)
        key = mixed(key, flat[at])
    return np.int64(key >> np.uint64(8))


@inner
def _matched(flat: Ints, text: Ints, start: int, end: int, place: int) -> int:
    """How many tokens before ``place`` of ``flat`` equal the answer's last ones before ``end``."""
    m = 0
    while m < MOST and end - m > start and place - m > 0 and flat[place - 1 - m] == text[end - 1 - m]:
        m += 1
    return m


@inner
def distance(place: int, expected: int) -> int:
    """How far a place is from the expected one; backwards counts twice."""
    return place - expected if place >= expected else 2 * (expected - place)


@inner
def nearest(flat: Ints, text: Ints, state: State, end: int, window: int, near: Near) -> int:
    """The best matches within the window around the anchor: longest first, then nearest to the expected place."""
    places, sizes = near
    found, start, anchor = 0, state[START], state[ANCHOR]
    expected = anchor + state[GAP]
    last = text[end - 1]
    for place in range(max(1, anchor - window // 4), min(len(flat), anchor + min(state[GAP], window) + window)):
        if flat[place - 1] != last or flat[place] < 0:
            continue
        m, away = _matched(flat, text, start, end, place), distance(place, expected)
        rank = found
        while rank > 0 and (
            m > sizes[rank - 1] or (m == sizes[rank - 1] and away < distance(places[rank - 1], expected))
        ):
            rank -= 1
        if rank < NEAREST:
            found = min(found + 1, NEAREST)
            for k in range(found - 1, rank, -1):
                places[k], sizes[k] = places[k - 1], sizes[k - 1]
            places[rank], sizes[rank] = place, m
    return found


@inner
def anywhere(texts: Texts, text: Ints, state: State, end: int) -> tuple[np.int64, np.int64]:
    """The longest match of at least `SHORT` tokens among the latest `WALKS` places; nearest on a tie."""
    flat, heads, chain, _ = texts
    best, size, start = np.int64(-1), np.int64(0), state[START]
    expected = state[ANCHOR] + state[GAP]
    for level in range(1, -1, -1):
        order = SHORT if level == 0 else LONG
        if end - start < order or size >= order:
            continue
        at = np.int64(heads[level, _hash(text, end - 1, order) & (heads.shape[1] - 1)])
        for _ in range(WALKS):
            if at < 0:
                break
            m = _matched(flat, text, start, end, at + 1)
            better = m > size or (m == size and distance(at + 1, expected) < distance(best, expected))
            if m >= order and better and flat[at + 1] >= 0:
                best, size = at + 1, np.int64(m)
            at = np.int64(chain[level, at])
    return best, size


@inner
def _same(flat: Ints, place: int, other: int, size: int) -> bool:
    """Whether the ``size`` tokens at both places are equal."""
    k = 0
    while k < size and flat[place + k] == flat[other + k]:
        k += 1
    return k == size


@inner
def _settle(flat: Ints, text: Ints, state: State, end: int) -> None:
    """Move the anchor to the cursor; what stood between both was replaced, and may be so again."""
    old, new = state[ANCHOR], end - state[GAP]
    old_size, new_size = state[POS] - state[RUN] - old, state[GAP] - state[RUN]
    state[ANCHOR], state[GAP] = state[POS], 0
    if not (0 < old_size <= WORD and 0 < new_size <= WORD):
        return
    for k in range(old, old + old_size):
        if flat[k] < 0:  # between two texts
            return
    spot, times = state[RENAMED] % RENAMES, 1
    for k in range(min(state[RENAMED], RENAMES)):
        row = RENAMED + 1 + 5 * k
        if state[row + OLD_SIZE] == old_size and _same(flat, state[row + OLD], old, old_size):
            spot = k
            if state[row + NEW_SIZE] == new_size and _same(text, state[row + NEW], new, new_size):
                times = state[row + TIMES] + 1
    if spot == state[RENAMED] % RENAMES:
        state[RENAMED] += 1
    row = RENAMED + 1 + 5 * spot
    state[row + OLD], state[row + OLD_SIZE], state[row + NEW] = old, old_size, new
    state[row + NEW_SIZE], state[row + TIMES] = new_size, times


@inner
def rename(flat: Ints, state: State, place: int) -> np.int64:
    """Row in ``state`` of the replacement of what stands at this place of the prediction; -1 without."""
    for k in range(min(state[RENAMED], RENAMES)):
        row = RENAMED + 1 + 5 * k
        if flat[state[row + OLD]] == flat[place] and _same(flat, state[row + OLD], place, state[row + OLD_SIZE]):
            return np.int64(row)
    return np.int64(-1)


@inner
def follow(texts: Texts, text: Ints, state: State, window: int, near: Near) -> None:
    """Move the cursor over the next token of the answer."""
    flat, _, _, starts = texts
    end = state[SEEN] + 1
    token = text[end - 1]
    state[SEEN] = end
    if flat[state[POS]] == token:
        again = rename(flat, state, state[POS])
        if again >= 0:
            state[again + TIMES] = 0  # not this time
        state[POS] += 1
        state[RUN] += 1
        if state[GAP] == 0:
            state[ANCHOR] += 1
            return
        state[GAP] += 1
        is_near = distance(state[POS], state[ANCHOR] + state[GAP]) <= NEAR
        if state[RUN] >= FIRM or (is_near and state[RUN] >= NEAR_FIRM):
            _settle(flat, text, state, end)
        return
    if end == state[START] + 1:  # the first token may begin another text than the first
        for k in range(len(starts)):
            if flat[starts[k]] == token:
                state[POS] = state[ANCHOR] = starts[k] + 1
                state[RUN] = 1
                return
    if state[GAP] == 0:
        state[LEFT] = state[RUN]
    state[GAP] += 1
    found = nearest(flat, text, state, end, window, near)
    far, size = anywhere(texts, text, state, end)
    place, m = (near[0][0], near[1][0]) if found > 0 else (np.int64(len(flat) - 1), np.int64(0))
    firm = m >= FIRM or (m >= NEAR_FIRM and distance(place, state[ANCHOR] + state[GAP]) <= NEAR)
    if size > m:
        place, m, firm = far, size, size >= FAR_FIRM
    state[POS], state[RUN] = place, m
    if firm:
        _settle(flat, text, state, end)


@inner
def _class(kind: int, m: int) -> int:
    """Evidence class of a node before which ``m`` tokens match."""
    if kind == KIND_GONE:
        return GONE if m < FIRM else GONE + 1
    if kind == KIND_FAR:
        return FAR + (0 if m < 4 else 1 if m < 6 else 2 if m < 9 else 3)
    if kind == KIND_OTHER and m < 3:
        return OTHER
    if kind == KIND_CURSOR or m >= 6:
        return CURSOR + (0 if m < 4 else 1 if m < 8 else 2 if m < 16 else 3 if m < 32 else 4)
    return NEAR_1 if m == 1 else NEAR_M + min(m - 2, 2)


@inner
def _add(table: State, count: int, flat: Ints, place: int, kind: int, m: int, evidence: int) -> int:
    """Add a branch that begins at ``place``, unless one does already or no text goes on there."""
    if count == BRANCHES or place < 0 or place >= len(flat) - 1 or flat[place] < 0:
        return count
    for k in range(count):
        if table[COLUMNS * k + PLACE] == place:
            return count
    row = COLUMNS * count
    table[row + PLACE], table[row + KIND], table[row + SIZE] = place, kind, m
    table[row + CLASS], table[row + NODE], table[row + INSTEAD] = evidence, -1, -1
    return count + 1


@inner
def _positions(table: State, count: int, flat: Ints, state: State) -> int:
    """Branches that go by the position alone; one class for all of them where little had matched before."""
    anchor, gap = state[ANCHOR], state[GAP]
    if gap > REACH:
        return count
    doubted = state[LEFT] < FIRM
    replaced = REPLACED + (0 if gap == 1 else 1 if gap == 2 else 2 if gap <= 4 else 3)
    inserted = INSERTED + min(gap, 3) - 1
    for k in range(2 if doubted else 4):
        place = anchor + gap if k == 0 else anchor if k == 1 else anchor + gap + (1 if k == 2 else -1)
        first = replaced if k == 0 else inserted if k == 1 else LONGER if k == 2 else SHORTER
        count = _add(table, count, flat, place, KIND_NEAR, 0, DOUBTED if doubted else first)
    return count


@inner
def _branches(texts: Texts, text: Ints, state: State, window: int, near: Near, table: State) -> np.int64:
    """Fill ``table`` with the branches at which the answer may go on; returns how many."""
    flat, _, _, starts = texts
    end, count = state[SEEN], np.int64(0)
    run, gap = state[RUN], state[GAP]
    state[MATCH] = run
    if end == state[START]:
        for k in range(len(starts)):
            count = _add(table, count, flat, starts[k], KIND_CURSOR, 0, BEGIN)
        return count
    if gap == 0:
        return _add(table, count, flat, state[POS], KIND_CURSOR, run, _class(KIND_CURSOR, run))
    end_near = state[ANCHOR] + min(gap, window) + window
    lost = gap > LOST
    if run > 1 or (run == 1 and not lost):
        kind = KIND_GONE if lost else KIND_NEAR
        if not lost and not state[ANCHOR] - window // 4 <= state[POS] < end_near:
            kind = KIND_FAR
        count = _add(table, count, flat, state[POS], kind, run, _class(kind, run))
    for k in range(nearest(flat, text, state, end, window, near)):
        place, m = near[0][k], near[1][k]
        kind = KIND_GONE if lost else KIND_NEAR if k == 0 else KIND_OTHER
        if m > 1 or not lost:
            away = distance(place, state[ANCHOR] + gap)
            first = _class(kind, m)
            if m == 1 and kind == KIND_NEAR:
                first += 0 if away <= 2 else 1
            count = _add(table, count, flat, place, kind, m, first)
    place, m = anywhere(texts, text, state, end)
    kind = KIND_GONE if lost else KIND_FAR
    count = _add(table, count, flat, place, kind, m, _class(kind, m))
    return count if lost else _positions(table, count, flat, state)


@inner
def _go_on(
    flat: Ints, state: State, branches: Branches, count: int, which: int, path: float, accept_rates: Floats
) -> int:
    """Set what a branch proposes next, its node being reached with probability ``path``. If the answer replaced
    that before, a branch with the replacement is added. Returns how many branches there are."""
    table, reach = branches
    row = COLUMNS * which
    evidence = _class(table[row + KIND], table[row + SIZE])
    if table[row + INSTEAD] < 0:
        again = rename(flat, state, table[row + PLACE])
        if again >= 0 and state[again + TIMES] > 0:
            often = min(state[again + TIMES], 2) - 1
            evidence = KEPT + often
            if count < BRANCHES:
                new = COLUMNS * count
                for column in range(COLUMNS):
                    table[new + column] = table[row + column]
                table[new + PLACE] += state[again + OLD_SIZE]
                table[new + INSTEAD], table[new + LEFT_OVER] = state[again + NEW], state[again + NEW_SIZE]
                table[new + CLASS] = AGAIN + often
                reach[count] = path * accept_rates[AGAIN + often]
                count += 1
    table[row + CLASS] = evidence
    reach[which] = path * accept_rates[evidence]
    return count


@inner
def _child(out: Ints, nodes: int, parent: int, token: int) -> int:
    """The child of ``parent`` with this token among so many nodes, or their number."""
    child = parent + 1
    while child < nodes and (out[1, child] != parent or out[0, child] != token):
        child += 1
    return child


@inner
def _step(table: State, row: int) -> None:
    """Let a branch go one token further."""
    table[row + SIZE] += 1
    if table[row + INSTEAD] < 0:
        table[row + PLACE] += 1
        return
    table[row + INSTEAD] += 1
    table[row + LEFT_OVER] -= 1
    if table[row + LEFT_OVER] == 0:
        table[row + INSTEAD] = -1


@part
def _grow(
    flat: Ints, text: Ints, state: State, branches: Branches, count: int, limits: Limits, grown: Grown
) -> int:
    """Grow the tree from its branches, best first; equal siblings become one node. Returns how many nodes."""
    (table, reach), (nodes, floor), (accept_rates, out) = branches, limits, grown
    path, n = np.empty(nodes, np.float64), 0
    while n < nodes:
        best = -1
        for k in range(count):
            if reach[k] >= floor and (best < 0 or reach[k] > reach[best]):
                best = k
        if best < 0:
            break
        row = COLUMNS * best
        token = text[table[row + INSTEAD]] if table[row + INSTEAD] >= 0 else flat[table[row + PLACE]]
        if token < 0:  # a text ends here
            reach[best] = -1.0
            continue
        parent = table[row + NODE]
        child = _child(out, n, parent, token)
        if child == n:
            out[0, child], out[1, child], out[2, child] = token, parent, table[row + CLASS]
            path[child] = reach[best]
            n += 1
        table[row + NODE] = child
        _step(table, row)
        count = _go_on(flat, state, branches, count, best, path[child], accept_rates)
    return n


@compiled(
    "i8(Tuple((i4[::1], i4[:,::1], i4[:,::1], i4[::1])), Tuple((i4[::1], i8)), i8[::1], i8,"
    f" Tuple((i8, f8)), {FLOATS}, i4[:,::1])"
)
def draft(
    texts: Texts, answer: Answer, state: State, window: int, limits: Limits, accept_rates: Floats, out: Ints
) -> int:
    """Follow the answer and propose a tree, grown best first; returns how many nodes.

    Rows of ``out`` int32[3, room]: tokens, parents, evidence.
    """
    text, length = answer
    near = np.empty(NEAREST, np.int64), np.empty(NEAREST, np.int64)
    branches = np.empty(COLUMNS * BRANCHES, np.int64), np.empty(BRANCHES, np.float64)
    while state[SEEN] < length:
        follow(texts, text, state, window, near)
    if limits[0] < 1:
        return 0
    table, reach = branches
    count = _branches(texts, text, state, window, near, table)
    for k in range(count):
        reach[k] = accept_rates[table[COLUMNS * k + CLASS]]
    if state[GAP] == 0 and state[RUN] > 0 and count > 0:
        count = _go_on(texts[0], state, branches, count, 0, 1.0, accept_rates)
    return _grow(texts[0], text, state, branches, count, limits, (accept_rates, out))
