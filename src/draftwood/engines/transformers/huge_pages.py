"""Large pages for memory that every pass reads: fewer address translations, a few percent of a pass on a CPU.

By default Linux gives them on request only; for memory in use the request is MADV_COLLAPSE (Linux 6.1). Where that
is unknown or denied, nothing changes.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable

_HUGE = 2 << 20
_MADV_COLLAPSE = 25
_WORTH = 32 << 20
"""Total bytes below which address translations, and mostly the memory itself, stay in the processor's caches."""


def collapse(blocks: Iterable[tuple[int, int]]) -> None:
    """Ask for large pages under these blocks, given as (address, bytes); their contents do not change."""
    blocks = list(blocks)
    if sys.platform != "linux" or sum(size for _, size in blocks) < _WORTH:
        return
    try:
        madvise = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return
    madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    for start, end in _whole_pages(blocks):
        madvise(start, end - start, _MADV_COLLAPSE)  # parts with holes fail and stay as they are


def _whole_pages(blocks: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges of large pages that these blocks touch, as (start, end); adjacent ones are merged."""
    found: list[tuple[int, int]] = []
    for address, size in sorted(blocks):
        start, end = address // _HUGE * _HUGE, -(-(address + size) // _HUGE) * _HUGE
        if found and start <= found[-1][1]:
            start, end = found[-1][0], max(end, found.pop()[1])
        found.append((start, end))
    return found
