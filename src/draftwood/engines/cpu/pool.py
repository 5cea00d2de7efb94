"""The threads that compute passes: the caller, and helpers that sleep while there is nothing to do."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from functools import cache
from threading import Lock, Semaphore, Thread
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from draftwood.engines.cpu.code.kernels import kernels
from draftwood.engines.cpu.code.running import CONTROL, NUMBER, POOL, RUNNING

_LOG = logging.getLogger("draftwood")

_IDLE = 5000
"""Rounds in which a helper looks for the next pass before it sleeps: 2 ms, so it stays awake through drafting."""
_ALONE, _MOST_ALONE = 0.01, 0.6
"""After a thread lost its core in a pass, passes that begin within so many seconds have no helpers: 0.01 after the
first time, twice as long after each further time, at most 0.6."""
_LOST, _LOST_SHARE = 5e-4, 0.15
"""Seconds, and share of a pass, for which the caller may lose its core before passes go on without helpers."""
_core_time = perf_counter if os.name == "nt" else thread_time  # Windows counts in steps as long as passes


Start = Callable[[int, int, int, int], int]
"""Takes control, record, number and threads, as ``start`` of `draftwood.engines.cpu.code.running` does."""


class Pool:
    """Threads for passes, one pass at a time; a pass that finds the pool in use is computed by its caller alone.

    ``start``, ``serve`` and ``settle`` are the addresses of functions of `draftwood.engines.cpu.code.running`.
    """

    def __init__(self, start: int, serve: int, settle: int) -> None:
        self.start = start
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._start = ctypes.CFUNCTYPE(integer, pointer, pointer, integer, integer)(start)
        self._serve = ctypes.CFUNCTYPE(integer, pointer, integer, integer, integer)(serve)
        self._settle = ctypes.CFUNCTYPE(None, pointer, pointer)(settle)
        self._lock = Lock()
        self._forget_threads()
        os.register_at_fork(after_in_child=self._forget_threads) if hasattr(os, "register_at_fork") else None

    def _forget_threads(self) -> None:
        """Begin without helpers, as in a child process, which has none of its parent's threads."""
        self._lock = Lock()
        self._control = _lines(CONTROL)
        self._address = self._control.ctypes.data
        self._nobody = np.zeros(64, dtype=np.int64)  # a pass without phases
        self._helpers: list[_Helper] = []
        self._number, self._most = 0, POOL
        self._alone = self._until = 0.0  # how long helpers were not called the last time, and until when
        self._dead: list[tuple[Any, ...]] = []

    def run(self, record: Any, threads: int, start: Start | None = None, passes: int = 1) -> None:
        """Compute a pass, given the address of its record, with up to so many threads, at most `POOL`.

        Another ``start`` may run up to ``passes`` passes, whose numbers follow one another."""
        start = start or self._start
        if self._lock.locked():  # another pass has the helpers
            self._compute_alone(record, start)
            return
        with self._lock:  # nothing but ``with`` releases it after an interrupt at any place
            first = self._number % 0x7FFFFFFF + 1
            self._number = first + passes - 1
            if threads == 1 or perf_counter() < self._until:
                self._compute_alone(record, start)
            else:
                self._compute_together(record, threads, start, first)
            if self._dead:
                self._drop()

    def _compute_together(self, record: Any, threads: int, start: Start, first: int) -> None:
        """Compute a pass with helpers; if a thread loses its core meanwhile, the next passes have none."""
        threads = self._wake(threads)
        begun, used = perf_counter(), _core_time()
        was_late = start(self._address, record, first, threads)
        whole = perf_counter() - begun
        was_late |= whole - (_core_time() - used) > max(_LOST, _LOST_SHARE * whole)
        if was_late:
            self._alone = min(_MOST_ALONE, max(_ALONE, 2 * self._alone))
            self._until = begun + self._alone
        else:
            self._alone /= 2

    def _compute_alone(self, record: Any, start: Start) -> None:
        control = _lines(CONTROL)
        start(control.ctypes.data, record, 1, 1)

    def _wake(self, threads: int) -> int:
        """Wake helpers for a pass of so many threads; returns how many there are, with the caller."""
        threads = min(threads, self._most)
        try:
            while len(self._helpers) < threads - 1:
                self._helpers.append(_Helper(self._serve, self._control, 1 + len(self._helpers)))
        except RuntimeError:
            threads = self._most = 1 + len(self._helpers)
            _LOG.warning("no further thread is to be had: passes run on %d", threads)
        for helper in self._helpers[: threads - 1]:
            helper.wake()
        return threads

    def forget(self, *buffers: Any) -> None:
        """Keep buffers of earlier passes alive while a helper may read them.

        Never waits for a pass: the garbage collector may call this from the thread that computes one.
        """
        self._dead.append(buffers)
        if not self._lock.locked():  # else the thread that computes a pass drops them after it
            with self._lock:
                self._drop()

    def _drop(self) -> None:
        """Free the buffers when no helper is within a pass; called with the lock held, after a pass."""
        self._settle(self._address, self._nobody.ctypes.data)
        self._dead.clear()


class _Helper:
    """A thread that takes pieces of passes."""

    def __init__(self, serve: Any, control: np.ndarray[Any, Any], thread: int) -> None:
        self._serve, self._control, self._thread = serve, control, thread
        self._asleep, self._bell = False, Semaphore(0)
        Thread(target=self._run, name="draftwood-pass", daemon=True).start()

    def wake(self) -> None:
        if self._asleep:  # only the helper sets it: an interrupt here cannot lose a wake-up
            self._bell.release()

    def _run(self) -> None:
        last, address = 0, self._control.ctypes.data
        while True:
            last = self._serve(address, self._thread, last, _IDLE)
            self._asleep = True
            if self._control[NUMBER] == last:  # else another pass has begun
                self._bell.acquire()
                while self._bell.acquire(blocking=False):
                    pass  # wake-ups for passes that ended before this thread got a core
            self._asleep = False


def _lines(slots: int) -> np.ndarray[Any, Any]:
    """Return zeros that begin at a cache line; the view keeps its memory alive."""
    whole = np.zeros(slots + 8, dtype=np.int64)
    skip = -whole.ctypes.data % 64 // 8
    return whole[skip : skip + slots]


@cache
def pass_threads() -> Pool:
    """Return the threads of this process, which all models share."""
    return new_pool()


def new_pool() -> Pool:
    """Return threads of its own."""
    every = kernels()
    return Pool(*(every.function(RUNNING, name) for name in ("start", "serve", "settle")))
