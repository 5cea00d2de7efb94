"""The block after all layers: the last norm, scores of the rows that are asked for, and each row's best token."""

from __future__ import annotations

import numpy as np

from draftwood.engines.cpu.blocks.norm import LAST_NORM, add_norm
from draftwood.engines.cpu.blocks.product import tiles_per_piece
from draftwood.engines.cpu.code.emit import Code
from draftwood.engines.cpu.code.products import MATRIX, tiles_of
from draftwood.engines.cpu.code.records import (
    BEST,
    NUMBER,
    OPTIONAL,
    REAL,
    ROWS,
    KernelModule,
    Per,
    PieceCode,
    RowsView,
)
from draftwood.engines.cpu.code.rounding import capped
from draftwood.engines.cpu.code.values import I32, LANES, LOWEST, Place, Value
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Inputs, Program, Vector
from draftwood.engines.files.formats import TILE


def _scores(piece: PieceCode) -> None:
    """Write scores of the scored rows for a piece's tokens, and each row's best one: the lowest of equals."""
    code, whole, phase = piece.code, piece.whole, piece.phase
    low, high = tiles_of(piece.per, piece.number, phase.w.tiles)
    rows, stride = whole.scored_rows, phase.y_stride
    phase.w.product(phase.x, RowsView(whole.scores, stride), rows, (low, high), scale=phase.scale)
    first, end = low * TILE, (high * TILE).least(phase.width)
    with code.count(0, rows) as row:
        line = whole.scores + row * stride
        with code.when(phase.soft_cap > 0.0), code.count(first, end, LANES) as token:
            line.f32x16[token] = capped(line.f32x16[token], phase.soft_cap)
        with code.when(phase.shift.number().differs(0)), code.count(first, end, LANES) as token:
            line.f32x16[token] = line.f32x16[token] + phase.shift.f32x16[token]
        record = whole.best + (piece.number * rows + row) * BEST
        score, token, is_odd = best_of(code, line, first, end)
        record.f32[0] = score
        record.i32[1] = token
        record.i32[2] = is_odd


def best_of(code: Code, line: Place, first: Value, end: Value) -> tuple[Value, Value, Value]:
    """Return the best of a row's scores from ``first`` up to ``end``, its number, and not 0 if one is NaN.

    The number is the lowest of equals, and -1 where no score is above -infinity.
    """
    best, at = code.variable(code.real(LOWEST, LANES)), code.variable(code.same(I32, -1))
    is_odd = code.variable(code.same(I32, 0))
    with code.count(first, end, LANES) as start:
        numbers = code.listed(I32, range(LANES)) + start.narrow(I32)
        score = (numbers < end.narrow(I32)).where(line.f32x16[start], LOWEST)
        is_odd.now = is_odd.now | score.is_nan.unsigned(I32)
        is_better = score > best.now
        at.now = is_better.where(numbers, at.now)
        best.now = is_better.where(score, best.now)
    scores, numbers = best.now, at.now
    found, number = scores.lane(0), numbers.lane(0)
    for lane in range(1, LANES):
        found, number = _better_of(found, number, scores.lane(lane), numbers.lane(lane))
    return found, number, is_odd.now.fold(Value.__or__)


def _better_of(score: Value, token: Value, other: Value, other_token: Value) -> tuple[Value, Value]:
    """Return the better of two scores with its token, of equal ones the lower; -1, no token, counts as largest."""
    wins = (other > score) | (other.equals(score) & other_token.below(token))
    return wins.where(other, score), wins.where(other_token, token)


def _choices(piece: PieceCode) -> None:
    """Write each row's best token of all pieces; -1 if a score is NaN or none is above -infinity."""
    code, whole = piece.code, piece.whole
    rows = whole.scored_rows
    with code.count(0, rows) as row:
        found, token = code.variable(code.real(LOWEST)), code.variable(code.same(I32, -1, 1))
        is_odd = code.variable(code.same(I32, 0, 1))
        with code.count(0, piece.phase.score_pieces) as part:
            record = whole.best + (part * rows + row) * BEST
            found.now, token.now = _better_of(found.now, token.now, record.f32[0], record.i32[1])
            is_odd.now = is_odd.now | record.i32[2]
        whole.choices.i64[row] = is_odd.now.differs(0).where(-1, token.now).signed()


MODULE = KernelModule("scores")
_SCORES = MODULE.kernel(
    "scores", Per.TILES, _scores, w=MATRIX, x=ROWS, y_stride=NUMBER, width=NUMBER, scale=REAL, soft_cap=REAL,
    shift=OPTIONAL,
)  # fmt: skip
"""``scale * w x``, soft-capped, of ``width`` tokens, to the pass's scores; each piece's best to its records. If
``shift`` is given, it is added."""
_CHOICES = MODULE.kernel("choices", Per.ONE, _choices, score_pieces=NUMBER)


def add_scores(program: Program, output: Matrix, last_norm: Vector) -> None:
    """Add the norm after the last layer, the scores, and the choices."""
    shape, inputs = program.shape, Inputs(program.plain, program.rounded)
    out = inputs.records_for(output)
    add_norm(program, LAST_NORM, program.x, last_norm, y=inputs.plain, out=out, ends=True)
    per = tiles_per_piece(output.tile_bytes, pieces=4)
    program.pieces = -(-output.tiles // per)
    shift = None
    if shape.suppressed:
        shift = np.zeros(output.tiles * TILE, dtype=np.float32)
        shift[list(shape.suppressed)] = -np.inf
    program.add(
        _SCORES, pieces=program.pieces, per_piece=per, w=output, x=inputs.of(output),
        y_stride=4 * program.score_width, width=shape.vocabulary, scale=shape.score_scale,
        soft_cap=shape.score_cap, shift=shift, ends=True,
    )  # fmt: skip
    program.add(_CHOICES, score_pieces=program.pieces, ends=True)
