"""Writes rows into tiles of sixteen outputs and reads them back: what `formats` says, in numpy."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import GROUP, TILE, Format
from draftwood.engines.cpu.gguf_blocks import Blocks, Bytes
from draftwood.errors import ModelError

_HALF_ROW = 2 * TILE  # bytes of one float16 for each output
_LINE = 64  # bytes of a cache line


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


def read_tiles(tiles: Bytes, format: Format, outputs: int) -> Blocks:
    """Read the first outputs of tiles: the inverse of `write_tiles`."""
    halves = [_drained(place, outputs) for place in _halves(tiles, format)]
    sign: type[np.generic] = np.int8 if format.signed else np.uint8
    width = tiles.shape[1] * format.groups * format.factors
    factors, least_factors = (_drained(place, outputs) for place in _factors(tiles, format))
    return Blocks(
        planes=tuple(_drained(place, outputs).view(np.uint8) for place in _planes(tiles, format)),
        scale=halves[0],
        least=halves[1] if format.least else None,
        factors=factors.reshape(outputs, width).view(sign) if width else None,
        least_factors=least_factors.reshape(outputs, width) if width and format.least else None,
    )


def fill(place: NDArray[Any], rows: NDArray[Any]) -> None:
    """Copy rows [rows, ...] to a place for them, [tiles, 16, ...]."""
    whole, rest = divmod(len(rows), TILE)
    place[:whole] = rows[: whole * TILE].reshape(whole, TILE, *rows.shape[1:])
    if rest:
        place[whole, :rest] = rows[whole * TILE :]


def _drained(place: NDArray[Any], outputs: int) -> NDArray[Any]:
    return np.ascontiguousarray(place).reshape(len(place) * TILE, *place.shape[2:])[:outputs]


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
