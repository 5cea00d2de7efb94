"""Keyed noise inside kernels: the random words that `draftwood.verify.noise` makes with numpy."""

from __future__ import annotations

from typing import Any

import numpy as np

from draftwood.index.compiling import part


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
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
        k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return c0, c1, c2, c3
