"""A model's weights in memory: matrices packed for the products, vectors as float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.packing import Matrix, Slabs, SomeRows, matrix_of, packing, plan
from draftwood.engines.files.formats import FORMATS, GROUP
from draftwood.engines.files.gguf_file import GgufFile, Tensor, check_writes
from draftwood.engines.files.gguf_types import FLOATS, dequantised, growth, kind_of, read_blocks, read_floats
from draftwood.engines.files.hub_model import HubModel, read_folder
from draftwood.engines.files.shapes import shape_of
from draftwood.errors import ModelError, UnsupportedModelError, UsageError
from draftwood.local.machine import cores, free_memory

Vector = NDArray[np.float32]
Report = Callable[[int, int], None]  # takes bytes that are packed, and bytes in all

_NEEDLESS = ("attn_rot_embd",)  # tensors of a layer that files may have but no pass reads


def opened(path: Path) -> GgufFile | HubModel:
    """Return a GGUF file, or a folder that transformers reads.

    Raises what these raise, and `check_writes`.
    """
    if path.is_dir():
        return read_folder(path)
    file = GgufFile(path)
    check_writes(path, file.metadata.get)
    return file


class Weights:
    """The weights of a GGUF file, or of a folder that transformers reads, filled in by `packed`.

    ``source`` is the path of either, or what was opened already; ``report`` takes bytes that are packed, and bytes
    in all. Matrices of floats become ``"int4"`` (embedding and scores ``"int8"``), ``"int8"``, ``"bfloat16"`` or
    ``"float16"``, or stay as they are (``becomes`` None).

    ``embedding`` and ``output`` are [vocabulary, width], the same one where the file has no second. ``matrices``
    and ``vectors`` are those of each layer, by the names that GGUF gives them without ``.weight``: ``attn_q``,
    ``attn_q.bias``; of mixtures the matrices of all experts as ``ffn_gate``, ``ffn_up`` and ``ffn_down``. Vectors
    are padded with zeros to a multiple of 32. ``factors`` divide frequencies of rotary positions.

    Raises `UnsupportedModelError` for models or types that this engine does not run, `ModelError` for files whose
    tensors do not fit together, `UsageError` where there are no floats that could become ``becomes``.
    """

    def __init__(
        self, source: Path | GgufFile | HubModel, kernels: Kernels, report: Report | None = None,
        becomes: str | None = None,
    ) -> None:  # fmt: skip
        self.file, self._kernels = opened(source) if isinstance(source, Path) else source, kernels
        self.path, self._becomes = self.file.path, becomes
        tensors = self.file.tensors
        self._read: set[str] = set()
        self.shape = shape_of(self.file.metadata, prod(self._tensor("token_embd.weight").shape[:1]))
        self._report, self._done = report or (lambda _done, _all: None), 0
        self._all = self.file.size + sum(growth(one, self._kind(one)) for one in tensors.values())
        if becomes in ("int4", "int8") and not any(self._kind(one) != one.kind for one in tensors.values()):
            raise UsageError(f"{self.path} has no floats that could become {becomes}: leave weights out")
        need, free = self._all, free_memory(swap=True)
        if free is not None and need > free:
            raise ModelError(
                f"{self.path} needs {need / 1e9:.1f} GB of memory and {free / 1e9:.1f} GB are free: take a "
                "smaller file, or end other programs"
            )
        self._slabs = Slabs()
        self.vectors: list[dict[str, Vector]] = []
        self.matrices: list[dict[str, Matrix]] = []
        self._parts: list[SomeRows] = []
        self._origins: dict[int, tuple[Tensor | list[Tensor], Any]] = {}  # by ``id(matrix)``
        sizes = self.shape.vocabulary, self.shape.width
        self.embedding = self._matrix("token_embd.weight", *sizes)
        has_output = "output.weight" in tensors
        self.output = self._matrix("output.weight", *sizes) if has_output else self.embedding
        for layer in range(self.shape.layers):
            start = f"blk.{layer}."
            matrices, queries = self._attention(start), self.shape.heads * self.shape.head_size
            matrices["attn_output"] = self._matrix(f"{start}attn_output.weight", self.shape.width, queries)
            unit = self._mixture(start) if self.shape.experts else self._gated_unit(start)
            self.matrices.append(matrices | unit)
            self.vectors.append(self._layer_vectors(start))
        self.last_norm = self._vector(f"{self.shape.family.last_norm}.weight", self.shape.width)
        self.factors = self._factors()
        for name in tensors:
            if name not in self._read and not set(name.split(".")) & set(_NEEDLESS):
                raise UnsupportedModelError(
                    f"the CPU engine does not know the tensor {name} of {self.path.name}: take another engine"
                )

    @contextmanager
    def packed(self) -> Iterator[None]:
        """Run a block while threads fill the matrices in; until its end they hold zeros.

        `ModelError` where the file was written to meanwhile.
        """
        self._all = sum(part.tiles.nbytes for part in self._parts)
        with packing(self._parts, min(8, cores()), self._count):
            yield
        self._parts = []
        self.file.check_unchanged()
        if not self.file.files:  # a model in memory, whose weights the caller may free
            self.file.tensors.clear()
            self._origins.clear()

    def _factors(self) -> Vector | None:
        """Return the factors for texts of the lengths that the file allows: see `Shape.is_long`."""
        found = {}
        for name in ("rope_freqs", "rope_factors_long", "rope_factors_short"):
            if f"{name}.weight" in self.file.tensors:
                pairs = self.shape.rotary // 2
                factors = found[name] = self._vector(f"{name}.weight", pairs)[:pairs]
                if not np.all(np.isfinite(factors) & (factors > 0)):
                    raise ModelError(
                        f"{name}.weight in {self.path} has factors that are not positive: get the file again"
                    )
        lengths = "long" if self.shape.is_long else "short"
        return found.get("rope_freqs", found.get(f"rope_factors_{lengths}"))

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, each once."""
        every = [self.embedding, self.output, *(matrix for layer in self.matrices for matrix in layer.values())]
        return sum({id(matrix): matrix.packed.nbytes for matrix in every}.values())

    def floats(self, matrix: Matrix, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
        """Return a matrix as its file has it, in the order of its outputs, as float32[outputs, inputs].

        ``rows`` are of the embedding or the scores alone. Not for matrices of experts, nor of a model in memory.
        """
        tensor, order = self._origins[id(matrix)]
        assert isinstance(tensor, Tensor)
        order = slice(None) if order is None else order
        raw = tensor.rows(order if rows is None else rows)
        if tensor.kind in FORMATS:
            return dequantised(read_blocks(tensor.kind, raw), FORMATS[tensor.kind])
        return read_floats(tensor.kind, raw)

    def _tensor(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of this shape, of any where none is given."""
        found = self.file.tensors.get(name)
        if found is None:
            raise ModelError(f"{self.path} has no tensor {name}: get it again, or take another engine")
        self._read.add(name)
        if shape and found.shape != shape:
            raise ModelError(f"{name} in {self.path} has the shape {found.shape}, not {shape}: get the file again")
        return found

    def _matrix(self, name: str, outputs: int, inputs: int) -> Matrix:
        return self._part(self._tensor(name, outputs, inputs), outputs, None)

    def _part(self, tensor: Tensor | list[Tensor], outputs: int, rows: Any) -> Matrix:
        """Return some rows of a matrix, or of each expert's, to be packed by `packed`."""
        first = tensor if isinstance(tensor, Tensor) else tensor[0]
        kind = self._kind(first)
        packed, parts = plan(tensor, rows, self._slabs.zeros, kind)
        self._parts += parts
        matrix = matrix_of(kind, packed, outputs, first.shape[-1], self._kernels)
        self._origins[id(matrix)] = tensor, rows
        return matrix

    def _kind(self, tensor: Tensor) -> str:
        return kind_of(tensor, self._becomes)

    def _count(self, size: int) -> None:
        self._done += size
        self._report(self._done, self._all)

    def _vector(self, name: str, size: int) -> Vector:
        tensor = self._tensor(name)
        if tensor.shape != (size,) or tensor.kind not in FLOATS:
            raise ModelError(
                f"{name} in {self.path} is {tensor.kind} {tensor.shape}, not {size} floats: get the file again"
            )
        padded = np.zeros(-(-size // GROUP) * GROUP, dtype=np.float32)
        padded[:size] = read_floats(tensor.kind, tensor.data)
        return padded

    @property
    def _projections(self) -> tuple[tuple[str, int, int], ...]:
        """Names of the matrices of queries, keys and values, their outputs, and their heads that are rotated."""
        shape = self.shape
        keys = shape.kv_heads * shape.head_size
        return (
            ("attn_q", shape.heads * shape.head_size, shape.heads), ("attn_k", keys, shape.kv_heads),
            ("attn_v", keys, 0),
        )  # fmt: skip

    def _attention(self, start: str) -> dict[str, Matrix]:
        """Return the matrices of queries, keys and values, which may lie in one tensor."""
        fused, found, first = f"{start}attn_qkv.weight", {}, 0
        every = sum(outputs for _, outputs, _ in self._projections)
        for name, outputs, heads in self._projections:
            order = self._order(heads)
            if fused in self.file.tensors:
                tensor = self._tensor(fused, every, self.shape.width)
                order = first + (np.arange(outputs) if order is None else order)
                first += outputs
            else:
                tensor = self._tensor(f"{start}{name}.weight", outputs, self.shape.width)
            found[name] = self._part(tensor, outputs, order)
        return found

    def _gated_unit(self, start: str) -> dict[str, Matrix]:
        width, inner = self.shape.width, self.shape.inner
        found = {"ffn_down": self._matrix(f"{start}ffn_down.weight", width, inner)}
        up = f"{start}ffn_up.weight"
        if f"{start}ffn_gate.weight" not in self.file.tensors and self._tensor(up).shape != (inner, width):
            return found | self._halves(self._tensor(up, 2 * inner, width))
        return found | {
            name: self._matrix(f"{start}{name}.weight", inner, width) for name in ("ffn_gate", "ffn_up")
        }

    def _halves(self, both: Tensor) -> dict[str, Matrix]:
        """Return gate and up of a tensor that has both."""
        inner = both.shape[-2] // 2
        parts = (("ffn_gate", slice(0, inner)), ("ffn_up", slice(inner, 2 * inner)))
        return {name: self._part(both, inner, rows) for name, rows in parts}

    def _mixture(self, start: str) -> dict[str, Matrix]:
        """Return the matrices of all experts, and the one that chooses among them."""
        shape = self.shape
        width, inner, experts = shape.width, shape.expert_inner, shape.experts
        found = {"ffn_gate_inp": self._matrix(f"{start}ffn_gate_inp.weight", experts, width)}
        tensors, both = self.file.tensors, f"{start}ffn_gate_up_exps.weight"
        if both in tensors:
            found |= self._halves(self._tensor(both, experts, 2 * inner, width))
        for name, outputs, inputs in (
            ("ffn_gate", inner, width), ("ffn_up", inner, width), ("ffn_down", width, inner),
        ):  # fmt: skip
            whole = f"{start}{name}_exps.weight"
            if whole not in tensors and f"{start}{name}.0.weight" in tensors:  # a tensor for each
                names = [f"{start}{name}.{expert}.weight" for expert in range(experts)]
                found[name] = self._part([self._tensor(one, outputs, inputs) for one in names], outputs, None)
            elif name not in found:
                found[name] = self._part(self._tensor(whole, experts, outputs, inputs), outputs, None)
        return found

    def _order(self, heads: int) -> NDArray[np.intp] | None:
        """Return the order of outputs in which numbers rotated together lie half a head apart; None: as is."""
        shape = self.shape
        if shape.family.pairs == "halves" or self.file.halves or not heads:
            return None
        head = np.arange(shape.head_size)
        turning = head[: shape.rotary].reshape(-1, 2).T.ravel()
        order = np.concatenate((turning, head[shape.rotary :]))
        return (np.arange(heads)[:, None] * shape.head_size + order).ravel()

    def _layer_vectors(self, start: str) -> dict[str, Vector]:
        shape, family = self.shape, self.shape.family
        sizes = {"attn_norm": shape.width, "ffn_norm": shape.width} if family.norms != "after" else {}
        if family.norms != "before":
            sizes |= {"post_attention_norm": shape.width, "post_ffw_norm": shape.width}
        if family.head_norm:
            for name, outputs, _ in self._projections[:2]:
                sizes[f"{name}_norm"] = outputs if family.head_norm == "row" else shape.head_size
        found = {name: self._vector(f"{start}{name}.weight", size) for name, size in sizes.items()}
        for name, size, heads in self._projections:
            if f"{start}{name}.bias" in self.file.tensors:
                bias, order = self._vector(f"{start}{name}.bias", size), self._order(heads)
                if order is not None:
                    bias[:size] = bias[order]
                found[f"{name}.bias"] = bias
        return found
