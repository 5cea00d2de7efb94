"""Rows that cannot be believed yet: a NaN in a pass over several rows may have come from another row.

A row that is masked out is multiplied by zero, and zero times infinity, or times NaN, is NaN. So where a pass
holds a draft or another text, a broken row is no reason to end a text: the root is scored again, alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from draftwood.contracts import Floats, Ints, Plan, Scores
from draftwood.tree import TokenTree


class BrokenRowError(Exception):
    """A row of a shared pass has a NaN, or no finite score; never leaves a request."""


class CheckedScores:
    """Scores of a pass over several rows; `argmax` and `raw` raise `BrokenRowError` for a broken row.

    Fulfils `draftwood.contracts.Scores`.
    """

    def __init__(self, scores: Scores) -> None:
        self._scores = scores

    def argmax(self, row: int) -> int:
        best = self._scores.argmax(row)
        if best < 0:
            raise BrokenRowError
        return best

    def raw(self, row: int) -> Any:
        self.argmax(row)  # raise before a processor runs: it must run once per token
        return self._scores.raw(row)

    def numpy(self, array: Any) -> Floats:
        return self._scores.numpy(array)

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        return self._scores.top_k(k)

    def hidden(self, layer: int) -> Any:
        return self._scores.hidden(layer)


def without_drafts(plan: Plan) -> Plan:
    """The plan of a pass over the root alone; everything that was proposed counts as pruned."""
    return Plan(TokenTree.empty(), tuple(np.full(len(nodes), -1, dtype=np.int32) for nodes in plan.node_map))
