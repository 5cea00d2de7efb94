"""A head's weights as the CPU engine's passes take them: its matrices in 8 bits, its scores by the model's own rows."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.families import Family, Shape
from draftwood.engines.cpu.formats import FORMATS, GROUP
from draftwood.engines.cpu.gguf_types import Codes
from draftwood.engines.cpu.kernels import Kernels
from draftwood.engines.cpu.packing import pack, packed_tensor
from draftwood.engines.cpu.weights import Matrix, Vector, Weights
from draftwood.engines.heads.weights import HeadWeights
from draftwood.errors import CapabilityError

KIND = "Q8_0"
"""How a head's own matrices are kept. With 5 bits it would agree less often, and a step would be hardly shorter."""

_LAYER = "midlayer."


class PackedHead:
    """What `draftwood.engines.cpu.weights.Weights` is for a model: the weights of one layer and its two ends.

    Attributes
    ----------
    shape
        The head's sizes; its vocabulary is the reduced one.
    embedding, output, last_norm
        As of a model; the embedding is the target's.
    fuse
        The matrix [width, layers * width] for the target's states.
    embedding_norm, state_norm
        Of the token's embedding, and of the state beside it.
    matrices, vectors
        Of the layer, in a list of one.
    factors
        Nothing: rotary positions are plain.
    """

    factors: Vector | None = None

    def __init__(self, weights: HeadWeights, target: Weights, kernels: Kernels) -> None:
        self._tensors, self._kernels = weights.tensors, kernels
        self.shape = _shape(weights)
        layer, attention = _LAYER, f"{_LAYER}self_attn."
        names = {
            "fuse": "fc.weight", "attn_q": f"{attention}q_proj.weight", "attn_k": f"{attention}k_proj.weight",
            "attn_v": f"{attention}v_proj.weight", "attn_output": f"{attention}o_proj.weight",
            "ffn_gate": f"{layer}mlp.gate_proj.weight", "ffn_up": f"{layer}mlp.up_proj.weight",
            "ffn_down": f"{layer}mlp.down_proj.weight",
        }  # fmt: skip
        with ThreadPoolExecutor(2) as threads:
            output = threads.submit(self._output, weights, target)
            packed = dict(zip(names, threads.map(self._matrix, names.values()), strict=True))
            self.output = output.result()
        self.embedding, self.fuse = target.embedding, packed.pop("fuse")
        self.matrices = [packed]
        self.embedding_norm = self._vector(f"{layer}input_layernorm.weight")
        self.state_norm = self._vector(f"{layer}hidden_norm.weight")
        self.vectors = [{"ffn_norm": self._vector(f"{layer}post_attention_layernorm.weight")}]
        self.last_norm = self._vector("norm.weight")
        self._tensors = {}

    @property
    def nbytes(self) -> int:
        """Bytes of its matrices, without the embedding."""
        return sum(one.packed.nbytes for one in (self.fuse, self.output, *self.matrices[0].values()))

    def _matrix(self, name: str) -> Matrix:
        return self._made(
            KIND, pack(rounded(np.asarray(self._tensors[name])), FORMATS[KIND]), *self._tensors[name].shape
        )

    def _made(self, kind: str, packed: NDArray[Any], outputs: int, inputs: int) -> Matrix:
        kernels = self._kernels
        return Matrix(kind, packed, outputs, inputs, kernels.product(kind), kernels.reader(kind))

    def _output(self, weights: HeadWeights, target: Weights) -> Matrix:
        """Return the rows that score tokens: the head's own, else the target's, in the file's own type."""
        if "lm_head.weight" in weights.tensors:
            return self._matrix("lm_head.weight")
        tensors = target.file.tensors
        tensor = tensors.get("output.weight") or tensors["token_embd.weight"]
        ids = weights.ids().astype(np.intp)
        return self._made(tensor.kind, packed_tensor(tensor, ids), len(ids), int(tensor.shape[1]))

    def _vector(self, name: str) -> Vector:
        tensor = self._tensors[name]
        padded = np.zeros(-(-len(tensor) // GROUP) * GROUP, dtype=np.float32)
        padded[: len(tensor)] = tensor
        return padded


def rounded(matrix: NDArray[Any]) -> Codes:
    """Round a matrix [outputs, inputs] to 8 bits per group of 32, as GGUF's type Q8_0 has it."""
    outputs, inputs = matrix.shape
    groups = matrix.astype(np.float32, copy=False).reshape(outputs, inputs // GROUP, GROUP)
    largest = np.maximum(groups.max(-1), -groups.min(-1))
    scale = (largest * np.float32(1 / 127)).astype(np.float16)
    step = scale.astype(np.float32)
    inverse = np.where(step > 0, np.float32(1) / np.where(step > 0, step, np.float32(1)), np.float32(0))
    steps = groups * inverse[..., None]
    np.clip(np.rint(steps, out=steps), -127, 127, out=steps)
    steps += np.float32(FORMATS[KIND].offset)
    return Codes(codes=steps.astype(np.uint8).reshape(outputs, inputs), scale=scale)


def _shape(weights: HeadWeights) -> Shape:
    shape, tensors = weights.shape, weights.tensors
    queries, keys = (len(tensors[f"{_LAYER}self_attn.{name}_proj.weight"]) for name in "qk")
    inner = len(tensors[f"{_LAYER}mlp.gate_proj.weight"])
    for size in (shape.width, queries, inner):
        if size % GROUP:
            raise CapabilityError(
                f"the CPU engine runs heads whose sizes are multiples of {GROUP}, and one of this head is {size}: "
                "take the engine transformers"
            )
    return Shape(
        family=Family(), width=shape.width, inner=inner, heads=queries // shape.dim, kv_heads=keys // shape.dim,
        head_size=shape.dim, vocabulary=len(weights.ids()), max_positions=1 << 24, epsilon=shape.eps, windows=(0,),
        turning=(True,), rotary=shape.dim, base=shape.theta, query_scale=shape.dim**-0.5,
    )  # fmt: skip
