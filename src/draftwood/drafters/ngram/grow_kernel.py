"""Reads text into an `NgramIndex` and grows the tree of what may follow. Loads kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.ngram.candidates_kernel import candidates, length_class, more_candidates
from draftwood.drafters.ngram.kernel import (
    AGE,
    AGED,
    ALL,
    CANDIDATES,
    CLASSES,
    COLUMNS,
    DISTINCT,
    FOLLOWED,
    FREQUENT,
    GOES,
    LENGTH,
    LENGTHS_TOLD,
    LONGEST,
    MATCHED,
    PLACE,
    RAN,
    REACH,
    READ,
    RUN,
    SOURCE,
    WORK,
    Ints,
    Lists,
    Longs,
    append,
    follow,
    row_of,
)
from draftwood.index.compiling import FLOATS, compiled, inner
from draftwood.index.frontier import CLASS, DEPTH, PARENT, bar, empty, offer, take

Floats = NDArray[np.float32]
Reals = NDArray[np.float64]
Scratch = tuple[Ints, Longs, Longs, Reals, Longs]  # path, work; the frontier: order, chance, entries


LISTS = "Tuple((i4[::1], i4[:,::1], i4[:,::1], i4[:,::1], i8[::1]))"


@compiled(f"i8({LISTS}, i4[:,::1], i8[::1], i4[::1], i8, b1, i8)")
def advance(index: Lists, old: Ints, cursor: Longs, tail: Ints, known: int, own: bool, followed: int) -> int:
    """Read ``tail[known:]``, the tokens before being the text so far: into the index where it is its ``own``.

    The cursor follows the last ``followed`` of them. Returns how much of ``tail`` is known now: reading stops
    where the table of tokens is half full. The rows of ``old``, such a table, are first moved to the index's own.
    """
    tokens, work = index[3], np.empty((WORK, CANDIDATES), np.int64)
    for row in range(len(old)):
        if old[row, 0] >= 0:
            place = row_of(tokens, old[row, 0])
            for column in range(3):
                tokens[place, column] = old[row, column]
    for m in range(known + 1, len(tail) + 1):
        before = index[4][READ]
        if own:
            if 2 * index[4][DISTINCT] >= len(tokens):
                return m - 1
            append(index, tail[m - 1])
        if m > len(tail) - followed:
            follow(index, tail, m, before, cursor, work)
    return len(tail)


@inner
def reach_of(accept_rates: Floats) -> NDArray[np.float64]:
    """The best accept rate a child can have, by the class of its match's length; without a cursor and with one.

    Then that of a merely frequent token, where nothing matches and where something does.
    """
    reach = np.empty((3, LENGTHS_TOLD), np.float64)
    reach[2, 0] = accept_rates[MATCHED + FOLLOWED + FREQUENT :].max()
    reach[2, 1] = accept_rates[MATCHED + FOLLOWED : MATCHED + FOLLOWED + FREQUENT].max()
    for follows in range(2):
        best = 0.0
        for which in range(MATCHED + (1 - follows) * FOLLOWED, CLASSES):
            best = max(best, accept_rates[which])
        for which in range(MATCHED):
            if follows or which % 4 == 0:
                best = max(best, accept_rates[which])
            reach[follows, which * LENGTHS_TOLD // MATCHED] = best
    return reach


@inner
def read_window(index: Lists, cursor: Longs, window: Ints, known: int, end: int) -> bool:
    """Read ``window[known:end]`` into the index, which the cursor follows; False, and nothing is read, where there
    may be too little room."""
    new = end - known
    if index[4][READ] + new > len(index[0]) or 2 * (index[4][DISTINCT] + new) > len(index[3]):
        return False
    tail, work = window[:end], np.empty((WORK, CANDIDATES), np.int64)
    for m in range(known + 1, end + 1):
        before = index[4][READ]
        append(index, tail[m - 1])
        follow(index, tail, m, before, cursor, work)
    return True


@inner
def begin(window: Ints, m: int, path: Ints) -> None:
    """Copy the first ``m`` tokens of the window, the text, to ``path``; move the last of them to its beginning."""
    for i in range(m):
        path[i] = window[i]
    for i in range(max(0, m - REACH), m):
        window[i - max(0, m - REACH)] = window[i]


@inner
def grow_tree(
    index: Lists, cursor: Longs, limits: tuple[int, int, int, int], rates: tuple[Floats, Reals], scratch: Scratch,
    out: Ints, chances: Floats,
) -> int:  # fmt: skip
    """Grow a tree; see `grow`. ``limits``: how many tokens stand in the scratch's path, then the tree's nodes, its
    depth and how many frequent tokens; ``rates``: the accept rates, and `reach_of` them.
    """
    m, nodes, depth, frequent = limits
    accept_rates, reach = rates
    path, work, order, chance, entries = scratch
    order[0] = 0
    place, age, run, length = cursor[PLACE], cursor[AGE], cursor[RUN], REACH
    parent, below, likely, longest, size = -1, 0, 1.0, 0, nodes
    for node in range(nodes):
        room = nodes - node
        best = likely * reach[1 if place >= 0 else 0, length_class(min(length + 1, REACH))]
        if below < depth and best > bar(order, chance, room):  # else no child would be taken
            k, matched = candidates(index, path, m + below, place, age, run, ALL, work)
            some = frequent if likely * reach[2, min(k, 1)] > bar(order, chance, room) else 0
            k = more_candidates(index, k, place, age, run, some, work)
            if node == 0:
                longest = matched
            for c in range(k):
                slot = offer(order, chance, room, likely * accept_rates[work[CLASS, c]])
                if slot >= 0:
                    for column in range(COLUMNS):
                        entries[slot, column] = work[column, c]
                    entries[slot, PARENT], entries[slot, DEPTH] = parent, below + 1
        slot = take(order, entries, out, node)
        if slot < 0:
            size = node
            break
        likely, below = chance[slot], entries[slot, DEPTH]
        out[3, node], chances[0, node] = entries[slot, SOURCE], accept_rates[entries[slot, CLASS]]
        chances[1, node] = likely
        place, age, run = entries[slot, GOES], entries[slot, AGED], entries[slot, RAN]
        length = entries[slot, LENGTH]
        parent = at = node
        for back in range(below):
            path[m + below - 1 - back] = out[0, at]
            at = out[1, at]
    cursor[LONGEST] = longest
    return size


@compiled(f"i8({LISTS}, i8[::1], i4[::1], UniTuple(i8, 4), {FLOATS}, i4[:,::1], f4[:,::1])")
def grow(
    index: Lists, cursor: Longs, window: Ints, limits: tuple[int, int, int, int], accept_rates: Floats, out: Ints,
    chances: Floats,
) -> int:  # fmt: skip
    """Read new text and grow a tree behind it, likeliest first; returns how many nodes it has.

    ``limits``: how many tokens of the ``window`` are known, where the new ones behind them end, the depth of the
    tree, and how many of the most frequent tokens are candidates everywhere. The window's last tokens are moved to
    its beginning. Where there may be too little room in the index, -1 is returned and nothing is changed. ``out``
    and ``chances`` are the arrays that `NgramIndex.grow` returns. A node gets no children where even a match
    longer by one would come too late.
    """
    known, m, depth, frequent = limits
    if m > known and not read_window(index, cursor, window, known, m):
        return -1
    nodes = out.shape[1]
    path, work, reach = (
        np.empty(m + depth, np.int32),
        np.empty((WORK, CANDIDATES), np.int64),
        reach_of(accept_rates),
    )
    order, chance, entries = empty(nodes, COLUMNS)
    begin(window, m, path)
    scratch = path, work, order, chance, entries
    return grow_tree(index, cursor, (m, nodes, depth, frequent), (accept_rates, reach), scratch, out, chances)
