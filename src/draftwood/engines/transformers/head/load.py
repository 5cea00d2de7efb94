"""Finds out whether a head fits a target, and makes it ready to draft."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from draftwood.engines.heads.fitting import check_fit, fingerprint_of, fingerprint_rows, head_in, shipped
from draftwood.engines.heads.weights import HeadWeights
from draftwood.engines.transformers.head.network import HeadNetwork
from draftwood.engines.transformers.head.target import TorchHead
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError


def head_of(target: TransformersTarget, path: Path) -> TorchHead:
    """Return the head in this file, ready to draft for a target; read once per target and file. Raises
    `CapabilityError` for a head that was made for another model, `ModelError` for a file that is no head."""
    return head_in(path, target, lambda weights, name: fitted(target, weights, name))


def shipped_head(target: TransformersTarget) -> Path | None:
    """Return the head that comes with draftwood for this target; None where there is none."""
    return shipped(embedding_fingerprint(target.token_tables()[0]))


def fitted(target: TransformersTarget, weights: HeadWeights, name: str = "this head") -> TorchHead:
    """Return a head for a target; raises `CapabilityError` where it was made for another model."""
    embedding, rows = target.token_tables()
    sizes, own = (embedding.shape[1], embedding.shape[0], target.n_layers), embedding_fingerprint(embedding)
    layers = check_fit(name, weights, sizes, target.capabilities.hidden, own)
    if "lm_head.weight" not in weights.tensors and rows is None:
        raise CapabilityError(f"{name} scores tokens by the model's own weights, which were released: keep them")
    network = HeadNetwork(HeadWeights(replace(weights.shape, layers=layers), weights.tensors), embedding, rows)
    ids = weights.ids().astype(np.int32)
    return TorchHead(network, ids, layers, target.capabilities)


def embedding_fingerprint(embedding: Tensor) -> str:
    """Return the fingerprint of a model with this embedding [vocab, width], in whatever number format."""
    rows = torch.from_numpy(fingerprint_rows(len(embedding))).to(embedding.device)
    values = embedding.detach()[rows].to("cpu", torch.bfloat16).contiguous()
    return fingerprint_of(values.view(torch.int16).numpy())
