"""How fast this machine reads memory, and how much of it a pass has to read.

A pass over one token reads every weight once and computes little with it: memory speed bounds it from below.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

BUFFER = 512 << 20
"""Bytes: many times the last cache of most machines."""
_READS = 4


def bytes_per_second(model: Any, threads: int) -> float | None:
    """Return the best of several reads of a large array by this many threads.

    Parameters
    ----------
    model
        Where its weights do not lie in the main memory, nothing is measured.
    threads
        That read a part each.

    Returns
    -------
    float or None
        None where the weights lie on another device, or there is no room for the array.
    """
    if _device(model) != "cpu":
        return None
    try:
        buffer = np.ones(min(BUFFER, _free() // 4) // 4, dtype=np.float32)
    except MemoryError:
        return None
    best = 0.0
    parts = np.array_split(buffer, max(1, threads))
    with ThreadPoolExecutor(len(parts)) as pool:
        for read in (np.max, np.sum, _dot):  # which is fastest depends on processor and build of numpy
            for _ in range(_READS):
                started = perf_counter()
                list(pool.map(read, parts))
                best = max(best, buffer.nbytes / (perf_counter() - started))
    return best


def weight_bytes(model: Any) -> int | None:
    """Return the bytes of weights that a pass reads, or None where ``model`` does not tell.

    All parameters, except an embedding table that serves for looking up a few rows only.
    """
    if not hasattr(model, "parameters"):
        return None
    total = sum(p.nbytes for p in model.parameters())  # those that are shared come once
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    shared = head is not None and head.weight is embedding.weight
    return int(total if shared else total - embedding.weight.nbytes)


def _free() -> int:
    """Bytes that may be taken without pushing others out; as much as is wanted where nobody tells."""
    try:
        import psutil
    except ImportError:
        return 4 * BUFFER
    return int(psutil.virtual_memory().available)


def _device(model: Any) -> str:
    return str(getattr(getattr(model, "device", None), "type", "cpu"))


def _dot(part: Any) -> Any:
    return np.dot(part, part)
