"""Reads text into an `NgramIndex` and grows the tree of what may follow. Imports numba and compiles."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.ngram.kernel import (
    AGE,
    AGED,
    CANDIDATES,
    CLASSES,
    COLUMNS,
    DISTINCT,
    FOLLOWED,
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
    candidates,
    follow,
    length_class,
    more_candidates,
    row_of,
)
from draftwood.index.compiling import FLOATS, compiled, inner
from draftwood.index.frontier import CLASS, DEPTH, PARENT, bar, empty, offer, take

Floats = NDArray[np.float32]


_LISTS = "Tuple((i4[::1], i4[:,::1], i4[:,::1], i4[:,::1], i8[::1]))"


@compiled(f"i8({_LISTS}, i4[:,::1], i8[::1], i4[::1], i8, b1, i8)")
def advance(index: Lists, old: Ints, cursor: Longs, tail: Ints, known: int, own: bool, followed: int) -> int:
    """Read ``tail[known:]``, the tokens before being the text so far: into the index where it is its ``own``.

    The cursor follows the last ``followed`` of them. Returns how much of ``tail`` is known now: reading stops
    where the table of tokens is half full. The rows of ``old``, such a table, are first moved to the index's own.
    """
    tokens, work = index[3], np.empty((CANDIDATES, WORK), np.int64)
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
def _reach(accept_rates: Floats) -> NDArray[np.float64]:
    """The best accept rate a child can have, by the class of its match's length; without a cursor and with one."""
    reach = np.empty((2, LENGTHS_TOLD), np.float64)
    for follows in range(2):
        best = 0.0
        for which in range(MATCHED + (1 - follows) * FOLLOWED, CLASSES):
            best = max(best, accept_rates[which])
        for which in range(MATCHED):
            if follows or which % 4 == 0:
                best = max(best, accept_rates[which])
            reach[follows, which * LENGTHS_TOLD // MATCHED] = best
    return reach


@compiled(f"i8({_LISTS}, i8[::1], i4[::1], {FLOATS}, UniTuple(i8, 2), i4[:,::1], f4[::1])")
def grow(
    index: Lists, cursor: Longs, tail: Ints, accept_rates: Floats, limits: tuple[int, int], out: Ints,
    belief: Floats,
) -> int:  # fmt: skip
    """Grow a tree behind ``tail``, likeliest first; returns how many nodes it has.

    ``limits``: its depth, and how many of the most frequent tokens are candidates everywhere. ``out`` and
    ``belief`` are the arrays that `NgramIndex.grow` returns. A node gets no children where even a match longer by
    one would come too late.
    """
    depth, frequent = limits
    m, nodes = len(tail), out.shape[1]
    path = np.empty(m + depth, np.int32)
    for i in range(m):
        path[i] = tail[i]
    work, reach = np.empty((CANDIDATES, WORK), np.int64), _reach(accept_rates)
    order, chance, entries = empty(nodes, COLUMNS)
    place, age, run, length = cursor[PLACE], cursor[AGE], cursor[RUN], REACH
    parent, below, likely, longest, size = -1, 0, 1.0, 0, nodes
    for node in range(nodes):
        room = nodes - node
        best = likely * reach[1 if place >= 0 else 0, length_class(min(length + 1, REACH))]
        if below < depth and best > bar(order, chance, room):  # else no child would be taken
            k, matched = candidates(index, path, m + below, place, age, run, work)
            k = more_candidates(index, k, place, age, run, frequent, work)
            if node == 0:
                longest = matched
            for c in range(k):
                slot = offer(order, chance, room, likely * accept_rates[work[c, CLASS]])
                if slot >= 0:
                    for column in range(COLUMNS):
                        entries[slot, column] = work[c, column]
                    entries[slot, PARENT], entries[slot, DEPTH] = parent, below + 1
        slot = take(order, entries, out, node)
        if slot < 0:
            size = node
            break
        out[3, node], belief[node] = entries[slot, SOURCE], accept_rates[entries[slot, CLASS]]
        place, age, run = entries[slot, GOES], entries[slot, AGED], entries[slot, RAN]
        length, likely, below = entries[slot, LENGTH], chance[slot], entries[slot, DEPTH]
        parent = at = node
        for back in range(below):
            path[m + below - 1 - back] = out[0, at]
            at = out[1, at]
    cursor[LONGEST] = longest
    return size
