"""Candidates by the rule's keyed noise, by a kernel: with numpy they take up to a quarter of a millisecond."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.draft_model.growth import LEAST, LOOKED_AT, Candidate
from draftwood.index.compiling import FLOATS, INTS, compiled, inner
from draftwood.index.philox import four_words
from draftwood.verify.noise import KeyedNoise

_LONGS = "Array(int64, 1, 'C', readonly=True)"


@inner
def _gumbel(key: NDArray[np.int64], position: int, token: int) -> float:
    """Return a token's noise; ``key``: both words of the seed, and the sequence."""
    w0, w1, w2, w3 = four_words(key, position, token >> 2)
    lane = token & 3
    word = np.int64(w0 if lane == 0 else w1 if lane == 1 else w2 if lane == 2 else w3)
    noise: float = -np.log(-np.log((word + 0.5) / 4294967296.0))
    return noise


@compiled(f"i8({_LONGS}, i8, {INTS}, {FLOATS}, f8, f8[:, ::1])")
def _surest(
    key: NDArray[np.int64], position: int, ids: NDArray[np.int32], probabilities: NDArray[np.float32],
    temperature: float, found: NDArray[np.float64],
) -> int:  # fmt: skip
    """Write index, tempered probability and confidence of the surest tokens into the first rows of ``found``.

    ``found`` is float64[most + 2, max(3, n)]; its last two rows are scratch. Returns the number of tokens.
    """
    n, most = len(ids), len(found) - 2
    lead, own = found[most], found[most + 1]
    best, highest = -np.inf, 0.0
    for i in range(n):
        lead[i] = -np.inf
        if probabilities[i] > 0:
            noise = _gumbel(key, position, np.int64(ids[i]))
            lead[i] = np.log(np.float64(probabilities[i])) + temperature * noise
            best, highest = max(best, lead[i]), max(highest, np.float64(probabilities[i]))
    if not best > -np.inf:
        return 0
    whole = whole_own = 0.0
    for i in range(n):
        lead[i] = np.exp(lead[i] - best)
        whole += lead[i]
        own[i] = (probabilities[i] / highest) ** (1 / temperature)
        whole_own += own[i]
    if temperature == 1:
        whole_own = 1 / highest
    for k in range(min(most, n)):
        at = np.argmax(lead[:n])
        if not lead[at] >= LEAST * whole:
            return k
        found[k, 0], found[k, 1], found[k, 2] = at, own[at] / whole_own, lead[at] / whole
        lead[at] = -1.0
    return min(most, n)


class FewNoise:
    """Candidates with the noise of `KeyedNoise`, equal to the last digits of its logarithms.

    Parameters
    ----------
    noise
        The rule's.
    """

    def __init__(self, noise: KeyedNoise) -> None:
        self._temperature = noise.temperature
        self._key = np.array(noise.key, dtype=np.int64)

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
