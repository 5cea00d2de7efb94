"""What computes the passes of a model that the user gave."""

from __future__ import annotations

from typing import Any

from draftwood.contracts import Target


def target_of(model: Any, *, now: bool = False) -> Target:
    """Return what computes a model's passes; ``now`` prepares a model of transformers, as it is at this moment."""
    if hasattr(model, "capabilities"):
        return model
    from draftwood.engines.transformers.shared import known_target, shared_target

    return shared_target(model) if now else known_target(model)
