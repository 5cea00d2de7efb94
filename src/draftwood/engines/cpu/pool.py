"""The threads that compute passes: the caller, and helpers that sleep while there is nothing to do."""

from __future__ import annotations

import ctypes
import os
from threading import Lock, Semaphore, Thread
from time import perf_counter, thread_time
from typing import Any

import numpy as np

from draftwood.engines.cpu.running import CONTROL, INSIDE, NUMBER, RECORD

_IDLE = 1200
"""Rounds for which a helper looks for the next pass before it sleeps: some hundred microseconds."""
_ALONE, _MOST_ALONE = 0.01, 0.6
"""Seconds from the beginning of a pass in which a thread has lost its core until helpers are called again: at
first, and at most where it happens again and again. After a pass that took longer, helpers are called at once."""
_LOST, _LOST_SHARE = 5e-4, 0.15
"""Seconds, and part of a pass, for which the caller may lose its core: where a helper takes it, more is lost."""
_core_time = perf_counter if os.name == "nt" else thread_time  # Windows counts in steps as long as passes


class Pool:
    """Threads for passes, one pass at a time; a pass that finds the pool in use is computed by its caller alone.

    Parameters
    ----------
    start, serve
        Addresses of the two functions of `draftwood.engines.cpu.running`.
    """

    def __init__(self, start: int, serve: int) -> None:
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        self._start = ctypes.CFUNCTYPE(integer, pointer, pointer, integer)(start)
        self._serve = ctypes.CFUNCTYPE(integer, pointer, integer, integer)(serve)
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
        self._number = 0
        self._alone = self._until = 0.0  # seconds without helpers the last time, and when they end
        self._dead: list[tuple[Any, ...]] = []

    def run(self, record: Any, threads: int) -> None:
        """Compute a pass, given the address of its record, with up to so many threads."""
        if self._lock.locked():  # another pass has the helpers
            self._compute_alone(record)
            return
        with self._lock:  # nothing else would be released by an interrupt at any place
            self._number = self._number % 0x7FFFFFFF + 1
            if threads == 1 or perf_counter() < self._until:
                self._compute_alone(record)
            else:
                self._compute_together(record, threads)
            if self._dead:
                self._drop()

    def _compute_together(self, record: Any, threads: int) -> None:
        """Compute a pass with helpers; if a thread has lost its core in it, the next passes go without."""
        self._wake(threads - 1)
        begun, used = perf_counter(), _core_time()
        was_late = self._start(self._address, record, self._number)
        whole = perf_counter() - begun
        was_late |= whole - (_core_time() - used) > max(_LOST, _LOST_SHARE * whole)
        if was_late:
            self._alone = min(_MOST_ALONE, max(_ALONE, 2 * self._alone))
            self._until = begun + self._alone
        else:
            self._alone /= 2

    def _compute_alone(self, record: Any) -> None:
        control = _lines(CONTROL)
        self._start(control.ctypes.data, record, 1)

    def _wake(self, count: int) -> None:
        while len(self._helpers) < count:
            self._helpers.append(_Helper(self._serve, self._control))
        for helper in self._helpers[:count]:
            helper.wake()

    def forget(self, *buffers: Any) -> None:
        """Keep buffers of earlier passes alive while a helper may read them.

        Never waits for a pass: the garbage collector may call this amid one, from its thread.
        """
        self._dead.append(buffers)
        if not self._lock.locked():  # else whoever computes a pass drops them behind it
            with self._lock:
                self._drop()

    def _drop(self) -> None:
        """Let go of buffers when all helpers have left; who has the lock calls this, behind a pass."""
        self._control[RECORD] = self._nobody.ctypes.data
        while self._control[INSIDE]:
            os.sched_yield() if hasattr(os, "sched_yield") else None
        self._dead.clear()


class _Helper:
    """A thread that takes pieces of passes."""

    def __init__(self, serve: Any, control: np.ndarray[Any, Any]) -> None:
        self._serve, self._control = serve, control
        self._asleep, self._bell = False, Semaphore(0)
        Thread(target=self._run, name="draftwood-pass", daemon=True).start()

    def wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self._bell.release()

    def _run(self) -> None:
        last, address = 0, self._control.ctypes.data
        while True:
            last = self._serve(address, last, _IDLE)
            self._asleep = True
            if self._control[NUMBER] != last:
                continue  # a pass came meanwhile; a bell rung for it wakes us once more for nothing
            self._bell.acquire()


def _lines(slots: int) -> np.ndarray[Any, Any]:
    """Return zeros that begin at a cache line; the view keeps its memory alive."""
    whole = np.zeros(slots + 8, dtype=np.int64)
    skip = -whole.ctypes.data % 64 // 8
    return whole[skip : skip + slots]
