"""A model's weights in memory: matrices packed for the products, vectors as float32."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.families import Shape, shape_of
from draftwood.engines.cpu.formats import FORMATS, GROUP
from draftwood.engines.cpu.gguf_file import GgufFile, Tensor
from draftwood.engines.cpu.kernels import Kernels
from draftwood.engines.cpu.packing import packed_tensor
from draftwood.engines.cpu.slabs import Slabs
from draftwood.errors import ModelError, UnsupportedModelError

Vector = NDArray[np.float32]
Report = Callable[[int, int], None]
"""Takes bytes that are packed, and bytes in all."""

_VECTORS = {"F32": np.float32, "F16": np.float16}


@dataclass(frozen=True, slots=True)
class Matrix:
    """One packed matrix and the functions for its type."""

    kind: str
    packed: NDArray[Any]
    outputs: int
    inputs: int
    product: int
    reader: int

    @property
    def is_rounded(self) -> bool:
        """Whether its products take inputs that are rounded to 8 bits."""
        return self.kind in FORMATS

    @property
    def tiles(self) -> int:
        return int(self.packed.shape[0])

    @property
    def blocks(self) -> int:
        """Blocks of a tile; of floats, inputs."""
        return int(self.packed.shape[1])

    @property
    def tile_bytes(self) -> int:
        return int(self.packed.strides[0])


class Weights:
    """The weights of a GGUF file.

    Attributes
    ----------
    shape
        The model's sizes.
    embedding, output
        Matrices [vocabulary, width]; the same one where the file has no second.
    matrices, vectors
        Of each layer, by the names that GGUF gives them without ``.weight``: ``attn_q``, ``ffn_down``,
        ``attn_q.bias``. Vectors are padded with zeros to a multiple of 32.
    last_norm
        The weights of the norm behind the last layer.
    factors
        What frequencies of rotary positions are divided by, for short and for long texts; None: by nothing.

    Raises `UnsupportedModelError` for models or types that this engine does not run, `ModelError` for files whose
    tensors do not fit together.
    """

    def __init__(self, path: Path, kernels: Kernels, report: Report | None = None) -> None:
        self.file, self._kernels = GgufFile(path), kernels
        self.path, self.metadata = path, self.file.metadata
        tensors = self.file.tensors
        embedding = self._tensor("token_embd.weight")
        self.shape = shape_of(self.file.metadata, int(embedding.shape[0]))
        self._report, self._done, self._all = report or (lambda done, total: None), 0, self.file.size
        self._slabs = Slabs()
        self.vectors: list[dict[str, Vector]] = []
        self.matrices: list[dict[str, Matrix]] = []
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as threads:
            self._threads = threads
            self.embedding = self._matrix(embedding, self.shape.vocabulary, self.shape.width)
            tied = tensors.get("output.weight")
            self.output = self._matrix(tied, self.shape.vocabulary, self.shape.width) if tied else self.embedding
            for layer in range(self.shape.layers):
                self._add_layer(f"blk.{layer}.")
        self.last_norm = self._vector("output_norm.weight", self.shape.width)
        self.factors = {
            name: self._vector(f"rope_{key}.weight", self.shape.rotary // 2)[: self.shape.rotary // 2]
            for name, key in (("all", "freqs"), ("long", "factors_long"), ("short", "factors_short"))
            if f"rope_{key}.weight" in tensors
        }

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices, each once."""
        every = [self.embedding, self.output, *(matrix for layer in self.matrices for matrix in layer.values())]
        return sum({id(matrix): matrix.packed.nbytes for matrix in every}.values())

    def _tensor(self, name: str) -> Tensor:
        found = self.file.tensors.get(name)
        if found is None:
            raise ModelError(f"{self.path} has no tensor {name}: get the file again, or take the engine llama.cpp")
        return found

    def _matrix(self, tensor: Tensor, outputs: int, inputs: int, rows: Any = None) -> Matrix:
        if tensor.shape != (outputs, inputs) and rows is None:
            raise ModelError(
                f"{tensor.name} in {self.path} has the shape {tensor.shape}, not {(outputs, inputs)}: get it again"
            )
        packed = packed_tensor(tensor, rows, threads=self._threads, room=self._slabs.zeros)
        self._done += packed.nbytes
        self._report(min(self._done, self._all), self._all)
        kind, kernels = tensor.kind, self._kernels
        return Matrix(kind, packed, outputs, inputs, kernels.product(kind), kernels.reader(kind))

    def _vector(self, name: str, size: int) -> Vector:
        tensor = self._tensor(name)
        if tensor.shape != (size,) or tensor.kind not in _VECTORS:
            raise ModelError(f"{name} in {self.path} is {tensor.kind}{list(tensor.shape)}, not {size} floats")
        padded = np.zeros(-(-size // GROUP) * GROUP, dtype=np.float32)
        padded[:size] = np.frombuffer(tensor.data.tobytes(), dtype=_VECTORS[tensor.kind])
        return padded

    def _add_layer(self, start: str) -> None:
        shape = self.shape
        queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        matrices: dict[str, Matrix] = {}
        fused = self.file.tensors.get(f"{start}attn_qkv.weight")
        first = 0
        for name, outputs, heads in (
            ("attn_q", queries, shape.heads), ("attn_k", keys, shape.kv_heads), ("attn_v", keys, 0),
        ):  # fmt: skip
            order = self._order(heads)
            if fused is not None:
                rows = np.arange(first, first + outputs) if order is None else first + order
                matrices[name] = self._matrix(self._checked(fused, queries + 2 * keys), outputs, shape.width, rows)
                first += outputs
            else:
                tensor = self._tensor(f"{start}{name}.weight")
                self._checked(tensor, outputs)
                matrices[name] = self._matrix(tensor, outputs, shape.width, order)
        matrices["attn_output"] = self._matrix(self._tensor(f"{start}attn_output.weight"), shape.width, queries)
        matrices |= self._gated_unit(start)
        self.matrices.append(matrices)
        self.vectors.append(self._layer_vectors(start, queries, keys))

    def _checked(self, tensor: Tensor, outputs: int) -> Tensor:
        if tensor.shape != (outputs, self.shape.width):
            raise ModelError(f"{tensor.name} in {self.path} has the shape {tensor.shape}: get the file again")
        return tensor

    def _gated_unit(self, start: str) -> dict[str, Matrix]:
        width, inner = self.shape.width, self.shape.inner
        up = self._tensor(f"{start}ffn_up.weight")
        found = {"ffn_down": self._matrix(self._tensor(f"{start}ffn_down.weight"), width, inner)}
        if f"{start}ffn_gate.weight" in self.file.tensors:
            gate = self._tensor(f"{start}ffn_gate.weight")
            return found | {"ffn_gate": self._matrix(gate, inner, width), "ffn_up": self._matrix(up, inner, width)}
        self._checked(up, 2 * inner)
        for name, first in (("ffn_gate", 0), ("ffn_up", inner)):
            found[name] = self._matrix(up, inner, width, np.arange(first, first + inner))
        return found

    def _order(self, heads: int) -> NDArray[np.intp] | None:
        """Return which output goes where, so that numbers that turn together lie half a head apart."""
        shape = self.shape
        if shape.family.pairs == "halves" or not heads:
            return None
        head = np.arange(shape.head_size)
        turning = head[: shape.rotary].reshape(-1, 2).T.ravel()
        order = np.concatenate((turning, head[shape.rotary :]))
        return (np.arange(heads)[:, None] * shape.head_size + order).ravel()

    def _layer_vectors(self, start: str, queries: int, keys: int) -> dict[str, Vector]:
        shape, family = self.shape, self.shape.family
        sizes = {"attn_norm": shape.width, "ffn_norm": shape.width} if family.norms != "after" else {}
        if family.norms != "before":
            sizes |= {"post_attention_norm": shape.width, "post_ffw_norm": shape.width}
        if family.head_norm:
            whole = family.head_norm == "row"
            sizes |= {
                "attn_q_norm": queries if whole else shape.head_size,
                "attn_k_norm": keys if whole else shape.head_size,
            }
        found = {name: self._vector(f"{start}{name}.weight", size) for name, size in sizes.items()}
        for name, size, heads in (("attn_q", queries, shape.heads), ("attn_k", keys, shape.kv_heads), ("attn_v", keys, 0)):
            if f"{start}{name}.bias" in self.file.tensors:
                bias, order = self._vector(f"{start}{name}.bias", size), self._order(heads)
                if order is not None:
                    bias[:size] = bias[order]
                found[f"{name}.bias"] = bias
        self._refuse_others(start)
        return found

    def _refuse_others(self, start: str) -> None:
        """Refuse tensors that this engine would leave out of the model."""
        known = {
            "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_up", "ffn_gate", "ffn_down", "attn_norm",
            "ffn_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm",
        }  # fmt: skip
        for name in self.file.tensors:
            if name.startswith(start):
                part, _, ending = name.removeprefix(start).rpartition(".")
                if part not in known or (ending == "bias" and part not in ("attn_q", "attn_k", "attn_v")):
                    raise UnsupportedModelError(
                        f"the CPU engine does not know the tensor {name} of {self.path.name}: llama.cpp may"
                    )
