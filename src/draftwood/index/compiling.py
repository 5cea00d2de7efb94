"""Compiles kernels when their module is imported, and keeps the result on disk. Imports numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit


def compiled(signature: str, *, reorder: bool = False) -> Callable[[Any], Any]:
    """Compile a kernel for this one signature; loaded from numba's cache where it was compiled before.

    With ``reorder`` sums may be added up in any order, which lets them use whole vectors.
    """
    fast = {"reassoc", "contract"} if reorder else False

    def compile_now(function: Any) -> Any:
        try:
            return njit(signature, cache=True, error_model="numpy", fastmath=fast)(function)
        except RuntimeError:  # numba finds no folder that it may write to: compile anew in every process
            return njit(signature, error_model="numpy", fastmath=fast)(function)

    return compile_now


inner = njit(error_model="numpy")
"""What kernels call; with the kernels' arithmetic, which raises no errors and so compiles faster."""
