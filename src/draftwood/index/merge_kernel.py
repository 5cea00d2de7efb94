"""The kernel behind `draftwood.index.merging.merged`. Loads kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import FLOATS, INTS, compiled

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
Tree = tuple[Ints, Ints, Floats, Ints, Ints, Floats, Bools]  # the columns of a `TokenTree`, in its order

TREES = 3  # in one call; missing ones are empty
TOKEN, PARENT, SOURCE, EVIDENCE = range(4)
BELIEF, DRAFT_PROB, REACHED = range(3)
_TREE = f"Tuple(({INTS}, {INTS}, {FLOATS}, {INTS}, {INTS}, {FLOATS}, Array(bool, 1, 'C', readonly=True)))"


@compiled(
    f"UniTuple(i8, 2)(UniTuple({_TREE}, {TREES}), UniTuple(i8, {TREES}), i4[:,::1], f4[:,::1], b1[::1], i4[:,::1])"
)
def merge(
    trees: tuple[Tree, ...], credit: tuple[int, ...], columns: Ints, chances: Floats, lookahead: Bools, rows: Ints
) -> tuple[int, int]:
    """Merge trees; returns how many nodes the merged one has, and whether it is a chain.

    Written are its ``columns`` int32[4, n] (token, parent, source, evidence), ``chances`` float32[3, n] (belief,
    draft probability, probability to be reached and accepted) and ``lookahead`` bool[n], and to ``rows``
    int32[3, n] where each tree's nodes went. A tree's nodes are credited to the source in ``credit``, if that is
    not negative.
    """
    size = 0
    for which in range(len(trees)):
        tokens, parents, belief, source, evidence, draft_prob, ahead = trees[which]
        for node in range(len(tokens)):
            above = rows[which, parents[node]] if parents[node] >= 0 else -1
            spot = above + 1
            while spot < size and (columns[TOKEN, spot] != tokens[node] or columns[PARENT, spot] != above):
                spot += 1
            rows[which, node] = spot
            if spot == size:
                size += 1
            elif ahead[node] != lookahead[spot]:
                if ahead[node]:
                    continue
            elif not belief[node] > chances[BELIEF, spot]:
                continue
            columns[TOKEN, spot], columns[PARENT, spot] = tokens[node], above
            columns[SOURCE, spot] = credit[which] if credit[which] >= 0 else source[node]
            columns[EVIDENCE, spot], lookahead[spot] = evidence[node], ahead[node]
            chances[BELIEF, spot], chances[DRAFT_PROB, spot] = belief[node], draft_prob[node]
    reached, chain = np.empty(size, np.float64), 1
    for node in range(size):
        above = columns[PARENT, node]
        reached[node] = chances[BELIEF, node] * (reached[above] if above >= 0 else 1.0)
        chances[REACHED, node] = reached[node]
        if above != node - 1:
            chain = 0
    return size, chain
