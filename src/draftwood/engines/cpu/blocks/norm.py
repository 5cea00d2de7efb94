"""Norms, ``y = x / rms(x) * weight``: what each other block reads, and the copies of hidden states.

Root mean square layer normalisation: Zhang and Sennrich, 2019 (arXiv 1910.07467). Squares are added in 16 lanes,
which are folded: upper half onto lower half, again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.engines.cpu.code.records import (
    ADDRESS,
    NUMBER,
    OPTIONAL_ROWS,
    REAL,
    ROWS,
    KernelModule,
    Per,
    PhaseKernel,
    PieceCode,
)
from draftwood.engines.cpu.code.rounding import write_rounded_row
from draftwood.engines.cpu.code.values import LANES, Place, Value
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Inputs, Program, Vector
from draftwood.engines.files.families import Family


def write_norm(piece: PieceCode, values: Place, out: Place, *, adds: bool = False) -> None:
    """Write the norm of a row to ``out``, or add ``scale`` times it."""
    code, phase = piece.code, piece.phase
    total = code.variable(code.real(0.0, LANES))
    with code.count(0, phase.width.padded(), LANES) as i:
        value = values.f32x16[i]
        total.now = total.now.plus_product(value, value)
    scale = 1.0 / (total.now.sum() / phase.width.real() + phase.epsilon).sqrt()
    with code.count(0, phase.width.padded(), LANES) as i:
        value = values.f32x16[i] * scale * phase.weight.f32x16[i]
        out.f32x16[i] = out.f32x16[i].plus_product(value, phase.scale.splat()) if adds else value


def write_records(piece: PieceCode, row: Value, width: Value) -> None:
    """Write a row of y as records to out, if the phase has rows there."""
    phase = piece.phase
    with piece.code.when(phase.out.start.number().differs(0)):
        write_rounded_row(piece.code, phase.y[row], width, phase.out[row])


def _norm(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row:
        write_norm(piece, phase.x[row], phase.y[row])
        write_records(piece, row, phase.width)


def _norm_added(piece: PieceCode) -> None:
    with piece.rows() as row:
        write_norm(piece, piece.phase.x[row], piece.phase.out[row], adds=True)


def _last(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows("scored_rows") as row:
        write_norm(piece, phase.x[piece.whole.scored.i64[row]], phase.y[row])
        write_records(piece, row, phase.width)


def _copied(piece: PieceCode) -> None:
    with piece.rows() as row, piece.code.count(0, piece.phase.width.padded(), LANES) as i:
        piece.phase.y[row].f32x16[i] = piece.phase.x[row].f32x16[i]


def _rounded(piece: PieceCode) -> None:
    with piece.rows() as row:
        write_rounded_row(piece.code, piece.phase.x[row], piece.phase.width, piece.phase.out[row])


MODULE = KernelModule("norm")
_FIELDS = {"x": ROWS, "weight": ADDRESS, "width": NUMBER, "epsilon": REAL}
NORM = MODULE.kernel("norm", Per.ROWS, _norm, **_FIELDS, y=ROWS, out=OPTIONAL_ROWS)
"""Norms of x to y, also as records to out if it is given."""
NORM_ADDED = MODULE.kernel("norm_added", Per.ROWS, _norm_added, **_FIELDS, out=ROWS, scale=REAL)
"""``out += scale * norm(x)``."""
LAST_NORM = MODULE.kernel("last_norm", Per.SCORED, _last, **_FIELDS, y=ROWS, out=OPTIONAL_ROWS)
"""Norms of the scored rows of x, which lie side by side in y, also as records to out if it is given."""
COPIED = MODULE.kernel("copied", Per.ROWS, _copied, x=ROWS, y=ROWS, width=NUMBER)
"""Rows of x to y."""
ROUNDED = MODULE.kernel("rounded", Per.ROWS, _rounded, x=ROWS, out=ROWS, width=NUMBER)
"""Rows of x as records to out."""


def norm_names(family: Family) -> dict[str, str]:
    """Return GGUF's names of a layer's norms by transformers'.

    Where norms stand only before blocks, post_attention_layernorm is the unit's.
    """
    after_attention = family.unit_norm if family.norms == "before" else "post_attention_norm"
    return {
        "input_layernorm": "attn_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm",
        "pre_feedforward_layernorm": "ffn_norm", "pre_ff_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
        "post_attention_layernorm": after_attention, "norm": "attn_norm",
    }  # fmt: skip


def add_norm(
    program: Program, kernel: PhaseKernel, x: Buffer, weight: Vector, *, width: int = 0, **more: Any
) -> None:
    """Add a phase of norms of rows of ``width`` numbers (0: the model's); ``more`` is as of `Program.add`."""
    width = width or program.shape.width
    program.add(kernel, row=width, x=x, weight=weight, width=width, epsilon=program.shape.epsilon, **more)


def add_norm_before(program: Program, weight: Vector | None, matrices: Sequence[Matrix]) -> Inputs:
    """Add the norm before a block, or only the rounding; return what its matrices read."""
    x, plain, rounded = program.x, program.plain, program.rounded
    if weight is None:
        inputs = Inputs(x, rounded)
        add_rounded(program, inputs, matrices, program.shape.width)
        return inputs
    rounds = any(matrix.is_rounded for matrix in matrices)
    add_norm(program, NORM, x, weight, y=plain, out=rounded if rounds else None)
    return Inputs(plain, rounded)


def add_rounded(program: Program, inputs: Inputs, matrices: Sequence[Matrix], width: int, **how: Any) -> None:
    """Add the rounding of rows of ``width`` numbers, if one of these matrices takes them rounded."""
    if any(matrix.is_rounded for matrix in matrices):
        program.add(ROUNDED, row=width, x=inputs.plain, out=inputs.rounded, width=width, **how)


def add_kept_states(program: Program, layer: int, last_norm: Vector | None = None) -> None:
    """Add a copy of x before a layer (with ``last_norm``: its norm after the last one) for passes asked for it."""
    y = program.states_of(layer)
    if last_norm is None:
        width = program.shape.width
        program.add(COPIED, row=width, x=program.x, y=y, width=width, only=layer)
    else:
        add_norm(program, NORM, program.x, last_norm, y=y, out=None, only=layer)
