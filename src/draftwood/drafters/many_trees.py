"""The trees that one call of a kernel has grown for many texts, cut from arrays that they share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.drafters.base import shared_columns
from draftwood.tree import TokenTree

_NOTHING = TokenTree.empty()


def grown_trees(
    columns: NDArray[np.int32], chances: Floats, counts: Sequence[int], chains: Sequence[int], accept_rates: Floats
) -> list[TokenTree]:
    """Return one tree per count, as `draftwood.drafters.base.grown_tree` would; the arrays become read-only.

    Parameters
    ----------
    columns
        Tokens, parents and evidence classes of all trees, one behind the other, int32[3 or more, n].
    chances
        Each node's accept rate, and how likely it is reached and right, float32[2, n]; the latter may be missing.
    counts
        Nodes of each tree; one with none, or a negative number, is empty.
    chains
        Whether each tree is a chain, 0 or 1.
    """
    for array in (columns, chances):
        array.flags.writeable = False
    tokens, parents, evidence, belief = *columns[:3], chances[0]
    reached = chances[1] if len(chances) > 1 else None
    size = sum([count for count in counts if count > 0])
    known = tokens[:size]
    highest = int(known.max()) if size and known.min() >= 0 else None
    trees, end = [], 0
    for count, chain in zip(counts, chains, strict=True):
        if count <= 0:
            trees.append(_NOTHING)
            continue
        begin, end = end, end + count
        up, source, nan, drafts = shared_columns(count)
        tree = TokenTree.vouched_for(
            tokens=tokens[begin:end], parents=up if chain else parents[begin:end], belief=belief[begin:end],
            source=source, evidence=evidence[begin:end], draft_prob=nan, lookahead=drafts, is_chain=chain == 1,
            n_lookahead=0, by_rates=accept_rates, highest=highest,
        )  # fmt: skip
        if reached is not None:
            vars(tree)["path_belief"] = reached[begin:end]
        trees.append(tree)
    return trees
