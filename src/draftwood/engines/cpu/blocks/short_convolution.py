"""The short convolution of LFM2: ``out(c * conv(b * u))`` of a norm, where ``b, c, u = split(in x)``.

Each channel is convolved along the row's path: ``conv[:, 0] * w[t - 2]``, then ``+ conv[:, 1] * w[t - 1]`` and
``+ conv[:, 2] * w[t]`` by fma, of the inputs ``w = b * u``. LFM2: Liquid AI, 2025 (arXiv 2511.23404).
"""

from __future__ import annotations

from typing import Any, ClassVar

from draftwood.engines.cpu.blocks.block import Block
from draftwood.engines.cpu.blocks.norm import add_norm_before, write_records
from draftwood.engines.cpu.blocks.product import add_into_x, add_product
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL_ROWS,
    ROWS,
    KernelModule,
    Per,
    PieceCode,
    inputs_before,
)  # fmt: skip
from draftwood.engines.cpu.code.values import LANES, Value
from draftwood.engines.cpu.program import Program
from draftwood.engines.cpu.tensors import LayerTensors
from draftwood.engines.files.shapes import Shape
from draftwood.errors import UnsupportedModelError


def _inputs(piece: PieceCode) -> None:
    code, phase = piece.code, piece.phase
    with piece.rows() as row:
        b, w = phase.x[row], phase.w[row]
        u = b + phase.width * 8
        kept = piece.whole.kept.i64[row]
        with code.count(0, phase.width, LANES) as i:
            w.f32x16[i] = b.f32x16[i] * u.f32x16[i]
        with code.when(kept.differs(0)):
            copy = (kept + phase.layer * phase.width * 4).place()
            with code.count(0, phase.width, LANES) as i:
                copy.f32x16[i] = w.f32x16[i]


def _convolved(piece: PieceCode) -> None:
    with piece.rows() as row:
        _write_row(piece, row)
        write_records(piece, row, piece.phase.width)


def _write_row(piece: PieceCode, row: Value) -> None:
    phase = piece.phase
    last, second, _ = inputs_before(piece, row)
    c = phase.x[row] + phase.width * 4
    with piece.code.count(0, phase.width, LANES) as i:
        factors = [(phase.factors + phase.width * (4 * j)).f32x16[i] for j in range(3)]
        found = second.f32x16[i] * factors[0]
        found = found.plus_product(last.f32x16[i], factors[1]).plus_product(phase.w[row].f32x16[i], factors[2])
        phase.y[row].f32x16[i] = c.f32x16[i] * found


MODULE = KernelModule("short_convolution")
_ROW = {"x": ROWS, "w": ROWS, "width": NUMBER, "layer": NUMBER}  # the number among the layers with a convolution
_INPUTS = MODULE.kernel("convolution_inputs", Per.ROWS, _inputs, **_ROW)
"""``w = b * u`` of x = (b, c, u); kept for later passes where the pass's record says so."""
_CONVOLVED = MODULE.kernel("convolved", Per.ROWS, _convolved, **_ROW, factors=ADDRESS, y=ROWS, out=OPTIONAL_ROWS)
"""``y = c * conv(w)``, also as records to out if it is given; ``factors`` float32[3, width]."""


class ShortConvolution(Block):
    """The short convolution of a layer, in place of attention."""

    hub_names: ClassVar = {
        "conv.in_proj": "shortconv.in_proj", "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj",
    }  # fmt: skip

    @classmethod
    def load(cls, tensors: LayerTensors, shape: Shape, layer: int) -> ShortConvolution:
        width = shape.width
        if width % LANES:
            raise UnsupportedModelError(
                f"the CPU engine runs short convolutions of multiples of {LANES} numbers, not of {width}: "
                "take another engine"
            )
        matrices = {
            "shortconv.in_proj": tensors.part("shortconv.in_proj", (3 * width, width)),
            "shortconv.out_proj": tensors.part("shortconv.out_proj", (width, width)),
        }
        factors = tensors.floats("shortconv.conv", (width, shape.convolution))
        vectors = tensors.norms("attn_norm", "post_attention_norm") | {"shortconv.conv": factors.T.copy().ravel()}
        return cls(shape, layer, matrices, vectors)

    def build(self, program: Program) -> None:
        width = self.shape.width
        into, out = (self.matrices[f"shortconv.{name}_proj"] for name in ("in", "out"))
        inputs = add_norm_before(program, self.vectors.get("attn_norm"), [into])
        x = program.shared("b, c, u", 3 * width)
        add_product(program, into, inputs, x)
        fields: dict[str, Any] = {"x": x, "w": program.inputs, "width": width, "layer": program.take_inputs()}
        program.add(_INPUTS, row=width, **fields)
        found = program.shared_inputs("convolved", width)
        factors, records = self.vectors["shortconv.conv"], found.records_for(out)
        program.add(_CONVOLVED, row=width, **fields, factors=factors, y=found.plain, out=records)
        add_into_x(program, out, found, None)
