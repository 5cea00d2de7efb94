"""Leaves out, before a pass, the draft nodes that a grammar forbids."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar.follower import Follower
from draftwood.tree import TokenTree


class Pruner:
    """Tells which nodes of a tree may come.

    Parameters
    ----------
    follower
        Of the text's grammar.
    start
        Tokens of the prompt.
    """

    def __init__(self, follower: Follower, start: int) -> None:
        self._follower, self._start = follower, start

    def __call__(self, ids: Sequence[int], tree: TokenTree) -> NDArray[np.intp]:
        """Return the nodes to keep, ascending and closed under parents.

        Parameters
        ----------
        ids
            The committed text.
        tree
            What is proposed behind it. Lookahead nodes stay, unless they hang below a forbidden node.
        """
        parents, tokens, lookahead = tree.parents.tolist(), tree.tokens.tolist(), tree.lookahead.tolist()
        inner = {parent for node, parent in enumerate(parents) if not lookahead[node]}
        leaves = [node for node in range(len(tokens)) if node not in inner and not lookahead[node]]
        ways = [_way(node, parents) for node in leaves]
        fitting = self._follower.fitting(ids[self._start :], [[tokens[node] for node in way] for way in ways])
        kept = {node for way, count in zip(ways, fitting, strict=True) for node in way[:count]}
        for node, parent in enumerate(parents):
            if lookahead[node] and (parent < 0 or parent in kept):
                kept.add(node)
        return np.array(sorted(kept), dtype=np.intp)


def _way(node: int, parents: Sequence[int]) -> list[int]:
    """Return the nodes from the root's child to this node."""
    way = []
    while node >= 0:
        way.append(node)
        node = parents[node]
    return way[::-1]
