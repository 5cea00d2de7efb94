"""The gated unit (gated MLP): ``down(act(gate x) * up x)`` after a norm.

GLU variants: Shazeer, 2020 (arXiv 2002.05202).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.norm import add_norm_before
from draftwood.engines.cpu.blocks.product import add_into_x, tiles_per_piece
from draftwood.engines.cpu.code.products import MATRIX, tiles_of
from draftwood.engines.cpu.code.records import OPTIONAL_ROWS, ROWS, WIDEST, KernelModule, Per, PieceCode
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
    program: Program, gate: Matrix, up: Matrix, down: Matrix, inputs: Inputs, rows: int = WIDEST
) -> tuple[dict[str, Any], int, Inputs]:
    """Return the `FIELDS` of a gated unit, tiles per piece, and where its results lie, also rounded.

    Units of the same sizes share the buffers of these ``rows``.
    """
    inner = gate.outputs
    size = f"{rows} rows of {inner}"
    found = program.shared_inputs(f"gate, {size}", inner, rows)
    fields = {
        "gate": gate, "up": up, "x": inputs.of(gate), "x_up": inputs.of(up), "y": found.plain,
        "y_up": program.shared(f"up, {size}", inner, rows), "out": found.records_for(down),
    }  # fmt: skip
    # Pieces have pairs of tiles: two tiles are a group that is rounded.
    per = tiles_per_piece((gate.tile_bytes + up.tile_bytes) // 2) // 4 * 2
    return fields, max(2, per), found


def add_gate(
    program: Program, matrices: Mapping[str, Matrix], inputs: Inputs, end: str = "", **how: Any
) -> tuple[Matrix, Inputs]:
    """Add the phase of a unit up to its last matrix; return this one and what it reads. ``end`` is of names."""
    gate, up, down = (matrices[f"ffn_{name}{end}"] for name in ("gate", "up", "down"))
    fields, per, found = gate_fields(program, gate, up, down, inputs)
    kernel = _GATES[program.shape.family.gate]
    program.add(kernel, pieces=-(-gate.tiles // per), per_piece=per, **fields, **how)
    return down, found


def unit_matrices(tensors: LayerTensors, width: int, inner: int, end: str = "") -> dict[str, Matrix]:
    """Return the matrices of a gated unit; gate and up may lie in one tensor, ``ffn_up``. ``end`` is of names."""
    gate, up, down = (f"ffn_{name}{end}" for name in ("gate", "up", "down"))
    matrices = {down: tensors.part(down, (width, inner))}
    if gate not in tensors and tensors.shape_of(up) != (inner, width):
        return matrices | tensors.halves_of(up, (2 * inner, width), end)
    return matrices | {name: tensors.part(name, (inner, width)) for name in (gate, up)}


class GatedUnit(Block):
    """The gated unit of a layer."""

    hub_names: ClassVar = {
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "mlp.gate_up_proj": "ffn_up", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down", "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down", "shared_mlp.input_linear": "ffn_up",
        "shared_mlp.output_linear": "ffn_down",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> GatedUnit:
        # Folders of granitemoehybrid name it as a mixture's shared expert, without a mixture, too.
        end = "_shexp" if "ffn_down_shexp" in tensors and "ffn_down" not in tensors else ""
        found = unit_matrices(tensors, shape.width, shape.sizes[layer].inner, end)
        matrices = {name.removesuffix(end): matrix for name, matrix in found.items()}
        norms = tensors.norms(shape.family.unit_norm, "post_ffw_norm")
        if shape.multipliers.gate != 1:  # also of up, which `build` makes up for
            norms[shape.family.unit_norm] *= np.float32(shape.multipliers.gate)
        return cls(shape, layer, matrices, norms)

    def build(self, program: Program) -> None:
        readers = [self.matrices["ffn_gate"], self.matrices["ffn_up"]]
        inputs = add_norm_before(program, self.vectors.get(self.shape.family.unit_norm), readers)
        down, found = add_gate(program, self.matrices, inputs)
        factors = self.shape.multipliers
        add_into_x(program, down, found, self.vectors.get("post_ffw_norm"), scale=factors.unit / factors.gate)
