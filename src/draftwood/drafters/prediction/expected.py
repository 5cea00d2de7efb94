"""Index of the texts that an answer is expected to follow. Importing this module imports numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.drafters.prediction.alignment import index


class Expected:
    """Texts and their hashed n-grams, 20 to 25 bytes per token. Immutable.

    Parameters
    ----------
    texts
        Arrays of token ids, none negative; empty ones are left out.

    Attributes
    ----------
    flat : int32[n]
        The texts, each followed by -1; at least one -1.
    starts : int32[texts]
        Where each begins.
    heads : int32[2, 2**k]
        Per order of `alignment.ORDERS` and hash: where in ``flat`` the latest such n-gram ends, -1 without.
    chain : int32[2, n]
        From each end of an n-gram the end of the one before it with the same hash, -1 without.
    """

    def __init__(self, texts: Sequence[NDArray[Any]]) -> None:
        texts = [text for text in texts if len(text)]
        end = np.array([-1], dtype=np.int32)
        parts = [part.astype(np.int32) for text in texts for part in (text, end)]
        self.flat: Ints = np.concatenate(parts or [end])
        self.starts: Ints = np.cumsum([0, *(len(t) + 1 for t in texts)], dtype=np.int32)[: len(texts)].copy()
        slots = 1 << max(4, len(self.flat).bit_length())
        self.heads: Ints = np.full((2, slots), -1, dtype=np.int32)
        self.chain: Ints = np.full((2, len(self.flat)), -1, dtype=np.int32)
        index(self.flat, self.heads, self.chain)
