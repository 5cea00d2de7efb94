"""The rule's processor of a grammar: what it forbids cannot come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar.follower import Follower


class GrammarProcessor:
    """Takes all tokens out of a row that the grammar forbids there.

    Parameters
    ----------
    follower
        Of the text's grammar.
    start
        Tokens of the prompt: the grammar begins behind it.
    """

    def __init__(self, follower: Follower, start: int) -> None:
        self._follower, self._start = follower, start

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        """Return the scores, float32[vocab] of NumPy or torch, with those of forbidden tokens at -inf."""
        allowed = self._follower.allowed(prefix[self._start :].tolist())
        if 2 * len(allowed) < len(row):
            scores = row[allowed]  # a copy
            row[:] = -np.inf
            row[allowed] = scores
        else:
            is_forbidden = np.ones(len(row), dtype=bool)
            is_forbidden[allowed] = False
            row[np.flatnonzero(is_forbidden)] = -np.inf
        return row
