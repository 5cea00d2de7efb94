"""Weights of a file, brought into the layout of `formats`: sixteen outputs side by side.

Floats are packed as [tiles, inputs, 16], F16 and BF16 as their 16 bits in uint16, F32 as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS, TILE, Format
from draftwood.engines.cpu.gguf_blocks import Bytes, read_blocks
from draftwood.engines.cpu.gguf_file import Tensor
from draftwood.engines.cpu.gguf_types import Codes, Floats, blocks_of, codes_of, read_floats
from draftwood.engines.cpu.quantising import bfloat16_bits, quantised
from draftwood.engines.cpu.tiles import fill, read_tiles, tiles_shape, write_tiles, zeros
from draftwood.errors import ModelError, UnsupportedModelError

_PIECE = 1 << 20  # weights that a thread packs at once, so that what it makes on the way stays in its cache
_FLOATS: dict[str, type[np.generic]] = {"F32": np.float32, "F16": np.uint16, "BF16": np.uint16}

Packed = NDArray[Any]
Room = Callable[[tuple[int, ...], type[np.generic]], Packed]
Rows = slice | NDArray[np.intp] | None


def pack(codes: Codes, format: Format) -> Bytes:
    """Pack codes [outputs, inputs] as uint8[tiles, blocks, bytes of a block], outputs padded with zeros to 16.

    Raises `ModelError` where the inputs are no multiple of what a block holds.
    """
    outputs, inputs = codes.codes.shape
    tiles = zeros(tiles_shape(outputs, inputs, format), np.uint8)
    write_tiles(tiles, blocks_of(codes, format), format)
    return tiles


def unpack(packed: Bytes, format: Format, outputs: int) -> Codes:
    """Return the codes of the first ``outputs`` outputs: the inverse of `pack`."""
    return codes_of(read_tiles(packed, format, outputs), format)


def packed_tensor(tensor: Tensor, rows: Rows = None, room: Room = zeros) -> Packed:
    """Pack a tensor of the file.

    Parameters
    ----------
    tensor
        A matrix [outputs, inputs], or one for each expert.
    rows
        Which outputs, in which order; all where it is None.
    room
        Makes the array, zeros of a shape and dtype.

    Returns
    -------
    uint8[tiles, blocks, bytes of a block] of a quantised type, uint16 or float32[tiles, inputs, 16] of floats;
    with the experts in front where the tensor has them; it begins at a multiple of 64 bytes

    Raises
    ------
    UnsupportedModelError
        The type has no format, or is unknown.
    ModelError
        The tensor is no matrix.
    """
    packed, pieces = plan(tensor, rows, room)
    for piece in pieces:
        _run(piece)
    return packed


@contextmanager
def packing(pieces: Sequence[Piece], threads: int, done: Callable[[int], None]) -> Iterator[None]:
    """Run a block beside which threads pack the pieces; at its end all are packed.

    ``done`` takes the bytes of each piece, one after another, at the end of the block.
    """
    with ThreadPoolExecutor(threads) as pool:
        try:
            begun = [pool.submit(_run, piece) for piece in pieces]
            yield
            for piece, made in zip(pieces, begun, strict=True):
                made.result()
                done(piece.tiles.nbytes)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a matrix of the file, uint8[outputs, bytes of a row], and the tiles that they go to."""

    kind: str
    becomes: str
    raw: Bytes
    rows: slice | NDArray[np.intp]
    tiles: Packed


def plan(tensor: Tensor, rows: Rows, room: Room, kind: str = "") -> tuple[Packed, list[Piece]]:
    """Return room for the packed tensor, and the pieces that fill it; see `packed_tensor`.

    ``kind`` is the type that its floats become; empty: they stay as they are.
    """
    kind = kind or tensor.kind
    if len(tensor.shape) not in (2, 3):
        raise ModelError(
            f"the tensor {tensor.name!r} has the shape {tensor.shape}: get a file that has a matrix there"
        )
    data, inputs = tensor.data, tensor.shape[-1]
    if isinstance(rows, slice):
        data, rows = data[..., rows, :], None
    outputs = data.shape[-2] if rows is None else len(rows)
    packed = room((*data.shape[:-2], *_shape(kind, outputs, inputs)), _FLOATS.get(kind, np.uint8))
    matrices = zip(data, packed, strict=True) if data.ndim == 3 else [(data, packed)]
    step = max(TILE, _PIECE // inputs // TILE * TILE)
    pieces = []
    for raw, tiles in matrices:
        for start in range(0, outputs, step):
            some = slice(start, start + step) if rows is None else rows[start : start + step]
            pieces.append(Piece(tensor.kind, kind, raw, some, tiles[start // TILE : (start + step) // TILE]))
    return packed, pieces


def _shape(kind: str, outputs: int, inputs: int) -> tuple[int, ...]:
    if kind in _FLOATS:
        return -(-outputs // TILE), inputs, TILE
    if kind not in FORMATS:
        known = ", ".join((*FORMATS, *_FLOATS))
        raise UnsupportedModelError(f"weights of type {kind} are not supported: get the model in one of {known}")
    return tiles_shape(outputs, inputs, FORMATS[kind])


def _run(piece: Piece) -> None:
    raw, kind = piece.raw[piece.rows], piece.becomes
    if kind in _FLOATS:
        values = raw.view(_FLOATS[kind]) if kind == piece.kind else _rounded(kind, read_floats(piece.kind, raw))
        fill(piece.tiles.swapaxes(1, 2), values)
    else:
        same = kind == piece.kind
        blocks = read_blocks(kind, raw) if same else quantised(kind, read_floats(piece.kind, raw))
        write_tiles(piece.tiles, blocks, FORMATS[kind])


def _rounded(kind: str, values: Floats) -> Packed:
    """Return floats as the bits of F16 or BF16."""
    if kind == "BF16":
        return bfloat16_bits(values)
    with np.errstate(over="ignore"):
        return values.astype(np.float16).view(np.uint16)
