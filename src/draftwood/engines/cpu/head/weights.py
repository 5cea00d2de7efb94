"""A head's weights as the CPU engine's passes take them: matrices in 4 bits, scores by the model's own rows."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.packing import Jobs, Matrix, Slabs, matrix_of, packed_shape, plan, write_tiles
from draftwood.engines.cpu.phases import Buffer, Per, floats, records
from draftwood.engines.cpu.program import Program
from draftwood.engines.cpu.weights import Vector, Weights
from draftwood.engines.files.families import Family
from draftwood.engines.files.formats import FORMATS, GROUP
from draftwood.engines.files.gguf_types import quantised
from draftwood.engines.files.shapes import Shape
from draftwood.engines.heads.weights import HeadWeights
from draftwood.errors import CapabilityError

KIND = "Q4_1"
"""How a head's own matrices are kept: reading them is most of the time of its step, and 8 bits guess no better."""

_LAYER = "midlayer."
MATRICES = {f"attn_{'output' if part == 'o' else part}": f"{_LAYER}self_attn.{part}_proj" for part in "qkvo"}
MATRICES |= {f"ffn_{part}": f"{_LAYER}mlp.{part}_proj" for part in ("gate", "up", "down")}
"""Names of a layer's matrices in a head's file, by those that a model's have in `Weights`."""


class PackedHead:
    """What `draftwood.engines.cpu.weights.Weights` is for a model: one layer, a matrix before it, rows after it.

    ``shape`` has the head's sizes, its vocabulary the reduced one; the embedding is the target's. ``fuse`` is the
    matrix [width, layers * width] for the target's states, ``embedding_norm`` and ``state_norm`` the norms of the
    token's embedding and of the state. ``matrices`` and ``vectors`` are those of the layer, in a list of one.
    """

    factors = None

    def __init__(self, weights: HeadWeights, target: Weights, kernels: Kernels) -> None:
        self._tensors, self._kernels, self._slabs, self._lock = weights.tensors, kernels, Slabs(), Lock()
        self.shape = _shape(weights)
        layer, names = _LAYER, {"fuse": "fc", **MATRICES}
        jobs = [partial(self._output, weights, target), *(partial(self._matrix, name) for name in names.values())]
        self.output, *matrices = Jobs(jobs, 1).results()
        packed = dict(zip(names, matrices, strict=True))
        self.embedding, self.fuse = target.embedding, packed.pop("fuse")
        self.matrices = [packed]
        self.embedding_norm = self._vector(f"{layer}input_layernorm")
        self.state_norm = self._vector(f"{layer}hidden_norm")
        self.vectors = [{"ffn_norm": self._vector(f"{layer}post_attention_layernorm")}]
        self.last_norm = self._vector("norm")
        self._tensors = {}

    @property
    def nbytes(self) -> int:
        """Bytes of its matrices, without the embedding."""
        return sum(one.packed.nbytes for one in (self.fuse, self.output, *self.matrices[0].values()))

    def _output(self, weights: HeadWeights, target: Weights) -> Matrix:
        """Pack the rows that score tokens: the head's own, else the target's, in the file's own type."""
        if "lm_head.weight" in weights.tensors:
            return self._matrix("lm_head")
        tensors = target.file.tensors
        tensor = tensors.get("output.weight") or tensors["token_embd.weight"]
        ids = weights.ids().astype(np.intp)
        packed, parts = plan(tensor, ids, self._zeros)
        for part in parts:
            part.pack()
        return matrix_of(tensor.kind, packed, len(ids), int(tensor.shape[1]), self._kernels)

    def _matrix(self, name: str) -> Matrix:
        tensor = np.asarray(self._tensors[f"{name}.weight"])
        packed = self._zeros(packed_shape(KIND, *tensor.shape), np.uint8)
        write_tiles(packed, quantised(KIND, tensor.astype(np.float32)), FORMATS[KIND])
        return matrix_of(KIND, packed, tensor.shape[0], tensor.shape[1], self._kernels)

    def _zeros(self, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        with self._lock:
            return self._slabs.zeros(shape, dtype)

    def _vector(self, name: str) -> Vector:
        tensor = self._tensors[f"{name}.weight"]
        padded = np.zeros(-(-len(tensor) // GROUP) * GROUP, dtype=np.float32)
        padded[: len(tensor)] = np.asarray(tensor)
        return padded


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
        family=Family("head"), blocks=(("attention", "gated_unit"),),
        width=shape.width, inner=inner, heads=queries // shape.dim, kv_heads=keys // shape.dim,
        head_size=shape.dim, vocabulary=len(weights.ids()), max_positions=1 << 24, epsilon=shape.eps, windows=(0,),
        turning=(True,), rotary=shape.dim, base=shape.theta, query_scale=shape.dim**-0.5,
    )  # fmt: skip


FUSE = "fuse"
"""What a pass is asked for that begins with the target's states (`Program.limits`)."""


class HeadProgram(Program):
    """A head's phases and buffers.

    ``target_states`` float32[WIDEST, layers * width] are the target's states, read by passes that are asked to
    `FUSE`; ``whole_x`` has a row per pair or node: what the layer reads (of `FUSE`, or put there), then returns.
    """

    weights: PackedHead  # type: ignore[assignment]

    def __init__(self, weights: PackedHead, kernels: Kernels) -> None:
        width = weights.shape.width
        self._seen, self._seen_rounded = floats(weights.fuse.inputs), records(weights.fuse.inputs)
        self._token, self._both, self._both_rounded = floats(width), floats(2 * width), records(2 * width)
        super().__init__(weights, kernels)  # type: ignore[arg-type]
        self.target_states = self._seen.array[:, : weights.fuse.inputs]
        self.whole_x, self.x = self._x.array, self._x.array[:, :width]

    def _build(self) -> None:
        weights, width = self.weights, self.weights.shape.width
        self._embed(self._token, 1.0)
        inputs = weights.fuse.inputs
        slots = self._seen.slots("x") | self._seen_rounded.slots("out") | {"width": inputs}
        self._add("rounded", Per.ROWS, inputs, slots, joined=True, only=FUSE)
        self._product(weights.fuse, self._seen, self._seen_rounded, self._x.slots("y"), only=FUSE)
        self._half(self._token, weights.embedding_norm, 0)
        self._half(self._x, weights.state_norm, width)
        self._attend(0, weights.matrices[0], {}, self._both, self._both_rounded)
        self._gated_unit(weights.matrices[0], weights.vectors[0])
        self._ends()

    def _half(self, source: Buffer, norm: Any, first: int) -> None:
        """Add the norm of the embedding (``first`` 0) or of the state, which the layer reads side by side."""
        plain, rounded = self._both.behind(first), self._both_rounded.behind(first)
        slots = self._norm_slots(norm) | source.slots("x") | plain.slots("y") | rounded.slots("out")
        self._add("norm_rounded", Per.ROWS, self.weights.shape.width, slots, joined=first > 0)
