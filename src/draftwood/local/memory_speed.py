"""How fast this machine reads its memory, measured once and kept: each token reads the weights of a model."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter

import numpy as np

from draftwood.local.crowding import Others
from draftwood.local.findings import remember, remembered
from draftwood.local.machine import cores, free_memory, machine

_MOST = 1 << 30  # bytes that are read at a time, more than caches hold
_LEAST = 1 << 22
_TIMES = 6  # of which the quickest counts: other programs only slow it down


def memory_speed(threads: int) -> int:
    """Return how many bytes per second so many threads read together; the first call takes half a second.

    What is measured while other programs take the processor is not kept.
    """
    found = known_speed(threads)
    if not found:
        size = max(_LEAST, min(_MOST, (free_memory() or _MOST) // 4))
        others = Others()
        found = measured(threads, size)
        if not others.busy(threads):
            remember(_key(threads), found)
    return found


def measure_early() -> None:
    """Measure it for all cores, where it is not known, so that the first session can say what to expect; for the
    moment when a model was brought, which nothing that goes wrong here may undo."""
    with suppress(Exception):
        memory_speed(cores())


def known_speed(threads: int) -> int | None:
    """Return the same without measuring it; None where it is not known."""
    return remembered(_key(threads)) or None


def _key(threads: int) -> str:
    return f"memory speed|{machine()}|{threads}"


def measured(threads: int, size: int, clock: Callable[[], float] = perf_counter) -> int:
    """Return the same, measured on ``size`` bytes; ``clock`` tells seconds."""
    words = np.ones(size // 8, np.uint64)
    parts = np.array_split(words, threads)
    seconds = []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(_TIMES):
            begun = clock()
            list(pool.map(np.bitwise_or.reduce, parts))  # lets other threads run meanwhile
            seconds.append(clock() - begun)
    return round(words.nbytes / max(min(seconds), 1e-9))
