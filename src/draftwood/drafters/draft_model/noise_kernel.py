"""Keyed noise of a few tokens by a kernel, which numpy takes a quarter of a millisecond for."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import INTS, compiled
from draftwood.index.philox import four_words
from draftwood.verify.noise import KeyedNoise

_LONGS = "Array(int64, 1, 'C', readonly=True)"


@compiled(f"i8({_LONGS}, i8, {INTS}, f8[::1])")
def _gumbel(key: NDArray[np.int64], position: int, ids: NDArray[np.int32], found: NDArray[np.float64]) -> int:
    """Write each token's noise into ``found``; ``key``: both words of the seed, and the sequence."""
    for i in range(len(ids)):
        token = np.int64(ids[i])
        w0, w1, w2, w3 = four_words(key, position, token >> 2)
        lane = token & 3
        word = np.int64(w0 if lane == 0 else w1 if lane == 1 else w2 if lane == 2 else w3)
        found[i] = -np.log(-np.log((word + 0.5) / 4294967296.0))
    return len(ids)


class FewNoise:
    """The same noise as `KeyedNoise` to the last digits of its logarithms; enough to draft by.

    Parameters
    ----------
    noise
        The rule's.
    """

    def __init__(self, noise: KeyedNoise) -> None:
        self.temperature = noise.temperature
        self._key = np.array(noise.key, dtype=np.int64)

    def gumbel(self, position: int, ids: NDArray[Any]) -> NDArray[np.float64]:
        """Return the noise of these tokens, int32[n], at this position of the text: float64[n]."""
        found = np.empty(len(ids), dtype=np.float64)
        _gumbel(self._key, position, np.ascontiguousarray(ids, dtype=np.int32), found)
        return found
