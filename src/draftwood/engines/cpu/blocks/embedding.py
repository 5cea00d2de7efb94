"""The block before all layers: each row's token becomes a row of the embedding."""

from __future__ import annotations

from draftwood.engines.cpu.code.packed import TABLE
from draftwood.engines.cpu.code.records import REAL, ROWS, KernelModule, Per, PieceCode
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Program


def _embedding(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row:
        phase.table.read(piece.whole.tokens.i32[row].signed(), phase.scale, phase.out[row])


MODULE = KernelModule("embedding")
_EMBEDDING = MODULE.kernel("embedding", Per.ROWS, _embedding, table=TABLE, scale=REAL, out=ROWS)
"""Each row's token's weights times ``scale``, to out."""


def add_embedding(program: Program, embedding: Matrix, out: Buffer, scale: float) -> None:
    """Add the phase that reads the tokens' embeddings."""
    program.vocabulary = embedding.outputs
    program.add(_EMBEDDING, row=program.shape.width, table=embedding, scale=scale, out=out)
