"""The kernel behind the drafter ``prediction``: follows the answer, then grows the tree. Importing it compiles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.prediction.alignment import (
    ANCHOR,
    FIRM,
    GAP,
    LEFT,
    MATCH,
    NEAREST,
    NEW,
    NEW_SIZE,
    OLD_SIZE,
    POS,
    RUN,
    SEEN,
    START,
    TIMES,
    Near,
    State,
    Texts,
    anywhere,
    distance,
    follow,
    nearest,
    rename,
)
from draftwood.index.compiling import FLOATS, compiled, inner, part

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
CLASSES = 32
KIND_CURSOR, KIND_NEAR, KIND_OTHER, KIND_FAR, KIND_GONE = 0, 1, 2, 3, 4

# A branch: where it goes on in the texts, its kind, tokens matched before its next node, that node's class and
# parent; and, while it copies a replacement from the answer, from where and how many tokens more.
PLACE, KIND, SIZE, CLASS, NODE, INSTEAD, LEFT_OVER = range(7)
COLUMNS = 7


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
    """Set what a branch proposes next, its node being reached with probability ``path``; where something replaced
    that before, it forks. Returns how many branches there are."""
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
def _child(out: Ints, parent: int, token: int, eldest: int) -> np.int64:
    """The child of ``parent`` with this token, -1 without; ``eldest`` is the root's first child."""
    child = np.int64(eldest if parent < 0 else out[3, parent])
    while child >= 0 and out[0, child] != token:
        child = np.int64(out[4, child])
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
    path, n, eldest = np.empty(nodes, np.float64), 0, np.int64(-1)  # eldest: the root's first child
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
        child = _child(out, parent, token, eldest)
        if child < 0:
            child, n = np.int64(n), n + 1
            out[0, child], out[1, child], out[2, child], out[3, child] = token, parent, table[row + CLASS], -1
            path[child] = reach[best]
            if parent < 0:
                out[4, child], eldest = eldest, child
            else:
                out[4, child], out[3, parent] = out[3, parent], child
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

    Rows of ``out`` int32[5, room]: tokens, parents, evidence; two more are scratch.
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
