"""How weights lie in memory: sixteen outputs side by side, codes in planes of bits, scales before their codes.

A matrix ``W`` [outputs, inputs] is cut into tiles of 16 outputs, padded with zeros. A tile is one run of blocks,
in the order of the inputs. A block holds ``Format.groups`` groups of 32 inputs:

1. ``scale`` float16[16], one per output (float32[16] where the format is ``floating``); then ``least``, as many
   where the format has it;
2. for each group: ``Format.factors`` x 16 bytes that multiply the scale (one row of 16 per 32 or per 16 inputs),
   then as many that multiply ``least`` where the format has it;
3. after them, for each group, its planes of codes.

The 32 inputs of a group are 8 steps of 4 inputs. A plane of ``b`` bits is ``b`` vectors of 64 bytes, numbered from
0, and a byte has ``8 / b`` fields. Byte ``4 * output + i`` of vector ``v`` has in field ``f`` (bits ``b * f`` and
up) the bits of input ``4 * step + i``, where ``step`` is ``v + b * f``. A code is made of its planes, the first in
its lowest bits.

A weight is ``2 ** power * scale * factor * (code - offset) - least * factor_of_least``, factors being 1 where the
format has none, and the code replaced by ``codebook[code]`` where it has one.

Before outputs lie side by side, a plane of rows is uint8[rows, blocks, groups, 4 * b]: byte ``4 * v + i`` of a
group holds in field ``f`` the bits of input ``4 * (v + b * f) + i``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
TILE, GROUP, STEPS = 16, 32, 8
"""Outputs of a tile, inputs of a group, steps of four inputs in a group."""
EIGHT_BIT_POWER = 120
"""Of two: by how much exponents of float32 are larger than those of the same bits of `eight_bit_floats`."""


def padded(size: int, to: int = GROUP) -> int:
    """Return the next multiple, of the inputs of a group if no other is given."""
    return -(-size // to) * to


@dataclass(frozen=True, slots=True)
class Format:
    """How the codes of one type of weights are laid out."""

    planes: tuple[int, ...]  # bits of each plane of codes, lowest first
    offset: int = 0  # what is subtracted from a code, or from its codebook value
    groups: int = 1  # of 32 inputs, that share scale and least: 1, or 4 or 8 for super-blocks
    factors: int = 0  # bytes per group and output that multiply scale: 0, 1 (one per 32 inputs) or 2 (one per 16)
    signed: bool = False  # whether those are int8; else uint8, as factors of least always are
    least: bool = False  # whether least (GGUF's min, negated where it is added) is subtracted
    codebook: tuple[int, ...] = ()  # sixteen unsigned bytes that codes of 1 to 4 bits stand for; empty: none
    power: int = 0  # of two, which float16 scales cannot take in: small ones would lose bits
    floating: bool = False  # whether factors are floats of 8 bits (see `eight_bit_floats`), and scales float32

    @property
    def scale_bytes(self) -> int:
        """Bytes of one scale."""
        return 4 if self.floating else 2

    @property
    def head_bytes(self) -> int:
        """Bytes of scales, leasts and factors at the beginning of a block."""
        return TILE * (self.scale_bytes + self.groups * self.factors) * (1 + self.least)

    @property
    def group_bytes(self) -> int:
        """Bytes of the codes of one group."""
        return 64 * sum(self.planes)

    @property
    def block_bytes(self) -> int:
        return self.head_bytes + self.groups * self.group_bytes

    @property
    def most(self) -> int:
        """The largest code, or the largest value of the codebook."""
        return max(self.codebook) if self.codebook else (1 << sum(self.planes)) - 1


_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_CODEBOOK = tuple(value + 128 for value in _IQ4)


def _coded(planes: tuple[int, ...], values: Sequence[int], **rest: Any) -> Format:
    """Return a format of codes that stand for these signed numbers."""
    least = min(values)
    book = [value - least for value in values]
    return Format(planes, offset=-least, codebook=(*book, *[0] * (16 - len(book))), **rest)


def _signed(*sizes: int) -> tuple[int, ...]:
    """Return these numbers, and behind them the same negated: the highest bit of a code is the sign."""
    return *sizes, *(-size for size in sizes)


_E2M1 = _signed(0, 1, 2, 3, 4, 6, 8, 12)  # twice the floats of 4 bits that MXFP4 and NVFP4 have
_IQ3_XXS = _signed(4, 12, 20, 28, 36, 44, 52, 62)
_IQ2 = _signed(8, 25, 43, 0)  # the last is never used
_IQ1 = (-7, 1, 9, 0, -9, -1, 7)  # 8 * (-1, 0, 1) + 1, and 8 * (-1, 0, 1) - 1

FORMATS = {
    "Q4_0": Format((4,), offset=8),
    "Q4_1": Format((4,), least=True),
    "Q5_0": Format((4, 1), offset=16),
    "Q5_1": Format((4, 1), least=True),
    "Q8_0": Format((8,), offset=128),
    "Q2_K": Format((2,), groups=8, factors=2, least=True),
    "Q3_K": Format((2, 1), offset=4, groups=8, factors=2, signed=True),
    "Q4_K": Format((4,), groups=8, factors=1, least=True),
    "Q5_K": Format((4, 1), groups=8, factors=1, least=True),
    "Q6_K": Format((4, 2), offset=32, groups=8, factors=2, signed=True),
    "IQ4_NL": Format((4,), offset=128, codebook=_CODEBOOK),
    "IQ4_XS": Format((4,), offset=128, groups=8, factors=1, signed=True, codebook=_CODEBOOK),
    "MXFP4": _coded((4,), _E2M1),
    "NVFP4": _coded((4,), _E2M1, groups=2, factors=2, power=-1, floating=True),
    "IQ3_S": _coded((4,), _signed(*range(1, 16, 2)), groups=8, factors=1),
    "IQ3_XXS": _coded((4,), _IQ3_XXS, groups=8, factors=1, power=-2),
    "IQ2_S": _coded((2, 1), _IQ2, groups=8, factors=2, power=-3),
    "IQ2_XS": _coded((2, 1), _IQ2, groups=8, factors=2, power=-3),
    "IQ2_XXS": _coded((2, 1), _IQ2, groups=8, factors=1, power=-3),
    "IQ1_S": _coded((2, 1), _IQ1, groups=8, factors=1, power=-3),
    "IQ1_M": _coded((2, 1), _IQ1, groups=8, factors=2, power=-3),
    "TQ1_0": Format((2,), offset=1, groups=8),
    "TQ2_0": Format((2,), offset=1, groups=8),
    "Q1_0": _coded((1,), (-1, 1), groups=4),
}
"""By the name that GGUF gives the type. Codes are unsigned: signed ones of the file plus their offset."""


def eight_bit_floats(factors: Bytes) -> NDArray[np.float32]:
    """Return the floats that bytes below 128 stand for: four bits of exponent, three of mantissa (E4M3)."""
    return (factors.astype(np.uint32) << np.uint32(20)).view(np.float32) * np.float32(2.0**EIGHT_BIT_POWER)


def planes_from_codes(codes: Bytes, format: Format) -> tuple[Bytes, ...]:
    """Cut codes uint8[rows, inputs] into planes, lowest bits first."""
    rows, inputs = codes.shape
    groups = codes.reshape(rows, inputs // (GROUP * format.groups), format.groups, GROUP)
    planes, below = [], 0
    for bits in format.planes:
        fields = groups.reshape(*groups.shape[:3], STEPS // bits, 4 * bits) >> np.uint8(below) & _mask(bits)
        planes.append(np.bitwise_or.reduce(fields << _shifts(bits), axis=-2))
        below += bits
    return tuple(planes)


def codes_from_planes(planes: Sequence[Bytes], format: Format) -> Bytes:
    """Put planes together again: codes uint8[rows, inputs]."""
    codes = np.zeros((*planes[0].shape[:3], GROUP), np.uint8)
    below = 0
    for bits, plane in zip(format.planes, planes, strict=True):
        fields = plane[..., None, :] >> _shifts(bits) & _mask(bits)
        codes |= fields.reshape(codes.shape) << np.uint8(below)
        below += bits
    return codes.reshape(len(codes), -1)


def _mask(bits: int) -> np.uint8:
    return np.uint8((1 << bits) - 1)


def _shifts(bits: int) -> Bytes:
    """Return how far each field lies above the lowest bit, uint8[fields, 1]."""
    return np.arange(0, 8, bits, dtype=np.uint8)[:, None]
