"""The gated unit (gated MLP): ``down(act(gate x) * up x)`` after a norm; without gate ``down(act(up x))``.

GLU variants: Shazeer, 2020 (arXiv 2002.05202). Squared ReLU: So et al., 2021 (arXiv 2109.08668).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.norm import add_norm_before
from draftwood.engines.cpu.blocks.product import add_into_x, tiles_per_piece
from draftwood.engines.cpu.code.products import MATRIX, MatrixView, tiles_of
from draftwood.engines.cpu.code.records import OPTIONAL_ROWS, ROWS, WIDEST, KernelModule, Per, PieceCode, RowsView
from draftwood.engines.cpu.code.rounding import clamped_gate, gelu, silu, squared, write_rounded_row
from draftwood.engines.cpu.code.values import LANES, Value
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Inputs, Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.formats import TILE
from draftwood.engines.files.shapes import Shape

Gating = Callable[..., Value]
"""Returns what a unit makes of numbers of its products: of gate and up, or of up alone."""
GATINGS: dict[str, Gating] = {
    "silu": lambda gate, up: silu(gate) * up,
    "gelu": lambda gate, up: gelu(gate) * up,
    "clamped": clamped_gate,
    "squared": squared,
}


class Product(NamedTuple):
    """A product of a unit before its last one: the kernel's fields of its matrix, inputs and outputs."""

    matrix: str
    x: str
    y: str

    @property
    def name(self) -> str:
        """The matrix, as files name it."""
        return f"ffn_{self.matrix}"

    def views(self, piece: PieceCode) -> tuple[MatrixView, RowsView, RowsView]:
        """Return the fields in the code of a kernel."""
        matrix, x, y = (getattr(piece.phase, name) for name in self)
        return matrix, x, y


def products_of(kind: str) -> Sequence[Product]:
    """Return the first products of a unit of this kind, of `GATINGS`; the first y becomes the result."""
    if kind == "squared":
        return [Product("up", "x", "y")]
    return [Product("gate", "x", "y"), Product("up", "x_up", "y_up")]


def fields_of(kind: str) -> dict[str, Any]:
    """Return the fields of a unit's kernel: those of its products, and ``out``, for the result's records."""
    found: dict[str, Any] = {"out": OPTIONAL_ROWS}
    for matrix, x, y in products_of(kind):
        found |= {matrix: MATRIX, x: ROWS, y: ROWS}
    return found


def write_gating(
    piece: PieceCode, tiles: tuple[Value, Value], rows: tuple[Value, Value], gating: Gating, ys: Sequence[RowsView]
) -> None:
    """Write gating(ys) to the first of them, of some tiles and rows, first and end; also records to out."""
    code, phase, (low, high) = piece.code, piece.phase, tiles
    width = (high - low) * TILE
    with code.count(*rows) as row:
        places = [y[row] + low * (4 * TILE) for y in ys]
        with code.count(0, width, LANES) as i:
            places[0].f32x16[i] = gating(*(place.f32x16[i] for place in places))
        with code.when(phase.out.start.number().differs(0)):  # a record of 64 bytes for each two tiles
            write_rounded_row(code, places[0], width, phase.out[row] + low * 32)


def _gated(kind: str) -> Callable[[PieceCode], None]:
    def write(piece: PieceCode) -> None:
        products, rows = [product.views(piece) for product in products_of(kind)], piece.whole.rows
        tiles = tiles_of(piece.per, piece.number, products[0][0].tiles)
        for matrix, x, y in products:
            matrix.product(x, y, rows, tiles)
        write_gating(piece, tiles, (piece.code.whole(0), rows), GATINGS[kind], [y for *_, y in products])

    return write


MODULE = KernelModule("gated_unit")
_GATES = {kind: MODULE.kernel(f"{kind}_gate", Per.TILES, _gated(kind), **fields_of(kind)) for kind in GATINGS}


def gate_fields(
    program: Program, matrices: Mapping[str, Matrix], inputs: Inputs, end: str = "", rows: int = WIDEST
) -> tuple[dict[str, Any], int, Inputs]:
    """Return the `fields_of` a unit, tiles per piece, and where its results lie, also rounded.

    Units of the same sizes share the buffers of these ``rows``. ``end`` is of names.
    """
    inner, down = matrices[f"ffn_up{end}"].outputs, matrices[f"ffn_down{end}"]
    size = f"{rows} rows of {inner}"
    found = program.shared_inputs(f"gate, {size}", inner, rows)
    fields, bytes_ = dict[str, Any](out=found.records_for(down)), 0
    for product in products_of(program.shape.family.gate):
        matrix = matrices[f"{product.name}{end}"]
        y = found.plain if product.y == "y" else program.shared(f"up, {size}", inner, rows)
        fields |= {product.matrix: matrix, product.x: inputs.of(matrix), product.y: y}
        bytes_ += matrix.tile_bytes
    # Pieces have pairs of tiles: two tiles are a group that is rounded.
    return fields, max(2, tiles_per_piece(bytes_) // 2 * 2), found


def add_gate(
    program: Program, matrices: Mapping[str, Matrix], inputs: Inputs, end: str = "", **how: Any
) -> tuple[Matrix, Inputs]:
    """Add the phase of a unit up to its last matrix; return this one and what it reads. ``end`` is of names."""
    fields, per, found = gate_fields(program, matrices, inputs, end)
    kernel, tiles = _GATES[program.shape.family.gate], matrices[f"ffn_up{end}"].tiles
    program.add(kernel, pieces=-(-tiles // per), per_piece=per, **fields, **how)
    return matrices[f"ffn_down{end}"], found


def unit_matrices(tensors: LayerTensors, shape: Shape, inner: int, end: str = "") -> dict[str, Matrix]:
    """Return the matrices of a unit; gate and up may lie in one tensor, ``ffn_up``. ``end`` is of names."""
    width, up, down = shape.width, f"ffn_up{end}", f"ffn_down{end}"
    matrices = {down: tensors.part(down, (width, inner))}
    names = [f"{product.name}{end}" for product in products_of(shape.family.gate)]
    if names[0] not in tensors and tensors.shape_of(up) != (inner, width):
        return matrices | tensors.halves_of(up, (2 * inner, width), end)
    return matrices | {name: tensors.part(name, (inner, width)) for name in names}


class GatedUnit(Block):
    """The gated unit of a layer."""

    hub_names: ClassVar = {
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "mlp.gate_up_proj": "ffn_up", "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up",
        "feed_forward.w2": "ffn_down", "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
        "feed_forward.down_proj": "ffn_down", "shared_mlp.input_linear": "ffn_up",
        "shared_mlp.output_linear": "ffn_down", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> GatedUnit:
        # Folders of granitemoehybrid name it as a mixture's shared expert, without a mixture, too.
        end = "_shexp" if "ffn_down_shexp" in tensors and "ffn_down" not in tensors else ""
        found = unit_matrices(tensors, shape, shape.sizes[layer].inner, end)
        matrices = {name.removesuffix(end): matrix for name, matrix in found.items()}
        norms = tensors.norms(shape.family.unit_norm, "post_ffw_norm")
        if shape.multipliers.gate != 1:  # also of up, which `build` makes up for
            norms[shape.family.unit_norm] *= np.float32(shape.multipliers.gate)
        return cls(shape, layer, matrices, norms)

    def build(self, program: Program) -> None:
        readers = [self.matrices[product.name] for product in products_of(self.shape.family.gate)]
        inputs = add_norm_before(program, self.vectors.get(self.shape.family.unit_norm), readers)
        down, found = add_gate(program, self.matrices, inputs)
        factors = self.shape.multipliers
        add_into_x(program, down, found, self.vectors.get("post_ffw_norm"), scale=factors.unit / factors.gate)
