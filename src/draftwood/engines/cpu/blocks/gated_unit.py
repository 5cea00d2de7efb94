"""The gated unit (gated MLP): ``down(act(gate x) * up x)`` after a norm.

GLU variants: Shazeer, 2020 (arXiv 2002.05202).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.norm import add_norm_before
from draftwood.engines.cpu.blocks.product import add_into_x, tiles_per_piece
from draftwood.engines.cpu.code.products import MATRIX, tiles_of
from draftwood.engines.cpu.code.records import OPTIONAL_ROWS, ROWS, KernelModule, Per, PieceCode
from draftwood.engines.cpu.code.rounding import clamped_gate, gelu, silu, write_rounded_row
from draftwood.engines.cpu.code.values import LANES, Value
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Inputs, Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.formats import TILE
from draftwood.engines.files.shapes import Shape

Gating = Callable[[Value, Value], Value]
"""Returns what a gated unit makes of numbers of both products, gate and up."""
GATINGS: dict[str, Gating] = {
    "silu": lambda gate, up: silu(gate) * up,
    "gelu": lambda gate, up: gelu(gate) * up,
    "clamped": clamped_gate,
}
FIELDS = {
    "gate": MATRIX, "up": MATRIX, "x": ROWS, "x_up": ROWS, "y": ROWS, "y_up": ROWS, "out": OPTIONAL_ROWS
}  # fmt: skip
"""Both matrices, what each of them reads, and the rows of both products; y becomes the result, out its records."""


def write_gating(piece: PieceCode, tiles: tuple[Value, Value], rows: tuple[Value, Value], gating: Gating) -> None:
    """Write ``y = gating(y, y_up)`` of some tiles and rows, first and end; also records to out if it is given."""
    code, phase, (low, high) = piece.code, piece.phase, tiles
    width = (high - low) * TILE
    with code.count(*rows) as row:
        gates, ups = (of[row] + low * (4 * TILE) for of in (phase.y, phase.y_up))
        with code.count(0, width, LANES) as i:
            gates.f32x16[i] = gating(gates.f32x16[i], ups.f32x16[i])
        with code.when(phase.out.start.number().differs(0)):  # a record of 64 bytes for each two tiles
            write_rounded_row(code, gates, width, phase.out[row] + low * 32)


def _gated(gating: Gating) -> Callable[[PieceCode], None]:
    def write(piece: PieceCode) -> None:
        phase, rows = piece.phase, piece.whole.rows
        tiles = tiles_of(piece.per, piece.number, phase.gate.tiles)
        for matrix, x, y in ((phase.gate, phase.x, phase.y), (phase.up, phase.x_up, phase.y_up)):
            matrix.product(x, y, rows, tiles)
        write_gating(piece, tiles, (piece.code.whole(0), rows), gating)

    return write


MODULE = KernelModule("gated_unit")
_GATES = {
    name: MODULE.kernel(f"{name}_gate", Per.TILES, _gated(gating), **FIELDS) for name, gating in GATINGS.items()
}


def gate_fields(
    program: Program, gate: Matrix, up: Matrix, down: Matrix, inputs: Inputs
) -> tuple[dict[str, Any], int, Inputs]:
    """Return the `FIELDS` of a gated unit, tiles per piece, and where its results lie, also rounded."""
    inner, rows = program.shape.widest_inner, program.slot_rows
    found = program.shared_inputs("gate", inner, rows)
    fields = {
        "gate": gate, "up": up, "x": inputs.of(gate), "x_up": inputs.of(up), "y": found.plain,
        "y_up": program.shared("up", inner, rows), "out": found.records_for(down),
    }  # fmt: skip
    # Pieces have pairs of tiles: two tiles are a group that is rounded.
    per = tiles_per_piece((gate.tile_bytes + up.tile_bytes) // 2) // 4 * 2
    return fields, max(2, per), found


class GatedUnit(Block):
    """The gated unit of a layer. Gate and up may lie in one tensor, ``ffn_up``."""

    hub_names: ClassVar = {
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "mlp.gate_up_proj": "ffn_up", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> GatedUnit:
        inner, width = shape.sizes[layer].inner, shape.width
        matrices = {"ffn_down": tensors.part("ffn_down", (width, inner))}
        if "ffn_gate" not in tensors and tensors.shape_of("ffn_up") != (inner, width):
            matrices |= tensors.halves_of("ffn_up", (2 * inner, width))
        else:
            matrices |= {name: tensors.part(name, (inner, width)) for name in ("ffn_gate", "ffn_up")}
        return cls(shape, layer, matrices, tensors.norms(shape.family.unit_norm, "post_ffw_norm"))

    def build(self, program: Program) -> None:
        gate, up, down = (self.matrices[f"ffn_{name}"] for name in ("gate", "up", "down"))
        inputs = add_norm_before(program, self.vectors.get(self.shape.family.unit_norm), [gate, up])
        fields, per, found = gate_fields(program, gate, up, down, inputs)
        kernel = _GATES[self.shape.family.gate]
        program.add(kernel, pieces=-(-gate.tiles // per), per_piece=per, **fields)
        add_into_x(program, down, found, self.vectors.get("post_ffw_norm"))
