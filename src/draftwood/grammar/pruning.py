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
        children: dict[int, list[tuple[int, int]]] = {}
        rows = zip(tree.tokens.tolist(), tree.parents.tolist(), tree.lookahead.tolist(), strict=True)
        looking = []  # lookahead nodes and their parents
        for node, (token, parent, is_lookahead) in enumerate(rows):
            if is_lookahead:
                looking.append((node, parent))
            else:
                children.setdefault(parent, []).append((node, token))
        kept = self._follower.fitting(ids[self._start :], children) if -1 in children else set()
        for node, parent in looking:
            if parent < 0 or parent in kept:
                kept.add(node)
        return np.array(sorted(kept), dtype=np.intp)
