"""What engines share that draft by the target's own weights: which layers are meant, and one copy per choice."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from draftwood.errors import UsageError
from draftwood.index.child_safe import ChildSafeLock

Made = TypeVar("Made")

_made: WeakKeyDictionary[Any, dict[Any, tuple[Any, Any]]] = WeakKeyDictionary()
"""Per target or model, what was made of it to draft by, with what it was made from: by its layers or its bits."""
if hasattr(os, "register_at_fork"):  # twins share their target's lock, which is another one in a child
    os.register_at_fork(after_in_child=_made.clear)
_MOST = 8  # of them per target; then the oldest is dropped
_lock = ChildSafeLock()


def once(target: Any, key: Any, origin: Any, make: Callable[[], Made]) -> Made:
    """Return what was made for this key from an equal ``origin``, or make it.

    It lives as long as ``target``, and must not hold it.
    """
    with _lock:
        known = _made.setdefault(target, {})
        made = known.pop(key, None)
        if made is None or made[0] != origin:
            made = None  # frees what was made of another origin before its successor is made
            made = origin, make()
        if len(known) >= _MOST:
            del known[next(iter(known))]
        known[key] = made
        found: Made = made[1]
        return found


def read_layers(text: str, layers: int) -> tuple[int, ...]:
    """Return the indices that `early_exit` describes, ascending; raises `UsageError` for what cannot be read."""
    text = text.strip()
    if not text:
        return tuple(range(max(1, layers // 2)))
    if re.fullmatch(r"\d+", text):
        ranges = [(0, _number(text, layers) - 1)]
    elif re.fullmatch(r"\d+(-\d+)?(\.\d+(-\d+)?)*", text):
        parts = [part.partition("-") for part in text.split(".")]
        ranges = [(_number(low, layers), _number(high or low, layers)) for low, _, high in parts]
    else:
        raise UsageError(f"early-exit: layers must be a number or ranges like 0-9.20-29, not {text!r:.80}")
    inside = all(last < layers for _, last in ranges)  # so that no list is longer than the model
    chosen = sorted({i for first, last in ranges for i in range(first, last + 1)}) if inside else []
    if not chosen or len(chosen) == layers:
        raise UsageError(
            f"early-exit: layers={text:.80} is outside the model: it has {layers} layers, 0 to {layers - 1}, and "
            f"at most {layers - 1} of them can draft"
        )
    return tuple(chosen)


def _number(digits: str, layers: int) -> int:
    """Return a number, or one that is too large where it has more digits than a number of layers has."""
    return int(digits) if len(digits) < 10 else layers + 1


def write_layers(layers: Sequence[int]) -> str:
    """Return layers, ascending, as `read_layers` reads them: ``20`` for the first twenty, else ``0-9.20-29``."""
    chosen = list(layers)
    if chosen == list(range(len(chosen))):
        return str(len(chosen))
    parts: list[list[int]] = []
    for layer in chosen:
        if parts and parts[-1][-1] == layer - 1:
            parts[-1].append(layer)
        else:
            parts.append([layer])
    text = ".".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
    return text if len(chosen) > 1 else f"{text}-{text}"  # a single number would be the first so many
