"""Experts of gpt-oss and qwen3vlmoe in folders, as GGUF files have them: reordered when their rows are read.

Transformers keeps matrices of gpt-oss transposed, [experts, inputs, outputs], and the outputs of gate and up in
turns, gate first. In 4 bits they are not transposed: ``blocks`` uint8[experts, outputs, groups, 16] and ``scales``
uint8[experts, outputs, groups]. Byte j of a group has the inputs 2 j and 2 j + 1 there, and j and j + 16 in GGUF's
MXFP4, which has the scale before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.gguf_file import Stored, Tensor
from draftwood.engines.files.gguf_types import read_floats
from draftwood.errors import ModelError

Bytes = NDArray[np.uint8]
_PARTS = {"ffn_gate_up_exps": {"ffn_gate_exps": (0, 2), "ffn_up_exps": (1, 2)}, "ffn_down_exps": {"": (0, 1)}}
"""Of a tensor: the tensors in it, and which of its outputs each has: the first, and every so many."""


@dataclass(frozen=True, slots=True)
class _Some:
    """Some outputs of a tensor of all experts: every ``step`` from ``first`` on."""

    source: Tensor
    first: int
    step: int

    @property
    def shape(self) -> tuple[int, ...]:
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        return prod(self.shape)

    def among(self, outputs: int) -> int:
        """Return how many of so many outputs they are."""
        return len(range(self.first, outputs, self.step))

    def numbers(self, which: slice | NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the experts of rows, numbered through all of them, and which outputs they are in the source."""
        count, each = prod(self.shape[:-1]), self.shape[-2]
        rows = np.arange(*which.indices(count)) if isinstance(which, slice) else which
        return rows // each, self.first + self.step * (rows % each)


class _Transposed(_Some):
    """Of a tensor of floats [experts, inputs, outputs]."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        experts, inputs, outputs = self.source.shape
        return experts, self.among(outputs), inputs * (self.source.known.shape[-1] // outputs)

    def rows(self, which: slice | NDArray[np.intp]) -> Bytes:
        _, inputs, outputs = self.source.shape
        experts, places = self.numbers(which)
        found = []
        for some in np.split(np.arange(len(experts)), np.flatnonzero(np.diff(experts)) + 1):
            start = int(experts[some[0]]) * inputs
            raw = self.source.rows(slice(start, start + inputs)).reshape(inputs, outputs, -1)
            found.append(raw[:, places[some]].swapaxes(0, 1).reshape(len(some), -1))
        return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class _Repacked(_Some):
    """Of ``source``, the blocks uint8[experts, outputs, groups * 16], and their ``scales``; as MXFP4."""

    scales: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        experts, outputs, groups = self.scales.shape
        return experts, self.among(outputs), groups * 17

    def rows(self, which: slice | NDArray[np.intp]) -> Bytes:
        _, outputs, groups = self.scales.shape
        experts, places = self.numbers(which)
        rows = experts * outputs + places
        pairs = self.source.rows(rows).reshape(len(rows), groups, 16)
        codes = np.stack((pairs & 15, pairs >> 4), axis=-1).reshape(len(rows), groups, 32)
        found = np.empty((len(rows), groups, 17), np.uint8)
        found[..., 0] = self.scales.rows(rows)
        found[..., 1:] = codes[..., :16] | codes[..., 16:] << 4
        return found.reshape(len(rows), -1)


def as_gguf_has_them(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return all tensors of a model, those of experts in GGUF's order and under its names.

    Given are GGUF's names of the tensors as they are, with ``.blocks`` and ``.scales`` where it has no names.
    Raises `ModelError` for blocks without scales, or of another shape than theirs.
    """
    found = {}
    for name, tensor in tensors.items():
        start, _, ending = name.rpartition(".")
        start, _, part = start.rpartition(".")
        if part not in _PARTS:
            found[name] = tensor
        elif ending != "scales":
            for ours, (first, step) in _PARTS[part].items():
                full = f"{start}.{ours or part}.{'bias' if ending == 'bias' else 'weight'}"
                found[full] = _part(full, tensor, first, step, tensors.get(f"{start}.{part}.scales"))
    return found


def upright(tensors: Mapping[str, Tensor], width: int) -> dict[str, Tensor]:
    """Return all tensors of a model of this width, matrices of experts [experts, outputs, inputs].

    Published folders of qwen3vlmoe have them transposed, others, of the same type, have not: as in transformers,
    the shapes tell.
    """
    found = dict(tensors)
    for name, tensor in tensors.items():
        axis = {"ffn_gate_up_exps": 2, "ffn_down_exps": 1}.get(name.removesuffix(".weight").rpartition(".")[2], 0)
        if axis and len(tensor.shape) == 3 and tensor.shape[axis] != width == tensor.shape[3 - axis]:
            some = _Transposed(tensor, 0, 1)
            found[name] = Tensor(name, tensor.kind, (*some.shape[:-1], tensor.shape[1]), some)
    return found


def _part(name: str, tensor: Tensor, first: int, step: int, scales: Tensor | None) -> Tensor:
    """Return some outputs of a tensor under another name."""
    if name.endswith(".bias"):
        values = np.ascontiguousarray(read_floats(tensor.kind, tensor.data)[..., first::step])
        return Tensor(name, "F32", values.shape, values.view(np.uint8))
    if tensor.name.endswith(".weight") and len(tensor.shape) == 3:
        some = _Transposed(tensor, first, step)
        return Tensor(name, tensor.kind, (*some.shape[:-1], tensor.shape[1]), some)
    if scales is None or tensor.shape != (*scales.shape, 16) or {tensor.kind, scales.kind} != {"U8"}:
        raise ModelError(f"the weights {tensor.name} do not fit to their scales: get the model again")
    packed = _Repacked(_with_whole_rows(tensor), first, step, scales)
    return Tensor(name, "MXFP4", (*packed.shape[:-1], scales.shape[-1] * 32), packed)


def _with_whole_rows(blocks: Tensor) -> Tensor:
    """Return blocks with one axis for groups and their bytes."""
    shape, known = (*blocks.shape[:2], prod(blocks.shape[2:])), blocks.known
    if isinstance(known, Stored):
        return replace(blocks, shape=shape, _data=known._replace(shape=shape))
    return replace(blocks, shape=shape, _data=blocks.data.reshape(shape))
