"""One thread at a time: threads that write with one model share its target, its cache and its modules."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Guarded(Protocol):
    """A target, or a session of one."""

    @property
    def lock(self) -> Any:
        """The target's lock."""
        ...


G = TypeVar("G", bound=Guarded)


def locked(method: Callable[Concatenate[G, P], R]) -> Callable[Concatenate[G, P], R]:
    """Let a method of a target, or of its sessions, run while no other thread is in one."""

    @wraps(method)
    def guarded(self: G, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return guarded
