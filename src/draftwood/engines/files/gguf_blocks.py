"""Blocks of GGUF's quantised types, taken apart: codes as planes of bits (see `formats`), scales and factors.

The types are described at https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h; those whose codes stand
in grids are in `gguf_grids`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.formats import FORMATS, Bytes, planes_from_codes
from draftwood.errors import UnsupportedModelError

Halves = NDArray[np.float16]
Scales = NDArray[Any]  # float16, or float32
Factors = NDArray[Any]  # uint8 or int8, or the floats that they stand for
_FINITE = bytes(byte for byte in range(256) if byte & 0x7C != 0x7C)  # upper bytes of finite float16 numbers
_NIBBLES, _TWOS = np.uint32(0x0F0F0F0F), np.uint32(0x03030303)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Rows of quantised weights; what the format does not have is None."""

    planes: tuple[Bytes, ...]  # codes, as `formats` describes planes of single rows
    scale: Scales  # [rows, blocks], a block being 32 inputs times the groups of the format
    least: Halves | None = None
    factors: Factors | None = None  # uint8 or int8[rows, inputs / 32] or [rows, inputs / 16]
    least_factors: Bytes | None = None

    @property
    def is_finite(self) -> bool:
        """Whether all scales are finite numbers, and leasts where there are any."""
        return _are_finite(self.scale) and (self.least is None or _are_finite(self.least))


def _are_finite(scales: Scales) -> bool:
    if scales.dtype != np.float16:
        return bool(np.isfinite(scales).all())
    # Upper bytes without those of finite numbers; numpy's own functions take several times as long on so few.
    return not scales.view(np.uint8)[..., 1::2].tobytes().translate(None, _FINITE)


def half(blocks: Bytes, at: int) -> Halves:
    """Return the float16 that begins at this byte of each block, side by side: they are read twice."""
    return np.ascontiguousarray(blocks[..., at : at + 2].view(np.float16)[..., 0])


def _negated(blocks: Bytes, at: int) -> Halves:
    """Return, negated, a float16 that the type adds: here it is subtracted."""
    return (blocks[..., at : at + 2].view(np.uint16)[..., 0] ^ np.uint16(0x8000)).view(np.float16)


def _groups(codes: Bytes, count: int) -> Bytes:
    """Cut bytes [rows, blocks, bytes] into those of each group."""
    return codes.reshape(*codes.shape[:2], count, codes.shape[2] // count)


def _swapped(codes: Bytes, bits: int) -> Bytes:
    """Turn codes [rows, blocks, bytes], whose bytes hold fields of several groups, into a plane: several steps."""
    run = 32 * bits // 8
    chunks = codes.reshape(*codes.shape[:2], codes.shape[2] // 32, 8 // bits, run)
    return swapped_fields(chunks, bits).reshape(*codes.shape[:2], 8, run)


def per_group(factors: Factors) -> Factors:
    """Join the factors [rows, blocks, ...] of a row."""
    return factors.reshape(len(factors), -1)


def _q4_0(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_groups(blocks[..., 2:], 1),), scale=half(blocks, 0))


def _q4_1(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_groups(blocks[..., 4:], 1),), scale=half(blocks, 0), least=_negated(blocks, 2))


def _q5_0(blocks: Bytes) -> Blocks:
    planes = _groups(blocks[..., 6:], 1), _groups(plane_of_bits(blocks[..., 2:6]), 1)
    return Blocks(planes=planes, scale=half(blocks, 0))


def _q5_1(blocks: Bytes) -> Blocks:
    planes = _groups(blocks[..., 8:], 1), _groups(plane_of_bits(blocks[..., 4:8]), 1)
    return Blocks(planes=planes, scale=half(blocks, 0), least=_negated(blocks, 2))


def _q8_0(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_groups(blocks[..., 2:] ^ np.uint8(0x80), 1),), scale=half(blocks, 0))


def _q2_k(blocks: Bytes) -> Blocks:
    both = blocks[..., :16].copy()
    factors, leasts = per_group(both & np.uint8(15)), per_group(both >> np.uint8(4))
    return Blocks(
        planes=(_swapped(blocks[..., 16:80], 2),), scale=half(blocks, 80), least=half(blocks, 82),
        factors=factors, least_factors=leasts,
    )  # fmt: skip


def _q3_k(blocks: Bytes) -> Blocks:
    first, second, rest = np.moveaxis(blocks[..., 96:108].copy().view(np.uint32), -1, 0)  # four bytes at once
    low = np.stack([half >> np.uint32(shift) & _NIBBLES for shift in (0, 4) for half in (first, second)], axis=-1)
    high = np.stack([rest >> np.uint32(shift) & _TWOS for shift in (0, 2, 4, 6)], axis=-1)
    factors = per_group(_six_bits(low.view(np.uint8), high.view(np.uint8)))
    planes = _swapped(blocks[..., 32:96], 2), _swapped(blocks[..., :32], 1)
    return Blocks(planes=planes, scale=half(blocks, 108), factors=factors)


def _six_bits(low: Bytes, high: Bytes) -> NDArray[np.int8]:
    """Join the lower 4 and upper 2 bits of numbers, and subtract 32."""
    return (low | high << np.uint8(4)).view(np.int8) - np.int8(32)


def _q4_or_5_k(blocks: Bytes, *planes: Bytes) -> Blocks:
    """Read scales and their factors, six bits each, from the first 16 bytes of a block."""
    first, second, rest = np.moveaxis(blocks[..., 4:16].copy().view(np.uint32), -1, 0)  # four bytes at once
    six, low, high = np.uint32(0x3F3F3F3F), _NIBBLES, np.uint32(0x30303030)
    factors = np.stack([first & six, rest & low | first >> np.uint32(2) & high], axis=-1)
    leasts = np.stack([second & six, rest >> np.uint32(4) & low | second >> np.uint32(2) & high], axis=-1)
    return Blocks(
        planes=planes, scale=half(blocks, 0), least=half(blocks, 2), factors=per_group(factors.view(np.uint8)),
        least_factors=per_group(leasts.view(np.uint8)),
    )  # fmt: skip


def _q4_k(blocks: Bytes) -> Blocks:
    return _q4_or_5_k(blocks, _swapped(blocks[..., 16:], 4))


def _q5_k(blocks: Bytes) -> Blocks:
    return _q4_or_5_k(blocks, _swapped(blocks[..., 48:], 4), _swapped(blocks[..., 16:48], 1))


def _q6_k(blocks: Bytes) -> Blocks:
    low = _swapped(blocks[..., :128], 4)  # the file's upper four bits are of the group after the next
    halves = low.reshape(*low.shape[:2], 2, 2, 2, 16).swapaxes(3, 4).reshape(low.shape)
    factors = per_group(blocks[..., 192:208].view(np.int8))
    return Blocks(planes=(halves, _swapped(blocks[..., 128:192], 2)), scale=half(blocks, 208), factors=factors)


def _iq4_xs(blocks: Bytes) -> Blocks:
    low, high = blocks[..., 4:8, None], blocks[..., 2:4, None]
    low = low >> np.array([0, 4], np.uint8) & np.uint8(15)
    high = high >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)
    shape = (*blocks.shape[:2], 8)
    factors = per_group(_six_bits(low.reshape(shape), high.reshape(shape)))
    return Blocks(planes=(_groups(blocks[..., 8:], 8),), scale=half(blocks, 0), factors=factors)


_FIRST_HALF, _LAST_HALF = 104, 143
"""MXFP4's exponents whose powers of two, 2 ** -24 to 2 ** 15, are numbers in float16."""


def _mxfp4(blocks: Bytes) -> Blocks:
    """Read scales 2 ** (byte - 128), one less than the byte's own exponent, as codes stand for twice a float."""
    exponent, codes = blocks[..., 0], blocks[..., 1:]
    fits = (exponent >= _FIRST_HALF) & (exponent <= _LAST_HALF)
    if not fits.all() and (codes[~fits] & np.uint8(0x77)).any():
        raise UnsupportedModelError(
            "weights of type MXFP4 are too large or too small for scales in float16: get the model in another "
            "quantisation"
        )
    power = np.clip(exponent, _FIRST_HALF, _LAST_HALF).astype(np.float32) - np.float32(128)
    scale = np.where(fits, np.exp2(power), np.float32(0)).astype(np.float16)
    return Blocks(planes=(_groups(codes, 1),), scale=scale)


_NOTHING = 0x7F  # as a scale of NVFP4 it is 0; elsewhere no number


def _nvfp4(blocks: Bytes) -> Blocks:
    """Read scales of 16 weights as factors; the scale is 1, to be multiplied by that of the whole tensor."""
    found = blocks[..., :4]
    factors = np.where(found == _NOTHING, np.uint8(0), found & np.uint8(0x7F))
    pairs = blocks[..., 4:].reshape(*blocks.shape[:2], 2, 2, 8)  # bytes of both halves of two groups
    first, second, low, four = pairs[..., 0, :], pairs[..., 1, :], np.uint8(15), np.uint8(4)
    plane = np.concatenate([first & low | second << four, first >> four | second & ~low], axis=-1)
    return Blocks(planes=(plane,), scale=np.ones(blocks.shape[:2], np.float32), factors=per_group(factors))


def _tq1_0(blocks: Bytes) -> Blocks:
    """Read five codes of three values from a byte, which is 256 times a fraction whose ternary digits they are."""
    runs = ((blocks[..., :32], 5), (blocks[..., 32:48], 5), (blocks[..., 48:52], 4))
    found = [_times_powers_of_three(run, count) for run, count in runs]
    ahead = np.concatenate(found, axis=-1).astype(np.uint16)
    codes = (ahead * np.uint16(3) >> np.uint16(8)).astype(np.uint8).reshape(len(blocks), -1)
    return Blocks(planes=planes_from_codes(codes, FORMATS["TQ1_0"]), scale=half(blocks, 52))


def _times_powers_of_three(run: Bytes, count: int) -> Bytes:
    """Return bytes [rows, blocks, bytes] times 1, 3, 9 ... modulo 256, one after another along the last axis."""
    powers = (3 ** np.arange(count)).astype(np.uint8)[:, None]
    return (run[..., None, :] * powers).reshape(*run.shape[:2], -1)


def _tq2_0(blocks: Bytes) -> Blocks:
    return Blocks(planes=(_swapped(blocks[..., :64], 2),), scale=half(blocks, 64))


def _q1_0(blocks: Bytes) -> Blocks:
    return Blocks(planes=(plane_of_bits(_groups(blocks[..., 2:], 4)),), scale=half(blocks, 0))


READERS: dict[str, Callable[[Bytes], Blocks]] = {
    "Q4_0": _q4_0, "Q4_1": _q4_1, "Q5_0": _q5_0, "Q5_1": _q5_1, "Q8_0": _q8_0, "Q2_K": _q2_k, "Q3_K": _q3_k,
    "Q4_K": _q4_k, "Q5_K": _q5_k, "Q6_K": _q6_k, "IQ4_NL": _q4_0, "IQ4_XS": _iq4_xs, "MXFP4": _mxfp4,
    "NVFP4": _nvfp4, "TQ1_0": _tq1_0, "TQ2_0": _tq2_0, "Q1_0": _q1_0,
}  # fmt: skip
"""Read blocks uint8[rows, blocks, bytes], by the name of their type."""


def swapped_fields(rows: Bytes, bits: int) -> Bytes:
    """Swap fields with rows: field ``f`` of row ``r`` becomes field ``r`` of row ``f``, in every byte.

    ``rows`` is uint8[..., 8 / bits, bytes], the bytes a multiple of 4; ``bits`` is 1, 2 or 4.
    """
    swapped = rows.copy(order="C")
    words = swapped.view(np.uint32).reshape(-1)  # long runs of words are quicker than many short rows
    change = np.empty_like(words)
    far = 4 // bits
    while far:
        ahead, shift, width = far * rows.shape[-1] // 4, np.uint32(bits * far), bits * far
        low = sum(((1 << width) - 1) << at for at in range(0, 32, 2 * width))  # width bits set, as many not set
        np.right_shift(words[:-ahead], shift, out=change[:-ahead])
        change[:-ahead] ^= words[ahead:]
        change &= np.uint32(low)
        change.reshape(-1, 2, ahead)[:, 1] = 0  # only the first word of each pair gets a change
        words[ahead:] ^= change[:-ahead]
        change <<= shift
        words ^= change
        far //= 2
    return swapped


def plane_of_bits(bits: Bytes) -> Bytes:
    """Reorder bits of groups, uint8[..., 4], bit ``i`` of 32 being input ``i``, into a plane, uint8[..., 4]."""
    words = _SPREAD[0][bits[..., :1]]
    for byte in range(1, 4):
        words |= _SPREAD[byte][bits[..., byte : byte + 1]]
    return words.view(np.uint8)


def _spread() -> NDArray[np.uint32]:
    """Return where the bits of a byte go in a plane, uint32[4, 256]: for each of four bytes, by its value."""
    byte = np.arange(256, dtype=np.uint32)
    word = np.zeros(256, np.uint32)
    for i in range(4):
        word |= (byte >> i & 1 | (byte >> (i + 4) & 1) << 1) << (8 * i)
    return word << np.arange(0, 8, 2, dtype=np.uint32)[:, None]


_SPREAD = _spread()
