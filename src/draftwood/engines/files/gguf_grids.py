"""Blocks of GGUF's types of 1 to 3 bits in which one number stands for four or eight sizes: for a row of a grid.

The grids are ggml's; ``grids/README.md`` says how they lie in their file. Here a row becomes a word that has a
byte for each size, as the planes of `formats` do, so that planes are made of whole words.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.formats import Bytes
from draftwood.engines.files.gguf_blocks import Blocks, Factors, half, per_group, plane_of_bits

_ROWS = {"IQ2_XXS": 256, "IQ2_XS": 512, "IQ2_S": 1024, "IQ3_XXS": 256, "IQ3_S": 512, "IQ1": 2048}
"""Of each grid, in the order of the file."""
_FILE = Path(__file__).parent / "grids" / "ggml.bin"
_SEVENS = np.array([0, 7, 14, 21], np.uint32)  # bits below each of four numbers of seven bits
_THREES = np.array([0, 3, 6, 9], np.uint16)
_TWOS = np.array([0, 2, 4, 6], np.uint8)


@cache
def _grid(name: str) -> NDArray[Any]:
    """Return the rows of a grid: uint32[rows] of four bytes, or uint64[rows] of eight."""
    every, begin = np.fromfile(_FILE, "<u2"), 0
    for other, count in _ROWS.items():
        if other == name:
            break
        begin += count
    bits, whole = (4, np.uint32) if name.startswith("IQ3") else (2, np.uint64)
    fields = every[begin : begin + _ROWS[name], None] >> np.arange(0, 16, bits, dtype=np.uint16)
    return (fields & np.uint16((1 << bits) - 1)).astype(np.uint8).view(whole)[:, 0]


def _eights(grid: str, index: NDArray[Any], signs: Bytes) -> tuple[Bytes, Bytes]:
    """Return the planes of sizes and of signs of rows of eight.

    ``index`` is [rows, blocks, 32], and ``signs`` has a bit for each input, uint8[rows, blocks, 32].
    """
    rows = _grid(grid)[index].reshape(*index.shape[:2], 8, 4)
    words = rows[..., 0]
    for i in range(1, 4):
        words = words | rows[..., i] << np.uint64(2 * i)
    return words[..., None].view(np.uint8), plane_of_bits(signs.reshape(*signs.shape[:2], 8, 4))


def _fours(grid: str, index: NDArray[Any], signs: Bytes) -> tuple[Bytes]:
    """Return the plane of rows of four; ``index`` is [rows, blocks, 64], ``signs`` as of `_eights`."""
    words = _grid(grid)[index] | _SIGNS_OF_FOUR[_nibbles(signs)]
    words = words.reshape(*index.shape[:2], 8, 2, 4)
    return ((words[..., 0, :] | words[..., 1, :] << np.uint32(4)).view(np.uint8),)


_FOUR_BITS = np.arange(16, dtype=np.uint8)[:, None] >> np.arange(4, dtype=np.uint8) & np.uint8(1)
_SIGNS_OF_FOUR = (_FOUR_BITS << np.uint8(3)).view(np.uint32)[:, 0]
"""The highest bits of four codes, a byte each, by the four signs."""


def _nibbles(pairs: Bytes) -> Bytes:
    """Return the lower and the upper four bits of each byte, side by side."""
    return np.stack([pairs & np.uint8(15), pairs >> np.uint8(4)], axis=-1).reshape(*pairs.shape[:-1], -1)


def _evened(seven: NDArray[Any]) -> Bytes:
    """Return eight signs from seven: the last one makes the number of negative ones even."""
    return _EVENED[seven & seven.dtype.type(127)]


_COUNTS = (np.arange(128)[:, None] >> np.arange(7) & 1).sum(1)
_EVENED = (np.arange(128) | (_COUNTS & 1) << 7).astype(np.uint8)


def _factors(fields: NDArray[Any]) -> Factors:
    """Return the factors of a row; the file has (factor - 1) / 2."""
    return per_group((2 * fields + 1).astype(np.uint8))


def _words(blocks: Bytes, begin: int, end: int, kind: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """Return some bytes of each block as longer words."""
    return np.ascontiguousarray(blocks[..., begin:end]).view(kind)


def _iq3_xxs(blocks: Bytes) -> Blocks:
    words = _words(blocks, 66, 98, np.uint32)
    signs = _evened(words[..., None] >> _SEVENS).reshape(*blocks.shape[:2], 32)
    planes = _fours("IQ3_XXS", blocks[..., 2:66], signs)
    return Blocks(planes=planes, scale=half(blocks, 0), factors=_factors(words >> np.uint32(28)))


def _iq3_s(blocks: Bytes) -> Blocks:
    ninth = np.unpackbits(blocks[..., 66:74], axis=-1, bitorder="little").astype(np.uint16)
    planes = _fours("IQ3_S", blocks[..., 2:66] | ninth << np.uint16(8), blocks[..., 74:106])
    return Blocks(planes=planes, scale=half(blocks, 0), factors=_factors(_nibbles(blocks[..., 106:110])))


def _iq2_xxs(blocks: Bytes) -> Blocks:
    pairs = _words(blocks, 2, 66, np.uint32).reshape(*blocks.shape[:2], 8, 2)
    index = np.ascontiguousarray(pairs[..., 0]).view(np.uint8)
    signs = _evened(pairs[..., 1:] >> _SEVENS).reshape(index.shape)
    factors = _factors(pairs[..., 1] >> np.uint32(28))
    return Blocks(planes=_eights("IQ2_XXS", index, signs), scale=half(blocks, 0), factors=factors)


def _iq2_xs(blocks: Bytes) -> Blocks:
    words = _words(blocks, 2, 66, np.uint16)
    planes = _eights("IQ2_XS", words & np.uint16(511), _evened(words >> np.uint16(9)))
    return Blocks(planes=planes, scale=half(blocks, 0), factors=_factors(_nibbles(blocks[..., 66:74])))


def _iq2_s(blocks: Bytes) -> Blocks:
    high = (blocks[..., 66:74, None] >> _TWOS & np.uint8(3)).reshape(*blocks.shape[:2], 32).astype(np.uint16)
    planes = _eights("IQ2_S", blocks[..., 2:34] | high << np.uint16(8), blocks[..., 34:66])
    return Blocks(planes=planes, scale=half(blocks, 0), factors=_factors(_nibbles(blocks[..., 74:82])))


def _iq1_s(blocks: Bytes) -> Blocks:
    words = _words(blocks, 34, 50, np.uint16)
    high = (words[..., None] >> _THREES & np.uint16(7)).reshape(*blocks.shape[:2], 32)
    below = np.repeat(words >> np.uint16(15), 4, axis=-1)
    planes = _eights("IQ1", blocks[..., 2:34] | high << np.uint16(8), _repeated(below))
    return Blocks(planes=planes, scale=half(blocks, 0), factors=_factors(words >> np.uint16(12) & np.uint16(7)))


def _iq1_m(blocks: Bytes) -> Blocks:
    """Read blocks whose scale is cut into four times four bits, above the twelve bits of four factors."""
    words = _words(blocks, 48, 56, np.uint16)
    parts = words >> np.uint16(12) << np.arange(0, 16, 4, dtype=np.uint16)
    scale = np.bitwise_or.reduce(parts, axis=-1).view(np.float16)
    rest = _nibbles(blocks[..., 32:48])
    index = blocks[..., :32] | (rest & np.uint8(7)).astype(np.uint16) << np.uint16(8)
    planes = _eights("IQ1", index, _repeated(rest >> np.uint8(3)))
    return Blocks(planes=planes, scale=scale, factors=_factors(words[..., None] >> _THREES & np.uint16(7)))


def _repeated(bits: NDArray[Any]) -> Bytes:
    """Return bits, 0 or 1, eight times each: a byte."""
    return bits.astype(np.uint8) * np.uint8(255)


GRIDS: dict[str, Callable[[Bytes], Blocks]] = {
    "IQ3_S": _iq3_s, "IQ3_XXS": _iq3_xxs, "IQ2_S": _iq2_s, "IQ2_XS": _iq2_xs, "IQ2_XXS": _iq2_xxs,
    "IQ1_S": _iq1_s, "IQ1_M": _iq1_m,
}  # fmt: skip
"""Read blocks uint8[rows, blocks, bytes], by the name of their type."""
