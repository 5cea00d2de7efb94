"""Products of a matrix and rows, and the addition of what a block computes to x."""

from __future__ import annotations

from typing import Any

from draftwood.engines.cpu.blocks.norm import NORM_ADDED, add_norm
from draftwood.engines.cpu.code.products import MATRIX, tiles_of
from draftwood.engines.cpu.code.records import NUMBER, OPTIONAL, REAL, ROWS, KernelModule, Per, PieceCode
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Inputs, Program, Vector

_PIECE_BYTES = 16 << 10
"""Bytes of weights in a piece of work: small enough to divide a phase evenly, large enough to be worth taking."""


def _product(piece: PieceCode) -> None:
    phase = piece.phase
    tiles = tiles_of(piece.per, piece.number, phase.w.tiles)
    phase.w.product(phase.x, phase.y, piece.whole.rows, tiles, adds=phase.adds, scale=phase.scale, bias=phase.bias)


MODULE = KernelModule("product")
PRODUCT = MODULE.kernel(
    "product", Per.TILES, _product, w=MATRIX, x=ROWS, y=ROWS, adds=NUMBER, scale=REAL, bias=OPTIONAL
)
"""``y = scale * (w x + bias)``, or where it ``adds``, ``y += scale * (w x + bias)``."""


def tiles_per_piece(bytes_: int, *, pieces: int = 1) -> int:
    """Return how many tiles of so many bytes a piece takes."""
    return max(1, pieces * _PIECE_BYTES // bytes_)


def add_product(
    program: Program, matrix: Matrix, inputs: Inputs, y: Buffer, *, adds: bool = False, scale: float = 1.0,
    bias: Vector | None = None, **how: Any,
) -> None:  # fmt: skip
    """Add a phase of products: see `PRODUCT`."""
    per = tiles_per_piece(matrix.tile_bytes)
    program.add(
        PRODUCT, pieces=-(-matrix.tiles // per), per_piece=per, w=matrix, x=inputs.of(matrix), y=y, adds=adds,
        scale=scale, bias=bias, **how,
    )  # fmt: skip


def add_into_x(
    program: Program, matrix: Matrix, inputs: Inputs, norm: Vector | None, bias: Vector | None = None, *,
    scale: float = 1.0,
) -> None:  # fmt: skip
    """Add a block's last product, times ``scale``, which is added to x, after a norm where the family has one."""
    if norm is None:
        scale *= program.shape.residual_scale
        add_product(program, matrix, inputs, program.x, adds=True, scale=scale, bias=bias)
    else:
        add_product(program, matrix, inputs, program.plain, bias=bias)
        add_norm_into_x(program, norm)


def add_norm_into_x(program: Program, norm: Vector) -> None:
    """Add the phase that adds the norm of the plain rows to x."""
    scale = program.shape.residual_scale
    add_norm(program, NORM_ADDED, program.plain, norm, out=program.x, scale=scale)
