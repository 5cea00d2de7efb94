"""Index of the texts that an answer is expected to follow. Importing this module imports numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.drafters.prediction.alignment import ORDERS, hashed


class Expected:
    """Texts and their hashed n-grams, 20 to 25 bytes per token; the arrays are those of `alignment`. Immutable.

    The texts are arrays of token ids, none negative; empty ones are left out. ``starts`` is where each begins.
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
        for level, order in enumerate(ORDERS):
            self._link(level, order)

    def _link(self, level: int, order: int) -> None:
        """Fill ``heads`` and ``chain`` for n-grams of ``order`` tokens."""
        borders = np.cumsum(self.flat < 0)  # before which an n-gram may end, but not begin
        ends = np.arange(order - 1, len(self.flat))
        ends = ends[(self.flat[ends - order + 1] >= 0) & (borders[ends] == borders[ends - order + 1])]
        keys = np.full(len(ends), order, dtype=np.uint64)
        for back in range(order - 1, -1, -1):
            keys = hashed.py_func(keys, self.flat[ends - back].astype(np.uint64))
        slots = (keys >> np.uint64(8)).astype(np.int64) & (self.heads.shape[1] - 1)
        by_slot = np.argsort(slots, kind="stable")
        ends, slots = ends[by_slot], slots[by_slot]
        same = slots[1:] == slots[:-1]
        self.chain[level, ends[1:][same]] = ends[:-1][same]
        last = np.append(~same, True)[: len(ends)]
        self.heads[level, slots[last]] = ends[last]
