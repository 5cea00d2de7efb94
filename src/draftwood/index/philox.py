"""Keyed noise inside kernels: what `draftwood.verify.noise` makes with numpy, and which tokens it picks."""

from __future__ import annotations

from typing import Any

import numpy as np

from draftwood.index.compiling import inner, part

LEAST = 0.01  # confidence below which a token is not proposed


@part
def four_words(key: Any, position: int, block: int) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Return 32 random bits for each of the tokens 4 * ``block`` to 4 * ``block`` + 3: Philox4x32, 10 rounds.

    ``key`` int64[3]: both words of the seed, and the sequence.
    """
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    # The masks show the compiler that 32 bits are multiplied, for which there are instructions on vectors.
    k0, k1 = np.uint64(key[0]) & low, np.uint64(key[1]) & low
    c0, c1, c2, c3 = np.uint64(block) & low, np.uint64(position) & low, np.uint64(key[2]) & low, np.uint64(0)
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * (c0 & low), np.uint64(0xCD9E8D57) * (c2 & low)
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1, (p0 >> half) ^ c3 ^ k1, p0
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return c0 & low, c1 & low, c2 & low, c3 & low


@inner
def noise_of(word: Any) -> float:
    """Return Gumbel noise of 32 random bits."""
    noise: float = -np.log(-np.log((np.int64(word) + 0.5) / 4294967296.0))
    return noise


@inner
def gumbel(key: Any, position: int, token: int) -> float:
    """Return a token's noise; ``key``: both words of the seed, and the sequence."""
    w0, w1, w2, w3 = four_words(key, position, token >> 2)
    lane = token & 3
    return noise_of(w0 if lane == 0 else w1 if lane == 1 else w2 if lane == 2 else w3)


@inner
def surest(key: Any, position: int, ids: Any, probabilities: Any, temperature: float, found: Any) -> int:
    """Write index, tempered probability and confidence of the surest tokens into the first rows of ``found``.

    ``found`` is float64[most + 2, max(3, n)]; its last two rows are scratch. Returns the number of tokens."""
    n, most = len(ids), len(found) - 2
    lead, own = found[most], found[most + 1]
    best, highest = -np.inf, 0.0
    for i in range(n):
        lead[i] = -np.inf
        if probabilities[i] > 0:
            noise = gumbel(key, position, np.int64(ids[i]))
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
