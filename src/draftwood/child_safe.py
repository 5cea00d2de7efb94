"""A lock that is free in a child of fork, where the thread that held it does not exist."""

from __future__ import annotations

import os
from threading import RLock
from weakref import WeakSet


class ChildSafeLock(type(RLock())):  # type: ignore[misc] # `RLock` itself makes objects of a class in C
    """A reentrant lock for ``with``; a child of fork gets a free one, unless it was forked within the block.

    ``with`` enters and leaves it in C, so Ctrl-C cannot come in between and leave it held: in Python it could.
    """

    def __init__(self) -> None:
        _every.add(self)

    @property
    def is_mine(self) -> bool:
        """Whether this thread holds it."""
        return bool(self._is_owned())  # as `threading.Condition` asks


_every: WeakSet[ChildSafeLock] = WeakSet()


def _renew_in_child() -> None:
    for lock in list(_every):
        if not lock.is_mine:  # its block goes on in the child, and ends there
            lock._at_fork_reinit()  # as `threading` does with its own


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_in_child)
