"""Arrays of many sessions for one call of a kernel: by address, since their number differs from step to step.

numba takes arrays one by one or in tuples, and compiles anew for each length of a tuple. So each session keeps
an `ArrayRow`: the addresses and shapes of its arrays, of which a kernel makes arrays again.

Why this is safe: an `ArrayRow` holds the very arrays that it names, so their memory is not freed while the row
lives; the caller holds the rows until the kernel returns; a kernel keeps Python's global lock, so no other thread
replaces an array meanwhile. `ArrayRow.at`, called before each kernel, notices arrays that were replaced.
"""

from __future__ import annotations

from operator import is_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.index.marks import array_at


class ArrayRow:
    """Where the arrays of one session are: per array its address, then its shape, all int64."""

    def __init__(self) -> None:
        self._arrays: tuple[NDArray[Any], ...] = ()
        self._numbers = np.empty(0, dtype=np.int64)
        self._address = 0

    def at(self, *arrays: NDArray[Any]) -> int:
        """Return the address of this row, which names these arrays; each is contiguous and writable."""
        if len(arrays) != len(self._arrays) or not all(map(is_, arrays, self._arrays)):
            if not all(array.flags.carray for array in arrays):
                raise ValueError("a kernel finds contiguous, aligned and writable arrays only by their address")
            numbers = [number for array in arrays for number in (array.ctypes.data, *array.shape)]
            self._arrays, self._numbers = arrays, np.array(numbers, dtype=np.int64)
            self._address = self._numbers.ctypes.data
        return self._address


@array_at("int32")
def ints_at(address: int, shape: Any) -> Any:
    """Return the int32 array of this shape, a tuple, at an address in an `ArrayRow`; only within kernels."""


@array_at("int64")
def longs_at(address: int, shape: Any) -> Any:
    """Return the int64 array of this shape, a tuple, at such an address, or at that of an `ArrayRow` itself."""
