"""The end of a gemma4 layer: what the token brings of its own to this layer is added, then all of x is scaled.

``x += norm(proj(gelu(inp_gate x) * input))``, and ``x *= layer_output_scale``. A token's inputs of all layers are
``(norm(per_layer_model_proj x / sqrt(width)) + own * sqrt(numbers)) / sqrt(2)``, made of its embedding x before
the first layer. ``own`` are the token's rows of a table as large as the rest of the model. So the table stays in
the file, and a pass reads the rows of its tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.gated_unit import GATINGS, write_gating
from draftwood.engines.cpu.blocks.norm import add_norm_before, write_norm
from draftwood.engines.cpu.blocks.product import add_into_x, add_product, tiles_per_piece
from draftwood.engines.cpu.code.products import MATRIX, tiles_of
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL_ROWS,
    REAL,
    ROWS,
    KernelModule,
    Per,
    PieceCode,
)
from draftwood.engines.cpu.code.values import LANES
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Program, Vector
from draftwood.engines.cpu.tensors import LayerTensors, Tensors
from draftwood.engines.files.formats import GROUP
from draftwood.engines.files.shapes import Shape
from draftwood.errors import ModelError, UnsupportedModelError

TABLE = "per_layer_token_embd.weight"
HUB_NAMES = {
    "model.embed_tokens_per_layer": "per_layer_token_embd",
    "model.per_layer_model_projection": "per_layer_model_proj",
    "model.per_layer_projection_norm": "per_layer_proj_norm",
}


def _inputs(piece: PieceCode) -> None:
    """Write the inputs of all layers of a row: parts of ``width`` numbers, each with a norm of its own."""
    code, phase = piece.code, piece.phase
    with piece.rows() as row, code.count(0, phase.layers) as layer:
        start = layer * phase.width * 4
        made, own = phase.x[row] + start, phase.own[row] + start
        write_norm(piece, made, made)
        with code.count(0, phase.width, LANES) as i:
            both = made.f32x16[i].plus_product(own.f32x16[i], phase.own_scale.splat())
            made.f32x16[i] = both * phase.scale.splat()


def _gated(piece: PieceCode) -> None:
    phase, rows = piece.phase, piece.whole.rows
    tiles = tiles_of(piece.per, piece.number, phase.gate.tiles)
    phase.gate.product(phase.x, phase.y, rows, tiles)
    write_gating(piece, tiles, (piece.code.whole(0), rows), GATINGS["gelu"], [phase.y, phase.y_up])


def _scaled(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row, piece.code.count(0, phase.width.padded(), LANES) as i:
        phase.x[row].f32x16[i] = phase.x[row].f32x16[i] * phase.scale.splat()


MODULE = KernelModule("layer_input")
_INPUTS = MODULE.kernel(
    "layer_inputs", Per.ROWS, _inputs, x=ROWS, own=ROWS, weight=ADDRESS, layers=NUMBER, width=NUMBER, epsilon=REAL,
    own_scale=REAL, scale=REAL,
)  # fmt: skip
"""``x = (norm(x) + own_scale * own) * scale`` of each part of ``width`` numbers."""
_GATED = MODULE.kernel("input_gate", Per.TILES, _gated, gate=MATRIX, x=ROWS, y=ROWS, y_up=ROWS, out=OPTIONAL_ROWS)
"""``y = gelu(gate x) * y_up``, also as records to out if it is given."""
_SCALED = MODULE.kernel("scaled", Per.ROWS, _scaled, x=ROWS, width=NUMBER, scale=REAL)
"""``x = scale * x``."""


class LayerInputs(NamedTuple):
    """What makes a token's inputs of all layers; ``read`` returns rows of the table, float32[tokens, numbers]."""

    matrix: Matrix
    norm: Vector
    read: Callable[[NDArray[np.intp]], NDArray[np.float32]]

    @classmethod
    def load(cls, tensors: Tensors, shape: Shape) -> LayerInputs:
        """Find them; raises as `Block.load`."""
        every, size = shape.layers * shape.layer_input, shape.layer_input
        if size % GROUP:
            raise UnsupportedModelError(
                f"the CPU engine runs inputs of layers of multiples of {GROUP} numbers, not of {size}: take "
                "another engine"
            )
        table = tensors.tensor(TABLE)
        if len(table.shape) != 2 or table.shape[0] < shape.vocabulary or table.shape[1] != every:
            raise ModelError(
                f"{TABLE} has the shape {table.shape}, not {(shape.vocabulary, every)}: get the file again"
            )
        matrix = tensors.tensor("per_layer_model_proj.weight", every, shape.width)
        norm = tensors.vector("per_layer_proj_norm.weight", size)
        return cls(tensors.matrix(matrix, every), norm, tensors.reader(table))

    def add(self, program: Program) -> None:
        """Add the phases that make the inputs, and let passes read the rows of their tokens."""
        shape, made = program.shape, layer_inputs(program)
        own = program.shared("own inputs", self.matrix.outputs)

        def fetch(tokens: NDArray[np.int32]) -> None:
            own[: len(tokens), : self.matrix.outputs] = self.read(tokens.astype(np.intp))

        program.fetch = fetch
        inputs = add_norm_before(program, None, [self.matrix])
        add_product(program, self.matrix, inputs, made, scale=shape.width**-0.5)
        program.add(
            _INPUTS, row=self.matrix.outputs, x=made, own=own, weight=self.norm, layers=shape.layers,
            width=shape.layer_input, epsilon=shape.epsilon, own_scale=shape.layer_input**0.5, scale=0.5**0.5,
        )  # fmt: skip


def layer_inputs(program: Program) -> Buffer:
    """Return the inputs of all layers, one after another, a row per row of the pass."""
    return program.shared("inputs of layers", program.shape.layers * program.shape.layer_input)


class LayerInput(Block):
    """The end of a layer. Models without inputs of layers only scale x; some files have no number to do that."""

    hub_names: ClassVar = {
        "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
        "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale.weight",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> LayerInput:
        matrices, vectors, size = dict[str, Matrix](), dict[str, Vector](), shape.layer_input
        if size:
            matrices["inp_gate"] = tensors.part("inp_gate", (size, shape.width))
            matrices["proj"] = tensors.part("proj", (shape.width, size))
            vectors["post_norm"] = tensors.vector("post_norm", shape.width)
        if "layer_output_scale" in tensors:
            vectors["layer_output_scale"] = tensors.vector("layer_output_scale", 1)
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        width, size = self.shape.width, self.shape.layer_input
        if size:
            gate, out = self.matrices["inp_gate"], self.matrices["proj"]
            inputs, found = add_norm_before(program, None, [gate]), program.shared_inputs("gated input", size)
            per = max(2, tiles_per_piece(gate.tile_bytes) // 2 * 2)  # two tiles are a group that is rounded
            program.add(
                _GATED, pieces=-(-gate.tiles // per), per_piece=per, gate=gate, x=inputs.of(gate), y=found.plain,
                y_up=layer_inputs(program)[:, self.layer * size :], out=found.records_for(out),
            )  # fmt: skip
            add_into_x(program, out, found, self.vectors["post_norm"])
        if "layer_output_scale" in self.vectors:
            scale = self.vectors["layer_output_scale"][0]
            program.add(_SCALED, row=width, x=program.x, width=width, scale=scale)
