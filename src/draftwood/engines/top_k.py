"""The best tokens of rows of scores on a CPU. The kernel for it brings numba and is loaded when first used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.int32] | NDArray[np.uint16]


def best_of_rows(bits: Bits, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return ids and probabilities of the ``k`` best tokens of each row, as `Scores.top_k` says, from the bits
    of float32 scores (int32) or bfloat16 scores (uint16)."""
    ids, probabilities = np.empty((len(bits), k), dtype=np.int32), np.empty((len(bits), k), dtype=np.float32)
    whole, halves = _kernels()
    (whole if bits.dtype == np.int32 else halves)(np.ascontiguousarray(bits), ids, probabilities)
    return ids, probabilities


@cache  # an import statement takes 17 microseconds after a pass, which leaves the processor's caches cold
def _kernels() -> tuple[Callable[..., Any], Callable[..., Any]]:
    from draftwood.engines.top_k_kernel import top_k, top_k_of_halves

    return top_k, top_k_of_halves
