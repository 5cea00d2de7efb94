"""The rule's processor of a grammar: what it forbids cannot come."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar import bitmask
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
        mask = self._follower.mask(prefix[self._start :].tolist())
        tokens, allowed = bitmask.smaller_part(mask, len(row))
        if allowed:
            scores = row[tokens]  # a copy
            row[:] = -np.inf
            row[tokens] = scores
        else:
            row[tokens] = -np.inf
        return row
