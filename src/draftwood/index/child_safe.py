"""A lock that is free in a child of fork, where the thread that held it does not exist."""

from __future__ import annotations

import os
from contextlib import suppress
from threading import RLock
from weakref import WeakSet


class ChildSafeLock:
    """A reentrant lock for ``with``; a child of fork gets a free one."""

    def __init__(self) -> None:
        self._lock = RLock()
        _every.add(self)

    def acquire(self, seconds: float) -> bool:
        """Wait so long at most; whether it is held now. ``__exit__`` gives it back."""
        return self._lock.acquire(timeout=max(0.0, seconds))

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined] # as `threading.Condition` asks

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        with suppress(RuntimeError):  # of a child of fork that was forked within the block: its lock is a new one
            self._lock.release()


_every: WeakSet[ChildSafeLock] = WeakSet()


def _renew_in_child() -> None:
    for lock in list(_every):
        lock._lock = RLock()  # free, whichever thread held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
