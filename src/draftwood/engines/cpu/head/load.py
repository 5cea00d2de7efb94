"""Finds out whether a head fits a model of the CPU engine, and makes it ready to draft."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS
from draftwood.engines.cpu.gguf_file import Tensor
from draftwood.engines.cpu.gguf_types import dequantised, read_codes, read_floats
from draftwood.engines.cpu.head.target import HeadTarget
from draftwood.engines.cpu.head.weights import PackedHead
from draftwood.engines.cpu.quantising import bfloat16_bits
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.heads.fitting import check_fit, fingerprint_of, fingerprint_rows, head_in, shipped
from draftwood.engines.heads.weights import HeadWeights


def head_of(target: CpuTarget, path: Path) -> HeadTarget:
    """Return the head in this file, ready to draft for a target; read once per target and file.

    Raises `CapabilityError` for a head that was made for another model, `ModelError` for a file that is no head.
    """
    return head_in(path, target, lambda weights, name: fitted(target, weights, name))


def shipped_head(target: CpuTarget) -> Path | None:
    """Return the head that comes with draftwood for this target; None where there is none."""
    return shipped(fingerprint(target))


def fitted(target: CpuTarget, weights: HeadWeights, name: str = "this head") -> HeadTarget:
    """Return a head for a target; raises `CapabilityError` where it was made for another model."""
    model = target.model
    shape = model.weights.shape
    sizes = (shape.width, shape.vocabulary, shape.layers)
    layers = check_fit(name, weights, sizes, target.capabilities.hidden, fingerprint(target))
    packed = PackedHead(weights, model.weights, model.kernels)
    ids = weights.ids().astype(np.int32)
    return HeadTarget(packed, model.kernels, model.threads, ids, layers, target.capabilities)


def fingerprint(target: CpuTarget) -> str:
    """Return the fingerprint of a target's weights, the same as of the model of transformers made of its file."""
    tensor = target.model.weights.file.tensors["token_embd.weight"]
    return fingerprint_of(bfloat16_bits(_rows(tensor, fingerprint_rows(int(tensor.shape[0])))))


def _rows(tensor: Tensor, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    raw = np.ascontiguousarray(tensor.data[rows])
    if tensor.kind in FORMATS:
        return dequantised(read_codes(tensor.kind, raw), FORMATS[tensor.kind])
    return read_floats(tensor.kind, raw)
