"""Scores of some of a target's tokens, as trained heads and exits give them."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from draftwood.contracts import Floats, Ints


class Ranked(Protocol):
    """Scores that know their best."""

    def top_k(self, k: int) -> tuple[Ints, Floats]: ...


class ReducedScores:
    """Scores of a vocabulary of some of the target's tokens: ``ids`` int32[v] has the token of each place."""

    def __init__(self, scores: Ranked, ids: Ints) -> None:
        self._scores, self._ids = scores, ids

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        """Ids int32[rows, k] and probabilities float32[rows, k], among these tokens, as `Scores.top_k`."""
        places, probabilities = self._scores.top_k(k)
        return np.asarray(self._ids[places], dtype=np.int32), probabilities
