"""A head's weights as the CPU engine's passes take them: matrices in 4 bits, scores by the model's own rows."""

from __future__ import annotations

from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.blocks.attention import Attention
from draftwood.engines.cpu.blocks.embedding import add_embedding
from draftwood.engines.cpu.blocks.gated_unit import GatedUnit
from draftwood.engines.cpu.blocks.norm import NORM, ROUNDED, add_norm
from draftwood.engines.cpu.blocks.product import add_product
from draftwood.engines.cpu.blocks.scores import add_scores
from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.code.rounding import GROUP_RECORD
from draftwood.engines.cpu.packing import Jobs, Matrix, Slabs, matrix_of, packed_shape, plan, write_tiles
from draftwood.engines.cpu.program import Buffer, Inputs, Program, Vector, floats, records
from draftwood.engines.cpu.weights import Weights
from draftwood.engines.files.families import Family
from draftwood.engines.files.formats import FORMATS, GROUP, TILE, padded
from draftwood.engines.files.gguf_types import quantised
from draftwood.engines.files.shapes import LayerSizes, Shape
from draftwood.engines.heads.weights import HeadWeights

KIND = "Q4_1"
"""How a head's own matrices are kept: reading them is most of the time of its step, and 8 bits guess no better."""

_LAYER = "midlayer."
MATRICES = {f"attn_{'output' if part == 'o' else part}": f"{_LAYER}self_attn.{part}_proj" for part in "qkvo"}
MATRICES |= {f"ffn_{part}": f"{_LAYER}mlp.{part}_proj" for part in ("gate", "up", "down")}
"""Names of a layer's matrices in a head's file, by those that a model's have in `Weights`."""


FUSE = "fuse"
"""What a pass is asked for that begins with the target's states (`Program.limits`)."""


class HeadProgram(NamedTuple):
    """A head's program.

    ``target_states`` float32[WIDEST, layers * width] are what passes read that are asked to `FUSE`: the target's
    states, a row per pair. ``whole_x`` are the rows of the program: before a pass that does not fuse, the states
    of its nodes; after a pass, the head's own states. Both are the same rows where there is nothing to fuse.
    """

    program: Program
    target_states: Buffer
    whole_x: Buffer


class PackedHead:
    """A head's weights: a matrix before its one layer, the blocks of the layer, and the rows that score tokens.

    ``shape`` has the head's sizes, its vocabulary the reduced one; the embedding is the target's. ``fuse`` is the
    matrix [width, layers * width] for the target's states, ``embedding_norm`` and ``state_norm`` the norms of the
    token's embedding and of the state.
    """

    def __init__(self, weights: HeadWeights, target: Weights, kernels: Kernels) -> None:
        self._tensors, self._kernels, self._slabs, self._lock = weights.tensors, kernels, Slabs(), Lock()
        self.shape = _shape(weights)
        names = {"fuse": "fc", **MATRICES}
        jobs = [partial(self._output, weights, target), *(partial(self._matrix, name) for name in names.values())]
        self.output, *matrices = Jobs(jobs, 1).results()
        packed = dict(zip(names, matrices, strict=True))
        self.embedding, self.fuse = target.embedding, packed.pop("fuse")
        self._matrices = packed
        unit_norm = self._vector(f"{_LAYER}post_attention_layernorm")
        self._attention = Attention(self.shape, 0, packed, {})
        self._unit = GatedUnit(self.shape, 0, packed, {"ffn_norm": unit_norm})
        self.embedding_norm = self._vector(f"{_LAYER}input_layernorm")
        self.state_norm = self._vector(f"{_LAYER}hidden_norm")
        self.last_norm = self._vector("norm")
        self._tensors = {}

    def program(self, kernels: Kernels) -> HeadProgram:
        """Return the program of the head's passes."""
        width, states = self.shape.width, self.fuse.inputs
        program = Program(self.shape, kernels, None, self.output.tiles * TILE)
        seen, token = Inputs(floats(states), records(states)), floats(width)
        add_embedding(program, self.embedding, token, 1.0)
        program.add(ROUNDED, row=states, x=seen.plain, out=seen.rounded, width=states, joined=True, only=FUSE)
        add_product(program, self.fuse, seen, program.x, only=FUSE)
        both = Inputs(floats(2 * width), records(2 * width))
        self._add_half(program, token, self.embedding_norm, both)
        after = Inputs(both.plain[:, width:], both.rounded[:, width // GROUP * GROUP_RECORD :])
        self._add_half(program, program.x, self.state_norm, after, joined=True)
        self._attention.attend(program, both)
        self._unit.build(program)
        add_scores(program, self.output, self.last_norm)
        program.finish()
        return HeadProgram(program, seen.plain[:, :states], program.x)

    @staticmethod
    def _add_half(program: Program, x: Buffer, norm: Vector, out: Inputs, **how: Any) -> None:
        """Add the norm of the embedding or of the state, which the layer reads side by side."""
        add_norm(program, NORM, x, norm, y=out.plain, out=out.rounded, **how)

    @property
    def nbytes(self) -> int:
        """Bytes of its matrices, without the embedding."""
        return sum(one.packed.nbytes for one in (self.fuse, self.output, *self._matrices.values()))

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
        found = np.zeros(padded(len(tensor)), dtype=np.float32)
        found[: len(tensor)] = np.asarray(tensor)
        return found


def _shape(weights: HeadWeights) -> Shape:
    shape, tensors = weights.shape, weights.tensors
    queries, keys = (len(tensors[f"{_LAYER}self_attn.{name}_proj.weight"]) for name in "qk")
    inner = len(tensors[f"{_LAYER}mlp.gate_proj.weight"])
    return Shape(
        family=Family("head"), blocks=(("attention", "gated_unit"),), width=shape.width,
        sizes=(LayerSizes(queries // shape.dim, keys // shape.dim, shape.dim, shape.dim, inner, source=0),),
        vocabulary=len(weights.ids()), max_positions=1 << 24, epsilon=shape.eps, windows=(0,),
        turning=(True,), base=shape.theta, query_scale=shape.dim**-0.5,
    )  # fmt: skip
