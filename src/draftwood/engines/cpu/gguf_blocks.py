"""Takes the blocks of GGUF's quantised types apart, leaving the codes nearly as they lie in the file.

The types are described at https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.planes import plane_of_bits, swapped_fields
from draftwood.errors import UnsupportedModelError

Bytes = NDArray[np.uint8]
Halves = NDArray[np.float16]
Factors = NDArray[Any]  # uint8 or int8
_NIBBLES, _TWOS = np.uint32(0x0F0F0F0F), np.uint32(0x03030303)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """What turns the codes of some rows into weights; how, is said in `formats`.

    Attributes
    ----------
    scale
        float16[rows, blocks], a block being 32 inputs times the groups of the format.
    least
        The same; None where the format has none.
    factors
        uint8 or int8[rows, inputs / 32] or [rows, inputs / 16]; None where the format has none.
    least_factors
        uint8 of the same shape; None where the format has none.
    """

    scale: Halves
    least: Halves | None = None
    factors: Factors | None = None
    least_factors: Bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks(Scales):
    """Rows whose codes are planes of bits, as `planes` describes them."""

    planes: tuple[Bytes, ...]


def read_blocks(kind: str, raw: Bytes) -> Blocks:
    """Take rows of blocks apart, uint8[rows, bytes of a row]; raises `UnsupportedModelError` for other types."""
    if kind not in _READERS:
        known = ", ".join(_READERS)
        raise UnsupportedModelError(f"weights of type {kind} are not supported: get the model in one of {known}")
    size, read = _READERS[kind]
    return read(raw.reshape(len(raw), raw.shape[1] // size, size))


def _half(blocks: Bytes, at: int) -> Halves:
    return blocks[..., at : at + 2].view(np.float16)[..., 0]


def _negated(blocks: Bytes, at: int) -> Halves:
    """Return a number that the type adds, to be taken away."""
    return (blocks[..., at : at + 2].view(np.uint16)[..., 0] ^ np.uint16(0x8000)).view(np.float16)


def _groups(codes: Bytes, count: int) -> Bytes:
    """Cut bytes [rows, blocks, bytes] into those of each group."""
    return codes.reshape(*codes.shape[:2], count, codes.shape[2] // count)


def _swapped(codes: Bytes, bits: int) -> Bytes:
    """Turn codes [rows, blocks, bytes] whose fields are different groups into a plane, where they are steps."""
    run = 32 * bits // 8
    chunks = codes.reshape(*codes.shape[:2], codes.shape[2] // 32, 8 // bits, run)
    return swapped_fields(chunks, bits).reshape(*codes.shape[:2], 8, run)


def _per_group(factors: Factors) -> Factors:
    """Join the factors [rows, blocks, ...] of a row."""
    return factors.reshape(len(factors), -1)


def _q4_0(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_groups(blocks[..., 2:], 1),), scale=_half(blocks, 0))


def _q4_1(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_groups(blocks[..., 4:], 1),), scale=_half(blocks, 0), least=_negated(blocks, 2))


def _q5_0(blocks: Bytes) -> Blocks:
    planes = _groups(blocks[..., 6:], 1), _groups(plane_of_bits(blocks[..., 2:6]), 1)
    return Blocks(planes=planes, scale=_half(blocks, 0))


def _q5_1(blocks: Bytes) -> Blocks:
    planes = _groups(blocks[..., 8:], 1), _groups(plane_of_bits(blocks[..., 4:8]), 1)
    return Blocks(planes=planes, scale=_half(blocks, 0), least=_negated(blocks, 2))


def _q8_0(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_groups(blocks[..., 2:] ^ np.uint8(0x80), 1),), scale=_half(blocks, 0))


def _q2_k(blocks: Bytes) -> Blocks:
    both = blocks[..., :16].copy()
    return Blocks(
        planes=(_swapped(blocks[..., 16:80], 2),),
        scale=_half(blocks, 80),
        least=_half(blocks, 82),
        factors=_per_group(both & np.uint8(15)),
        least_factors=_per_group(both >> np.uint8(4)),
    )


def _q3_k(blocks: Bytes) -> Blocks:
    first, second, rest = np.moveaxis(blocks[..., 96:108].copy().view(np.uint32), -1, 0)  # four bytes at once
    low = np.stack([half >> np.uint32(shift) & _NIBBLES for shift in (0, 4) for half in (first, second)], axis=-1)
    high = np.stack([rest >> np.uint32(shift) & _TWOS for shift in (0, 2, 4, 6)], axis=-1)
    return Blocks(
        planes=(_swapped(blocks[..., 32:96], 2), _swapped(blocks[..., :32], 1)),
        scale=_half(blocks, 108),
        factors=_per_group(_six_bits(low.view(np.uint8), high.view(np.uint8))),
    )


def _six_bits(low: Bytes, high: Bytes) -> NDArray[np.int8]:
    """Put numbers of 4 and 2 bits together, which count from -32."""
    return (low | high << np.uint8(4)).view(np.int8) - np.int8(32)


def _sixes(packed: Bytes) -> tuple[Bytes, Bytes]:
    """Read factors of scale and least, six bits each, from 12 bytes a block."""
    first, second, rest = np.moveaxis(packed.copy().view(np.uint32), -1, 0)  # four bytes at once
    six, low, high = np.uint32(0x3F3F3F3F), _NIBBLES, np.uint32(0x30303030)
    factors = np.stack([first & six, rest & low | first >> np.uint32(2) & high], axis=-1)
    leasts = np.stack([second & six, rest >> np.uint32(4) & low | second >> np.uint32(2) & high], axis=-1)
    return _per_group(factors.view(np.uint8)), _per_group(leasts.view(np.uint8))


def _q4_k(blocks: Bytes) -> Blocks:
    factors, leasts = _sixes(blocks[..., 4:16])
    return Blocks(
        planes=(_swapped(blocks[..., 16:], 4),),
        scale=_half(blocks, 0),
        least=_half(blocks, 2),
        factors=factors,
        least_factors=leasts,
    )


def _q5_k(blocks: Bytes) -> Blocks:
    factors, leasts = _sixes(blocks[..., 4:16])
    return Blocks(
        planes=(_swapped(blocks[..., 48:], 4), _swapped(blocks[..., 16:48], 1)),
        scale=_half(blocks, 0),
        least=_half(blocks, 2),
        factors=factors,
        least_factors=leasts,
    )


def _q6_k(blocks: Bytes) -> Blocks:
    return Blocks(
        planes=(_swapped_halves(blocks[..., :128]), _swapped(blocks[..., 128:192], 2)),
        scale=_half(blocks, 208),
        factors=_per_group(blocks[..., 192:208].view(np.int8)),
    )


def _swapped_halves(codes: Bytes) -> Bytes:
    """Do what `_swapped` does where the upper four bits are not the next group but the one after it."""
    plane = _swapped(codes, 4)
    halves = plane.reshape(*plane.shape[:2], 2, 2, 2, 16)
    return halves.swapaxes(3, 4).reshape(plane.shape)


def _iq4_xs(blocks: Bytes) -> Blocks:
    low, high = blocks[..., 4:8, None], blocks[..., 2:4, None]
    low = low >> np.array([0, 4], np.uint8) & np.uint8(15)
    high = high >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)
    shape = (*blocks.shape[:2], 8)
    factors = _per_group(_six_bits(low.reshape(shape), high.reshape(shape)))
    return Blocks(planes=(_groups(blocks[..., 8:], 8),), scale=_half(blocks, 0), factors=factors)


_READERS: dict[str, tuple[int, Callable[[Bytes], Blocks]]] = {
    "Q4_0": (18, _q4_0),
    "Q4_1": (20, _q4_1),
    "Q5_0": (22, _q5_0),
    "Q5_1": (24, _q5_1),
    "Q8_0": (34, _q8_0),
    "Q2_K": (84, _q2_k),
    "Q3_K": (110, _q3_k),
    "Q4_K": (144, _q4_k),
    "Q5_K": (176, _q5_k),
    "Q6_K": (210, _q6_k),
    "IQ4_NL": (18, _q4_0),
    "IQ4_XS": (136, _iq4_xs),
}
"""Bytes of a block and who reads it, from blocks uint8[rows, blocks, bytes]."""
