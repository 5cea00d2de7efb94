"""Grows a tree over each of many suffix automata in one call.."""

from __future__ import annotations

import numpy as np

from draftwood.drafters.suffix.grow_kernel import Floats, Ints, Longs, grow_tree, room_for
from draftwood.drafters.suffix.kernel import LINK
from draftwood.index.addresses import ints_at, longs_at
from draftwood.index.compiling import FLOATS, compiled

AUTOMATON, LENGTH, MATCH, NODES, DEPTH = range(5)
"""Columns of ``rows``: the address of an `ArrayRow` of states and edges; tokens of the text, and of the match;
nodes wanted, 0 for none; depth of the tree."""

COUNT, CHAIN = range(2)
"""Columns of ``found``: nodes of the tree, -1 where none were wanted; whether it is a chain."""

_ROW = 6  # numbers of the `ArrayRow`


@compiled(f"void(i8[:,::1], UniTuple(i8, 2), {FLOATS}, Tuple((i4[:,::1], f4[:,::1])), i8[:,::1])")
def grow_many(
    rows: Longs, limits: tuple[int, int], accept_rates: Floats, trees: tuple[Ints, Floats], found: Longs
) -> None:
    """Do for each row what `grow` does. ``limits``: the most children of a node, and the shortest match.

    The trees are written one behind the other, in the columns that `grow` writes.
    """
    branches, least = limits
    out, chances = trees
    most = 1
    for row in range(len(rows)):
        most = max(most, rows[row, NODES])
    scratch = room_for(most, branches)
    tree, belief = np.empty((3, most), np.int32), np.empty(most, np.float32)
    made = 0
    for row in range(len(rows)):
        found[row, COUNT], wanted = -1, rows[row, NODES]
        if wanted == 0:
            continue
        at = longs_at(rows[row, AUTOMATON], (_ROW,))
        states, edges = ints_at(at[0], (at[1], at[2])), ints_at(at[3], (at[4], at[5]))
        match = np.int64(states[rows[row, LENGTH], LINK]), rows[row, MATCH]
        size = grow_tree(
            (states, edges),
            match,
            (wanted, rows[row, DEPTH], branches, least),
            accept_rates,
            scratch,
            tree,
            belief,
        )
        found[row, COUNT], found[row, CHAIN] = size, 1
        for node in range(size):
            for column in range(3):
                out[column, made] = tree[column, node]
            chances[0, made] = belief[node]
            if tree[1, node] != node - 1:
                found[row, CHAIN] = 0
            made += 1
