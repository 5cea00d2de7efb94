"""Finds the tensors of a model file, and plans how they are packed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.packing import Matrix, Rows, Slabs, SomeRows, matrix_of, plan
from draftwood.engines.cpu.program import Vector
from draftwood.engines.files.formats import FORMATS, padded
from draftwood.engines.files.gguf_file import GgufFile, Tensor
from draftwood.engines.files.gguf_types import FLOATS, dequantised, kind_of, read_blocks, read_floats
from draftwood.engines.files.hub_model import HubModel
from draftwood.engines.files.shapes import Shape
from draftwood.errors import ModelError


class Tensors:
    """The tensors of a file. ``becomes`` is the type that matrices of floats become, as of `weights.Weights`.

    ``parts`` are what `packing` fills in, ``read`` the names of the tensors that were asked for.
    """

    def __init__(self, file: GgufFile | HubModel, kernels: Kernels, becomes: str | None) -> None:
        self.file, self._kernels, self._becomes = file, kernels, becomes
        self.read: set[str] = set()
        self.parts: list[SomeRows] = []
        self._slabs = Slabs()
        self._origins: dict[int, tuple[Tensor | list[Tensor], Rows]] = {}  # by ``id(matrix)``

    def tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of this shape, of any where none is given; raises `ModelError` where there is none."""
        found, path = self.file.tensors.get(name), self.file.path
        if found is None:
            raise ModelError(f"{path} has no tensor {name}: get it again, or take another engine")
        self.read.add(name)
        if shape and found.shape != shape:
            raise ModelError(f"{name} in {path} has the shape {found.shape}, not {shape}: get the file again")
        return found

    def kind(self, tensor: Tensor) -> str:
        """Return the type in which a tensor is kept in memory."""
        return kind_of(tensor, self._becomes)

    def matrix(self, tensor: Tensor | list[Tensor], outputs: int, rows: Rows = None) -> Matrix:
        """Return some rows of a matrix, or of each expert's, to be packed; None: all of them."""
        first = tensor if isinstance(tensor, Tensor) else tensor[0]
        kind = self.kind(first)
        packed, parts = plan(tensor, rows, self._slabs.zeros, kind, self._scales(tensor))
        self.parts += parts
        matrix = matrix_of(kind, packed, outputs, first.shape[-1], self._kernels)
        self._origins[id(matrix)] = tensor, rows
        return matrix

    def _scales(self, tensor: Tensor | list[Tensor]) -> list[float]:
        """Return what the file multiplies weights by beside the scales of their blocks: of each expert, or of all.

        Only types that are ``floating`` have such a tensor. Another one is for inputs that become 4 bits; here
        they become 8.
        """
        if not isinstance(tensor, Tensor):
            return [scale for one in tensor for scale in self._scales(one)]
        start = tensor.name.removesuffix("weight")
        self.read.add(f"{start}input_scale")
        if tensor.kind not in FORMATS or not FORMATS[tensor.kind].floating:
            return [1.0]
        if f"{start}scale" not in self.file.tensors:
            return [1.0]
        count = prod(self.tensor(f"{start}scale").shape)
        found = self.flat(f"{start}scale", count if count == prod(tensor.shape[:-2]) else 1)[:count]
        if not np.isfinite(found).all():
            raise ModelError(f"{start}scale in {self.file.path} has infinite numbers: get the file again")
        return [float(one) for one in found]

    def vector(self, name: str, size: int) -> Vector:
        """Return a vector, padded with zeros to a multiple of 32."""
        return self.vectors(name, (size,))

    def vectors(self, name: str, shape: tuple[int, ...]) -> Vector:
        """Return vectors, of a tensor of this shape, each padded with zeros to a multiple of 32."""
        tensor = self.tensor(name)
        return self._vectors(tensor, shape, fits=tensor.shape in (shape, (1, *shape)))

    def flat(self, name: str, size: int) -> Vector:
        """Return a vector whose axes files have written in several ways, padded with zeros to a multiple of 32."""
        tensor = self.tensor(name)
        return self._vectors(tensor, (size,), fits=prod(tensor.shape) == size)

    def _vectors(self, tensor: Tensor, shape: tuple[int, ...], *, fits: bool) -> Vector:
        if not fits or tensor.kind not in FLOATS:
            floats = " x ".join(map(str, shape))
            raise ModelError(
                f"{tensor.name} in {self.file.path} is {tensor.kind} {tensor.shape}, not {floats} floats: "
                "get the file again"
            )
        found = np.zeros((*shape[:-1], padded(shape[-1])), dtype=np.float32)
        found[..., : shape[-1]] = read_floats(tensor.kind, tensor.data).reshape(shape)
        if np.isnan(found).any():  # else scores might be finite, but wrong: by a NaN a router chooses any expert
            raise ModelError(
                f"{tensor.name} in {self.file.path} has numbers that are none (NaN): get the file again"
            )
        return found

    def floats(self, matrix: Matrix, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return a matrix as its file has it, in the order of its outputs, as float32[outputs, inputs].

        ``rows``, numbers of tokens, only for embedding and scores. Not for matrices of experts, nor of a model in
        memory.
        """
        tensor, order = self._origins[id(matrix)]
        assert isinstance(tensor, Tensor)
        order = slice(None) if order is None else order
        return self.numbers(tensor, order if rows is None else rows)

    def numbers(self, tensor: Tensor, rows: slice | NDArray[np.intp]) -> NDArray[np.float32]:
        """Return some rows of a tensor as floats."""
        raw, kind = tensor.rows(rows), tensor.kind
        if kind in FORMATS:
            return dequantised(read_blocks(kind, raw, self._scales(tensor)[0]), FORMATS[kind])
        return read_floats(kind, raw)

    def reader(self, tensor: Tensor) -> Callable[[NDArray[np.intp]], NDArray[np.float32]]:
        """Return what reads rows of a matrix that stays in its file, as float32; raises as `check_unchanged`."""

        def read(rows: NDArray[np.intp]) -> NDArray[np.float32]:
            self.file.check_unchanged()
            return self.numbers(tensor, rows)

        return read

    def forget(self) -> None:
        """Let go of the tensors of a model in memory, whose weights the caller may free."""
        self.file.tensors.clear()
        self._origins.clear()


class LayerTensors:
    """The tensors of one layer, by GGUF's names without ``blk.N.`` and ``.weight``."""

    def __init__(self, tensors: Tensors, layer: int, shape: Shape) -> None:
        self._every, self._start, self._shape = tensors, f"blk.{layer}.", shape

    @property
    def halves(self) -> bool:
        """Whether numbers that rotate together lie ``rotary / 2`` apart in any family."""
        return self._every.file.halves

    def _name(self, name: str) -> str:
        return f"{self._start}{name}.weight"

    def __contains__(self, name: str) -> bool:
        return self._name(name) in self._every.file.tensors

    def pass_over(self, *names: str) -> None:
        """Take these tensors for known, where there are any, though no pass reads them."""
        self._every.read |= {self._name(name) for name in names}

    def shape_of(self, name: str) -> tuple[int, ...]:
        return self._every.tensor(self._name(name)).shape

    def part(self, name: str, shape: tuple[int, ...], rows: Rows = None) -> Matrix:
        """Return a matrix [outputs, inputs], or one for each expert, or some of its ``rows``."""
        tensor = self._every.tensor(self._name(name), *shape)
        outputs = len(rows) if isinstance(rows, np.ndarray) else shape[-2]
        return self._every.matrix(tensor, outputs, rows)

    def of_heads(self, name: str, shape: tuple[int, int, int], rows: NDArray[np.intp]) -> Matrix:
        """Return a matrix for each head, some of its ``rows``; ``shape`` is [heads, outputs, inputs].

        The tensor has that shape, or the outputs of all heads after one another.
        """
        full, joined = self._name(name), (shape[0] * shape[1], shape[2])
        tensor = self._every.tensor(full)
        if tensor.shape != shape:
            tensor = self._every.tensor(full, *joined).reshaped(shape)
        return self._every.matrix(tensor, len(rows), rows)

    def transposed(self, name: str, shape: tuple[int, int, int], some: slice) -> Matrix:
        """Return some rows of each head's matrix, transposed, in floats; ``shape`` is [heads, outputs, inputs]."""
        full = self._name(name)
        tensor = self._every.tensor(full, shape[0] * shape[1], shape[2])
        values = self._every.numbers(tensor, slice(None)).reshape(shape)[:, some].swapaxes(1, 2)
        turned = np.ascontiguousarray(values)
        made = Tensor(full, "F32", turned.shape, turned.view(np.uint8))
        return self._every.matrix(made, turned.shape[1])

    def halves_of(self, name: str, shape: tuple[int, ...], end: str = "") -> dict[str, Matrix]:
        """Return gate and up of a tensor that has both; ``end`` is of their names."""
        both, inner = self._every.tensor(self._name(name), *shape), shape[-2] // 2
        parts = {f"ffn_gate{end}": slice(0, inner), f"ffn_up{end}": slice(inner, 2 * inner)}
        return {part: self._every.matrix(both, inner, rows) for part, rows in parts.items()}

    def joined(self, names: Sequence[str], shape: tuple[int, int]) -> Matrix:
        """Return the matrices of all experts, one tensor each."""
        tensors = [self._every.tensor(self._name(name), *shape) for name in names]
        return self._every.matrix(tensors, shape[0])

    def vector(self, name: str, size: int, ending: str = ".weight") -> Vector:
        return self._every.vector(f"{self._start}{name}{ending}", size)

    def floats(self, name: str, shape: tuple[int, int]) -> NDArray[np.float32]:
        """Return a small matrix of floats, which may have axes of one number, too."""
        tensor = self._every.tensor(self._name(name))
        if tuple(size for size in tensor.shape if size != 1) != shape or tensor.kind not in FLOATS:
            raise ModelError(
                f"{name} is {tensor.kind} {tensor.shape}, not {shape} floats: get the file of the model again"
            )
        found = read_floats(tensor.kind, tensor.data).reshape(shape)
        if not np.isfinite(found).all():
            raise ModelError(f"{tensor.name} has numbers that are infinite or none (NaN): get the file again")
        return found

    def flat(self, name: str, size: int, ending: str = ".weight") -> Vector:
        """Return a vector whose axes files have written in several ways."""
        return self._every.flat(f"{self._start}{name}{ending}", size)

    def norms(self, before: str, after: str) -> dict[str, Vector]:
        """Return the norms around a block that the family has, of these names; files may have another one."""
        family = self._shape.family
        names = {"before": (before,), "after": (after,), "both": (before, after)}[family.norms]
        files = {"ffn_norm": family.unit_norm}
        found = {}
        for name in names:
            own = files.get(name, name)
            is_bare = f"{self._start}{own}" in self._every.file.tensors  # in files of falcon-h1
            found[name] = self.vector(own, self._shape.width, "" if is_bare else ".weight")
        return found

    def has_bias(self, name: str) -> bool:
        return f"{self._start}{name}.bias" in self._every.file.tensors

    def bias(self, name: str, size: int) -> Vector:
        return self.vector(name, size, ".bias")

    def biases(self, name: str, shape: tuple[int, int]) -> Vector:
        """Return the biases of all experts, float32[experts, outputs padded to a multiple of 32]."""
        return self._every.vectors(f"{self._start}{name}.bias", shape)
