"""What planners have learnt about a target, kept as long as the target lives."""

from __future__ import annotations

from contextlib import suppress
from typing import Any
from weakref import ref

from draftwood.contracts import Target
from draftwood.planning.learned import Learned

_KNOWN: dict[int, tuple[ref[Target], Learned]] = {}


def learned(target: Target, model: Any) -> Learned:  # noqa: ARG001 - D
    """Return what was learnt with this very target; forgotten with it."""
    key = id(target)
    known = _KNOWN.get(key)
    if known is not None and known[0]() is target:
        return known[1]
    fresh = Learned()
    with suppress(TypeError):  # it takes no weak references
        _KNOWN[key] = ref(target, lambda _: _KNOWN.pop(key, None)), fresh
    return fresh
