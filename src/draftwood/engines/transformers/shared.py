"""One target per model, shared by all calls: the cache arena and packed weights are made once."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from draftwood.engines.transformers.target import TransformersTarget

Fingerprint = tuple[tuple[int, int], ...]
_targets: WeakKeyDictionary[Any, tuple[Fingerprint, TransformersTarget]] = WeakKeyDictionary()


def shared_target(model: Any) -> TransformersTarget:
    """Return the target of this model; a new one if its weights were moved, converted or edited since.

    The target lives as long as the model does.
    """
    now = tuple((p.data_ptr(), p._version) for p in model.parameters())
    known = _targets.get(model)
    if known is None or known[0] != now:
        known = (now, TransformersTarget(model))
        _targets[model] = known
    return known[1]
