"""Holds a text to its grammar."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar.follower import Follower
from draftwood.grammar.later import LaterFollower
from draftwood.grammar.vocabulary import members


class GrammarProcessor:
    """Takes all tokens out of a row, float32[vocab] of NumPy or torch, that the grammar forbids there.

    The grammar begins after the prompt, which has ``start`` tokens, or later.
    """

    def __init__(self, follower: Follower | LaterFollower, start: int) -> None:
        self._follower, self._start = follower, start

    def twin(self) -> GrammarProcessor:
        """Return one for another text that follows the same grammar from the same place on."""
        return GrammarProcessor(self._follower.twin(), self._start)

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        mask = self._follower.mask(prefix[self._start :].tolist())
        if 2 * np.count_nonzero(mask) > len(mask):
            row[members(~mask, len(row))] = -np.inf
            return row
        tokens = members(mask, len(row))
        scores = row[tokens]  # a copy
        row[:] = -np.inf
        row[tokens] = scores
        return row
