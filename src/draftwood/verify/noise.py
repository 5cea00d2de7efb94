"""Keyed noise: Gumbel noise that is a function of (seed, sequence, position, token) and of nothing else.

So it does not depend on drafting, the tree or the batch, and is computed only for the tokens that need it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MULTIPLIERS = np.array([[0xD2511F53], [0xCD9E8D57]], dtype=np.uint64)
_WEYL = np.array([[0x9E3779B9], [0xBB67AE85]], dtype=np.uint64)
_ROUNDS = np.arange(10, dtype=np.uint64)[:, None, None]
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_CHUNK = 32768  # tokens at a time: the temporaries stay in a core's own cache, several times faster


def philox4x32(counter: NDArray[np.uint32], key: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the words, uint32[n, 4], of these counters, uint32[n, 4], under one key, uint32[2].

    Philox4x32 with 10 rounds: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3",
    SC 2011. (numpy's generator is the wider Philox4x64.)
    """
    keys = (key.astype(np.uint64)[:, None] + _WEYL * _ROUNDS) & _LOW
    even, odd = (np.ascontiguousarray(counter[:, lane::2].T, dtype=np.uint64) for lane in (0, 1))
    product = np.empty_like(even)
    for round_key in keys:
        np.multiply(even, _MULTIPLIERS, out=product)
        np.right_shift(product[::-1], _HALF, out=even)
        even ^= odd
        even ^= round_key
        np.bitwise_and(product[::-1], _LOW, out=odd)
    out = np.empty(counter.shape, dtype=np.uint32)
    out[:, 0::2], out[:, 1::2] = even.T, odd.T
    return out


def to_gumbel(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Map 32 random bits to Gumbel noise; the half keeps both logarithms finite."""
    return np.negative(np.log(-np.log((words + 0.5) / 2.0**32)))


@dataclass(frozen=True)
class KeyedNoise:
    """Gumbel noise of one returned sequence; fulfils `draftwood.contracts.Noise`.

    Philox with the seed as key and (token // 4, position, sequence, 0) as counter; token % 4 picks the word.
    A word has 32 bits, so probabilities hold to about 2**-32.
    """

    seed: int  # taken modulo 2**64
    sequence: int = 0  # number of the returned sequence, modulo 2**32; never the row of a batch
    temperature: float = 1.0  # what log-probabilities are divided by before the noise is added
    key: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    """Both words of the seed, and the sequence, int64[3], only to be read: kernels make the same noise from it."""

    def __post_init__(self) -> None:
        bits = int(self.seed) % 2**64
        key = bits & 0xFFFFFFFF, bits >> 32, int(self.sequence) % 2**32
        object.__setattr__(self, "key", np.array(key, dtype=np.int64))

    def gumbel(self, position: int, ids: NDArray[Any]) -> NDArray[np.float64]:
        """Gumbel noise of these tokens, float64[n] between -3.2 and 22.9 (33 log 2).

        ``position``, in ``[0, 2**32)``, is the index in the text of the token that is being chosen. ``ids``,
        integer[n], come in any order; ascending ones are faster.
        """
        noise = np.empty(len(ids))
        for start in range(0, len(ids), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            noise[chunk] = to_gumbel(self._words(position, np.asarray(ids[chunk], dtype=np.int64)))
        return noise

    def _words(self, position: int, ids: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the 32 bits of each token, uint32[len(ids)]."""
        block, lane = ids >> 2, ids & 3
        if (ids[1:] - ids[:-1] == 1).all():  # a run of the vocabulary: its words lie one after another
            first, last = int(block[0]), int(block[-1])
            words = self._blocks(position, np.arange(first, last + 1)).ravel()
            return words[lane[0] : lane[0] + len(ids)]
        picked: NDArray[np.uint32] = self._blocks(position, block)[np.arange(len(ids)), lane]
        return picked

    def _blocks(self, position: int, block: NDArray[np.int64]) -> NDArray[np.uint32]:
        counter = np.zeros((len(block), 4), dtype=np.uint32)
        counter[:, 0] = block
        counter[:, 1] = position
        counter[:, 2] = self.key[2]
        return philox4x32(counter, self.key[:2].astype(np.uint32))
