"""How fast this machine reads memory, and how many bytes of weights a pass has to read.

A pass over one token reads every weight once and computes little with it, so memory speed limits how fast it is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

from draftwood.contracts import Target
from draftwood.models.machine import free_memory

BUFFER = 512 << 20  # bytes: many times the last-level cache of most machines
_READS = 4


def bytes_per_second(model: Any, threads: int) -> float | None:
    """Return the best of several reads of a large array, of which each thread reads a part; None if the weights of
    ``model`` lie on another device than the CPU, or there is no room for the array."""
    if isinstance(model, Target):
        elsewhere = model.setting is not None and model.setting.device != "cpu"
    else:
        elsewhere = model is not None and model.device.type != "cpu"
    if elsewhere:
        return None
    try:
        buffer = np.ones(min(BUFFER, _free() // 4) // 4, dtype=np.float32)
    except MemoryError:
        return None
    best = 0.0
    parts = np.array_split(buffer, max(1, threads))
    with ThreadPoolExecutor(len(parts)) as pool:
        # Which is fastest depends on the processor and the build of numpy.
        for read in (np.max, np.sum, lambda part: np.dot(part, part)):
            for _ in range(_READS):
                started = perf_counter()
                list(pool.map(read, parts))
                best = max(best, buffer.nbytes / (perf_counter() - started))
    return best


def weight_bytes(model: Any) -> int | None:
    """Return the bytes of weights that a pass reads, None if ``model`` has no parameters and does not say it. An
    embedding table counts only if it is the output layer as well; else a pass looks up a few of its rows."""
    if model is None:
        return None
    if isinstance(model, Target):
        return model.weight_bytes
    total = sum(p.nbytes for p in model.parameters())  # shared ones are listed once
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    shared = head is not None and head.weight is embedding.weight
    return int(total if shared else total - embedding.weight.nbytes)


def _free() -> int:
    """Bytes that may be used without pushing others out; where nobody knows, enough for the whole buffer."""
    free = free_memory()
    return 4 * BUFFER if free is None else free
