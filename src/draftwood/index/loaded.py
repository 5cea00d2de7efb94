"""Whether kernels are used in this process, so that one more costs little."""

from __future__ import annotations

import sys

_FIRST = "draftwood.index.compiling"  # which every kernel imports


def are_loaded() -> bool:
    """Return whether some drafter has loaded a kernel: the first one takes 40 ms, or half a second with numba."""
    return _FIRST in sys.modules
