"""Weights of a file, brought into the layout of `formats`: sixteen outputs side by side.

Floats are packed as [tiles, inputs, 16], F16 and BF16 as their 16 bits in uint16, F32 as float32.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS, GROUP, TILE, Format
from draftwood.engines.cpu.gguf_blocks import Blocks, Bytes, read_blocks
from draftwood.engines.cpu.gguf_file import Tensor
from draftwood.engines.cpu.gguf_types import Codes, Floats, bfloat16_bits, blocks_of, quantised, read_floats
from draftwood.errors import ModelError, UnsupportedModelError

_SLAB = 64 << 20
_LINE = 64  # bytes of a cache line
_HALF_ROW = 2 * TILE  # bytes of one float16 for each output


def tiles_shape(outputs: int, inputs: int, format: Format) -> tuple[int, int, int]:
    """Return tiles, blocks and bytes of a block; raises `ModelError` where the inputs are no whole blocks."""
    held = GROUP * format.groups
    if inputs % held:
        raise ModelError(f"{inputs} inputs are no multiple of the {held} of a block: choose another quantisation")
    return -(-outputs // TILE), inputs // held, format.block_bytes


def zeros(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """Return zeros that begin at a multiple of 64 bytes, which a processor reads at once."""
    size = prod(shape) * np.dtype(dtype).itemsize
    room = np.zeros(size + _LINE, np.uint8)
    start = -room.ctypes.data % _LINE
    return room[start : start + size].view(dtype).reshape(shape)


def write_tiles(tiles: Bytes, blocks: Blocks, format: Format) -> None:
    """Write rows into tiles; what belongs to no row is left alone."""
    halves = _halves(tiles, format)
    fill(halves[0], blocks.scale)
    if blocks.least is not None:
        fill(halves[1], blocks.least)
    factors, least_factors = _factors(tiles, format)
    if blocks.factors is not None:
        fill(factors, blocks.factors.view(np.uint8).reshape(-1, *factors.shape[2:]))
    if blocks.least_factors is not None:
        fill(least_factors, blocks.least_factors.reshape(-1, *factors.shape[2:]))
    for words, plane in zip(_planes(tiles, format), blocks.planes, strict=True):
        fill(words, plane.view(np.uint32))


def fill(place: NDArray[Any], rows: NDArray[Any]) -> None:
    """Copy rows [rows, ...] to a place for them, [tiles, 16, ...]."""
    whole, rest = divmod(len(rows), TILE)
    place[:whole] = rows[: whole * TILE].reshape(whole, TILE, *rows.shape[1:])
    if rest:
        place[whole, :rest] = rows[whole * TILE :]


def _halves(tiles: Bytes, format: Format) -> list[NDArray[np.float16]]:
    """Return the places of ``scale`` and, where the format has it, of ``least``, [tiles, 16, blocks]."""
    rows = tiles[..., : 2 * _HALF_ROW].view(np.float16)
    return [rows[..., TILE * i : TILE * (i + 1)].swapaxes(1, 2) for i in range(1 + format.least)]


def _factors(tiles: Bytes, format: Format) -> tuple[Bytes, Bytes]:
    """Return the places of the factors of ``scale`` and ``least``, [tiles, 16, blocks, groups, of a group]."""
    head = tiles[..., _HALF_ROW * (1 + format.least) : format.head_bytes]
    rows = head.reshape(*tiles.shape[:2], format.groups, (1 + format.least) * format.factors, TILE)
    rows = np.moveaxis(rows, -1, 1)
    return rows[..., : format.factors], rows[..., format.factors :]


def _planes(tiles: Bytes, format: Format) -> list[NDArray[np.uint32]]:
    """Return the places of the planes, [tiles, 16, blocks, groups, words]; a word is a step of four inputs."""
    words = tiles[..., format.head_bytes :].view(np.uint32)
    words = words.reshape(*tiles.shape[:2], format.groups, sum(format.planes), TILE)
    words = np.moveaxis(words, -1, 1)
    ends = np.cumsum(format.planes).tolist()
    return [words[..., end - bits : end] for bits, end in zip(format.planes, ends, strict=True)]


class Slabs:
    """Hands out zeros from large pieces of memory, in huge pages, which a pass reads a fifth quicker.

    A piece lives as long as one of its arrays.
    """

    def __init__(self) -> None:
        self._left: NDArray[np.uint8] = np.zeros(0, dtype=np.uint8)

    def zeros(self, shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
        """Return zeros that begin at a cache line; `MemoryError` where there is no room."""
        size = prod(shape) * np.dtype(dtype).itemsize
        taken = -(-size // _LINE) * _LINE
        if taken > len(self._left):
            self._left = _slab(max(taken, _SLAB))
        found, self._left = self._left[:size], self._left[taken:]
        return found.view(dtype).reshape(shape)


def _slab(size: int) -> NDArray[np.uint8]:
    try:
        private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
        memory = mmap.mmap(-1, size, **private)  # shared memory, the default, gets no huge pages
    except (OSError, ValueError) as error:
        raise MemoryError(f"no room for {size} bytes") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, dtype=np.uint8)


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


@dataclass(frozen=True, slots=True)
class Matrix:
    """One packed matrix, or one for each expert, and the functions for its type."""

    kind: str
    packed: NDArray[Any]
    outputs: int
    inputs: int
    product: int
    reader: int

    @property
    def is_rounded(self) -> bool:
        """Whether its products take inputs that are rounded to 8 bits."""
        return self.kind in FORMATS

    @property
    def tiles(self) -> int:
        return int(self.packed.shape[-3])

    @property
    def blocks(self) -> int:
        """Blocks of a tile; of floats, inputs."""
        return int(self.packed.shape[-2])

    @property
    def tile_bytes(self) -> int:
        return int(self.packed.strides[-3])

    @property
    def expert_bytes(self) -> int:
        """Bytes from one expert's matrix to the next one's; 0 of a matrix that is one."""
        return int(self.packed.strides[0]) if self.packed.ndim == 4 else 0
