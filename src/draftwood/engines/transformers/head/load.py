"""Finds out whether a head fits a target, and makes it ready to draft."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from draftwood.engines.transformers.head.network import HeadNetwork
from draftwood.engines.transformers.head.target import HeadTarget
from draftwood.engines.transformers.head.weights import HeadWeights, read_head
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.engines.transformers.trained_files import (
    embedding_fingerprint,
    once,
    refuse_other_model,
    warn_of_other_weights,
)
from draftwood.errors import CapabilityError

_SHIPPED = Path(__file__).with_name("shipped")


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
    return once(target, place, lambda: fitted(target, read_head(place), str(path)))


def shipped_head(target: Any) -> Path | None:
    """Return the head that comes with draftwood for this target; None where there is none."""
    if not isinstance(target, TransformersTarget) or not target.capabilities.hidden:
        return None
    embedding, _ = target.token_tables()
    return next(_SHIPPED.glob(f"*-{embedding_fingerprint(embedding)}.safetensors"), None)


def fitted(target: TransformersTarget, weights: HeadWeights, name: str = "this head") -> HeadTarget:
    """Return a head for a target; raises `CapabilityError` where it was made for another model."""
    embedding, rows = target.token_tables()
    shape = weights.shape
    layers = shape.layers or usual_layers(target)
    facts: Sequence[tuple[str, int, int]] = (
        ("hidden states of width", shape.width, embedding.shape[1]),
        ("a vocabulary of", shape.target_vocab, embedding.shape[0]),
        ("layers, in number", shape.target_layers or target.n_layers, target.n_layers),
    )
    refuse_other_model(name, "train-head", facts)
    if missing := set(layers) - set(target.capabilities.hidden):
        raise CapabilityError(f"{name} reads layers {sorted(missing)}, which this model does not show")
    if weights.tensors["fc.weight"].shape[1] != len(layers) * shape.width:
        raise CapabilityError(
            f"{name} reads another number of layers than {list(layers)}: its config.json names them"
        )
    if "lm_head.weight" not in weights.tensors and rows is None:
        raise CapabilityError(f"{name} scores tokens by the model's own weights, which were released: keep them")
    warn_of_other_weights(name, weights.target, embedding)
    network = HeadNetwork(HeadWeights(replace(shape, layers=layers), weights.tensors), embedding, rows)
    ids = weights.ids().numpy().astype(np.int32)
    return HeadTarget(network, ids, layers, target.capabilities)


def usual_layers(target: TransformersTarget) -> tuple[int, ...]:
    """Return the layers whose input EAGLE-3 reads: the third, one in the middle, the third from the end."""
    n = target.n_layers
    return tuple(sorted({min(2, n - 1), n // 2, max(0, n - 3)}))
