"""Candidates by the rule's keyed noise, by a kernel: with numpy they take up to a quarter of a millisecond."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.draft_model.growth import LOOKED_AT, Candidate
from draftwood.index.compiling import FLOATS, INTS, LONGS, compiled
from draftwood.index.philox import surest
from draftwood.verify.noise import KeyedNoise


@compiled(f"i8({LONGS}, i8, {INTS}, {FLOATS}, f8, f8[:, ::1])")
def _surest(
    key: NDArray[np.int64], position: int, ids: NDArray[np.int32], probabilities: NDArray[np.float32],
    temperature: float, found: NDArray[np.float64],
) -> int:  # fmt: skip
    """As `surest`."""
    return surest(key, position, ids, probabilities, temperature, found)


class FewNoise:
    """Candidates with the noise of `KeyedNoise`, equal to the last digits of its logarithms.

    Parameters
    ----------
    noise
        The rule's.
    """

    def __init__(self, noise: KeyedNoise) -> None:
        self._temperature = noise.temperature
        self._key = noise.key

    def candidates(
        self, ids: Ints, probabilities: Floats, position: int, most: int = LOOKED_AT
    ) -> list[Candidate]:
        """Return what `draftwood.drafters.draft_model.growth.candidates` returns with this noise."""
        found = np.empty((most + 2, max(3, len(ids))), dtype=np.float64)
        ids, probabilities = np.ascontiguousarray(ids), np.ascontiguousarray(probabilities)
        count = _surest(self._key, position, ids, probabilities, self._temperature, found)
        return [
            Candidate(int(ids[int(at)]), probability, confidence)
            for at, probability, confidence in found[:count, :3].tolist()
        ]
