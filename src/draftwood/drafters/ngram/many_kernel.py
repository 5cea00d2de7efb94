"""Reads new text into many `NgramIndex`es and grows a tree over each, in one call.."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.ngram.grow_kernel import begin, grow_tree, reach_of, read_window
from draftwood.drafters.ngram.kernel import CANDIDATES, COLUMNS, HEAD, LONGEST, WORK, Ints, Longs
from draftwood.index.addresses import ints_at, longs_at
from draftwood.index.compiling import FLOATS, compiled
from draftwood.index.frontier import empty

Floats = NDArray[np.float32]

SESSION, KNOWN, NEW, NODES = range(4)
"""Columns of ``rows``: the address of an `ArrayRow` of text, links, buckets, tokens, head, cursor and window; how
many tokens of the window are known; how many are new; nodes wanted."""

COUNT, MATCH, CHAIN = range(3)
"""Columns of ``found``: nodes of the tree, -1 where there may be too little room in the index (nothing is changed
then) or none are wanted; the length of the longest match; whether the tree is a chain."""

_ROW, _CURSOR = 17, 4  # numbers of the `ArrayRow`, and of a cursor


@compiled(f"void(i8[:,::1], i4[::1], UniTuple(i8, 2), {FLOATS}, Tuple((i4[:,::1], f4[:,::1])), i8[:,::1])")
def grow_many(
    rows: Longs, new: Ints, limits: tuple[int, int], accept_rates: Floats, trees: tuple[Ints, Floats], found: Longs
) -> None:
    """Do for each row what `grow` does.

    ``new``: the new tokens of all rows, in their order; ``limits``: depth, and how many frequent tokens. The trees
    are written one behind the other, in the columns that `grow` writes.
    """
    depth, frequent = limits
    most, room = 1, 1
    for row in range(len(rows)):
        most, room = max(most, rows[row, NODES]), max(room, rows[row, KNOWN] + rows[row, NEW])
    path, work = np.empty(room + min(depth, most), np.int32), np.empty((WORK, CANDIDATES), np.int64)
    order, chance, entries = empty(most, COLUMNS)
    scratch, (out, chances) = (path, work, order, chance, entries), trees
    tree, likely = np.empty((4, most), np.int32), np.empty((2, most), np.float32)
    rates = accept_rates, reach_of(accept_rates)
    read, made = 0, 0
    for row in range(len(rows)):
        found[row, COUNT], wanted = -1, rows[row, NODES]
        if wanted == 0:
            continue
        at = longs_at(rows[row, SESSION], (_ROW,))
        index = (
            ints_at(at[0], (at[1],)), ints_at(at[2], (at[3], at[4])), ints_at(at[5], (at[6], at[7])),
            ints_at(at[8], (at[9], at[10])), longs_at(at[11], (HEAD,)),
        )  # fmt: skip
        cursor, window = longs_at(at[13], (_CURSOR,)), ints_at(at[15], (at[16],))
        known, end = rows[row, KNOWN], rows[row, KNOWN] + rows[row, NEW]
        for i in range(known, end):
            window[i] = new[read]
            read += 1
        if end > known and not read_window(index, cursor, window, known, end):
            continue
        begin(window, end, path)
        size = grow_tree(index, cursor, (end, wanted, min(depth, wanted), frequent), rates, scratch, tree, likely)
        found[row, COUNT], found[row, MATCH], found[row, CHAIN] = size, cursor[LONGEST], 1
        for node in range(size):
            for column in range(4):
                out[column, made] = tree[column, node]
            chances[0, made], chances[1, made] = likely[0, node], likely[1, node]
            if tree[1, node] != node - 1:
                found[row, CHAIN] = 0
            made += 1
