"""What holds a text to its grammar: forbidden tokens cannot come, and forbidden draft nodes are not scored.

The grammar begins after the prompt, which has ``start`` tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar import bitmask
from draftwood.grammar.follower import Follower
from draftwood.tree import TokenTree


class GrammarProcessor:
    """Takes all tokens out of a row, float32[vocab] of NumPy or torch, that the grammar forbids there."""

    def __init__(self, follower: Follower, start: int) -> None:
        self._follower, self._start = follower, start

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        mask = self._follower.mask(prefix[self._start :].tolist())
        tokens, allowed = bitmask.smaller_part(mask, len(row))
        if allowed:
            scores = row[tokens]  # a copy
            row[:] = -np.inf
            row[tokens] = scores
        else:
            row[tokens] = -np.inf
        return row


class Pruner:
    """Tells which nodes of a tree may come."""

    def __init__(self, follower: Follower, start: int) -> None:
        self._follower, self._start = follower, start

    def __call__(self, ids: Sequence[int], tree: TokenTree) -> NDArray[np.intp]:
        """Return the nodes of a tree after a committed text to keep, ascending and closed under parents.

        Lookahead nodes stay, unless they hang below a forbidden node.
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
