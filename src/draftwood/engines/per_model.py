"""What engines keep per model as long as it lives: one registry, safe in threads and in children of fork."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from draftwood.child_safe import ChildSafeLock

Record = TypeVar("Record")
Value = TypeVar("Value")

_MOST = 8  # values of a model; then the oldest is dropped


class PerModel(Generic[Record]):
    """A record per model (or target), made when first asked for. It must not refer to its model: it would leak."""

    def __init__(self, make: Callable[[], Record]) -> None:
        self._make, self._lock = make, ChildSafeLock()
        self._records: WeakKeyDictionary[Any, Record] = WeakKeyDictionary()

    def of(self, model: Any) -> Record:
        with self._lock:
            if model not in self._records:
                self._records[model] = self._make()
            return self._records[model]


class _Values:
    """Values of one model by key, each with what it was made from."""

    def __init__(self) -> None:
        self._lock = ChildSafeLock()
        self._known: dict[Any, tuple[Any, Any]] = {}

    def get(self, key: Any, origin: Any, make: Callable[[], Any]) -> Any:
        origin = (os.getpid(), origin)  # a child of fork makes its own: some hold locks of their target
        with self._lock:
            known = self._known.pop(key, None)
            if known is None or known[0] != origin:
                known = None  # frees what was made of another origin before its successor is made
                known = origin, make()
            if len(self._known) >= _MOST:
                del self._known[next(iter(self._known))]
            self._known[key] = known
            return known[1]


_values = PerModel(_Values)


def once(model: Any, key: Any, origin: Any, make: Callable[[], Value]) -> Value:
    """Return what was made for this key from an equal ``origin``, or make it. It is kept as long as ``model``, if
    it is among the last 8 of that model, and must not refer to it."""
    found: Value = _values.of(model).get(key, origin, make)
    return found
