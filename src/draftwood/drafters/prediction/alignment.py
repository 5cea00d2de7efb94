"""Behind the drafter ``prediction``: the index of expected texts, and kernels that follow an answer through them.

`grow_kernel` is the second half, the tree. Importing this loads kernels.

Layout
------
``flat`` int32: the texts one after another, each followed by -1. ``heads`` int32[2, 2**k], ``chain`` int32[2, n]:
hashed n-grams of both `ORDERS`: a hash's latest end in ``flat``, and from each end the one before it, at last -1.

``state`` int64: where the answer is. SEEN tokens of the text were followed, from START. The cursor (POS, RUN) has
just matched RUN tokens. The anchor is the cursor while that is firm, else the place that it left; GAP counts the
answer's tokens since, LEFT how many had matched there. MATCH: RUN as of the last draft. RENAMED counts
replacements; behind it the latest `RENAMES` of them stand: place and size of what the prediction has, place in the
answer and size of what it became, and how often in a row it did.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.index.compiling import inner
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
        near = distance(state[POS], state[ANCHOR] + state[GAP]) <= NEAR
        if state[RUN] >= FIRM or (near and state[RUN] >= NEAR_FIRM):
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
