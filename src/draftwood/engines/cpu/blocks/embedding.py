"""The block before all layers: each row's token becomes a row of the embedding."""

from __future__ import annotations

from draftwood.engines.cpu.code.packed import TABLE
from draftwood.engines.cpu.code.records import NUMBER, REAL, ROWS, KernelModule, Per, PieceCode
from draftwood.engines.cpu.code.values import LANES
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Program


def _embedding(piece: PieceCode) -> None:
    phase, nothing = piece.phase, piece.code.real(0.0, LANES)
    with piece.rows() as row:
        out = phase.out[row]
        out.f32x16[phase.width.padded() - LANES] = nothing  # what an earlier pass has left there may be NaN
        phase.table.read(piece.whole.tokens.i32[row].signed(), phase.scale, out)


MODULE = KernelModule("embedding")
_EMBEDDING = MODULE.kernel("embedding", Per.ROWS, _embedding, table=TABLE, scale=REAL, width=NUMBER, out=ROWS)
"""For each row, its token's row of the embedding times ``scale``, to out."""


def add_embedding(program: Program, embedding: Matrix, out: Buffer, scale: float) -> None:
    """Add the phase that reads the tokens' embeddings."""
    program.vocabulary = embedding.outputs
    width = program.shape.width
    program.add(_EMBEDDING, row=width, table=embedding, scale=scale, width=width, out=out)
