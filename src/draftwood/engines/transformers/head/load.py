"""Finds out whether a head fits a target, and makes it ready to draft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.engines.heads.fitting import check_layers, check_model, shipped, usual
from draftwood.engines.heads.weights import HeadWeights, read_head
from draftwood.engines.trained import once, warn_of_other_weights
from draftwood.engines.transformers.head.network import HeadNetwork
from draftwood.engines.transformers.head.target import HeadTarget
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.engines.transformers.trained_files import check_finite, embedding_fingerprint, read_tensors
from draftwood.errors import CapabilityError


def head_of(target: Any, path: Path) -> HeadTarget:
    """Return the head in this file, ready to draft for a target; read once per target and file.

    Raises
    ------
    CapabilityError
        For targets that show no hidden states, and for a head that was made for another model.
    ModelError
        For a file that is no head.
    """
    if not isinstance(target, TransformersTarget) or not target.capabilities.hidden:
        raise CapabilityError(
            "head needs a model of transformers that shows its hidden states: use other drafters"
        )
    place = path / "model.safetensors" if path.is_dir() else path
    return once(target, place, lambda: fitted(target, read_head(place, read_tensors, check_finite), str(path)))


def shipped_head(target: Any) -> Path | None:
    """Return the head that comes with draftwood for this target; None where there is none."""
    if not isinstance(target, TransformersTarget) or not target.capabilities.hidden:
        return None
    embedding, _ = target.token_tables()
    return shipped(embedding_fingerprint(embedding))


def fitted(target: TransformersTarget, weights: HeadWeights, name: str = "this head") -> HeadTarget:
    """Return a head for a target; raises `CapabilityError` where it was made for another model."""
    embedding, rows = target.token_tables()
    layers = weights.shape.layers or usual_layers(target)
    check_model(name, weights.shape, (embedding.shape[1], embedding.shape[0], target.n_layers))
    check_layers(name, weights, layers, target.capabilities.hidden)
    if "lm_head.weight" not in weights.tensors and rows is None:
        raise CapabilityError(f"{name} scores tokens by the model's own weights, which were released: keep them")
    warn_of_other_weights(name, weights.target, embedding_fingerprint(embedding))
    network = HeadNetwork(HeadWeights(replace(weights.shape, layers=layers), weights.tensors), embedding, rows)
    ids = weights.ids().astype(np.int32)
    return HeadTarget(network, ids, layers, target.capabilities)


def usual_layers(target: TransformersTarget) -> tuple[int, ...]:
    """Return the layers whose input EAGLE-3 reads: the third, one in the middle, the third from the end."""
    return usual(target.n_layers)
