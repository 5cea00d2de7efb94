"""Weights of GGUF's types, read and made: rows of quantised ones as planes of bits (see `formats`), and floats.

The types are described at https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.formats import (
    FORMATS,
    GROUP,
    TILE,
    Bytes,
    Format,
    codes_from_planes,
    planes_from_codes,
)
from draftwood.engines.files.gguf_file import Tensor
from draftwood.errors import ModelError, UnsupportedModelError

Floats = NDArray[np.float32]
Halves = NDArray[np.float16]
Factors = NDArray[Any]  # uint8 or int8
_NIBBLES, _TWOS = np.uint32(0x0F0F0F0F), np.uint32(0x03030303)


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Rows of quantised weights; what the format does not have is None."""

    planes: tuple[Bytes, ...]  # codes, as `formats` describes planes of single rows
    scale: Halves  # float16[rows, blocks], a block being 32 inputs times the groups of the format
    least: Halves | None = None
    factors: Factors | None = None  # uint8 or int8[rows, inputs / 32] or [rows, inputs / 16]
    least_factors: Bytes | None = None


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
    factors, leasts = _per_group(both & np.uint8(15)), _per_group(both >> np.uint8(4))
    return Blocks(
        planes=(_swapped(blocks[..., 16:80], 2),), scale=_half(blocks, 80), least=_half(blocks, 82),
        factors=factors, least_factors=leasts,
    )  # fmt: skip


def _q3_k(blocks: Bytes) -> Blocks:
    first, second, rest = np.moveaxis(blocks[..., 96:108].copy().view(np.uint32), -1, 0)  # four bytes at once
    low = np.stack([half >> np.uint32(shift) & _NIBBLES for shift in (0, 4) for half in (first, second)], axis=-1)
    high = np.stack([rest >> np.uint32(shift) & _TWOS for shift in (0, 2, 4, 6)], axis=-1)
    factors = _per_group(_six_bits(low.view(np.uint8), high.view(np.uint8)))
    planes = _swapped(blocks[..., 32:96], 2), _swapped(blocks[..., :32], 1)
    return Blocks(planes=planes, scale=_half(blocks, 108), factors=factors)


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
        planes=planes, scale=_half(blocks, 0), least=_half(blocks, 2), factors=_per_group(factors.view(np.uint8)),
        least_factors=_per_group(leasts.view(np.uint8)),
    )  # fmt: skip


def _q4_k(blocks: Bytes) -> Blocks:
    return _q4_or_5_k(blocks, _swapped(blocks[..., 16:], 4))


def _q5_k(blocks: Bytes) -> Blocks:
    return _q4_or_5_k(blocks, _swapped(blocks[..., 48:], 4), _swapped(blocks[..., 16:48], 1))


def _q6_k(blocks: Bytes) -> Blocks:
    low = _swapped(blocks[..., :128], 4)  # the file's upper four bits are of the group after the next
    halves = low.reshape(*low.shape[:2], 2, 2, 2, 16).swapaxes(3, 4).reshape(low.shape)
    factors = _per_group(blocks[..., 192:208].view(np.int8))
    return Blocks(planes=(halves, _swapped(blocks[..., 128:192], 2)), scale=_half(blocks, 208), factors=factors)


def _iq4_xs(blocks: Bytes) -> Blocks:
    low, high = blocks[..., 4:8, None], blocks[..., 2:4, None]
    low = low >> np.array([0, 4], np.uint8) & np.uint8(15)
    high = high >> np.array([0, 2, 4, 6], np.uint8) & np.uint8(3)
    shape = (*blocks.shape[:2], 8)
    factors = _per_group(_six_bits(low.reshape(shape), high.reshape(shape)))
    return Blocks(planes=(_groups(blocks[..., 8:], 8),), scale=_half(blocks, 0), factors=factors)


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


# fmt: off
_READERS: dict[str, tuple[int, Callable[[Bytes], Blocks]]] = {
    "Q4_0": (18, _q4_0), "Q4_1": (20, _q4_1), "Q5_0": (22, _q5_0), "Q5_1": (24, _q5_1), "Q8_0": (34, _q8_0),
    "Q2_K": (84, _q2_k), "Q3_K": (110, _q3_k), "Q4_K": (144, _q4_k), "Q5_K": (176, _q5_k), "Q6_K": (210, _q6_k),
    "IQ4_NL": (18, _q4_0), "IQ4_XS": (136, _iq4_xs), "MXFP4": (17, _mxfp4),
}
# fmt: on
"""Bytes of a block and the function that reads it, from blocks uint8[rows, blocks, bytes]."""


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


def read_floats(kind: str, raw: Bytes) -> Floats:
    """Read F32, F16 or BF16, uint8[..., bytes of a row], as float32[..., inputs].

    Raises `UnsupportedModelError` for another type.
    """
    if kind == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind not in ("F32", "F16"):
        raise UnsupportedModelError(
            f"numbers of type {kind} cannot be read here: get a model that has F32, F16 or BF16 in their place"
        )
    return raw.view(np.float16 if kind == "F16" else np.float32).astype(np.float32)


def dequantised(blocks: Blocks, format: Format) -> Floats:
    """Return the weights, float32[rows, inputs], rounded as ggml rounds them."""
    codes = codes_from_planes(blocks.planes, format)
    values = np.array(format.codebook, np.uint8)[codes] if format.codebook else codes
    steps = values.astype(np.float32) - np.float32(format.offset)
    weights = _along(blocks.scale, blocks.factors, steps.shape[1]) * steps
    if blocks.least is not None:
        weights -= _along(blocks.least, blocks.least_factors, steps.shape[1])
    return weights


def _along(scale: Halves, factors: Factors | None, inputs: int) -> Floats:
    """Return ``scale * factors`` for each input, float32[rows, inputs]."""
    wide = scale.astype(np.float32)
    if factors is not None:
        wide = np.repeat(wide, factors.shape[1] // wide.shape[1], axis=1) * factors
    return np.repeat(wide, inputs // wide.shape[1], axis=1)


# --- what floats become ------------------------------------------------------------------------------------------

FLOATS = ("F32", "F16", "BF16")
_BECOMES = {"int4": "Q4_1", "int8": "Q8_0", "float16": "F16", "bfloat16": "BF16"}  # by what users write
_ENDS = ("token_embd.weight", "output.weight")  # in 4 bits they change the choice of one token in ten
_ROUNDS = 4  # of fitting; none makes the squared error larger
_AT_ONCE = 1 << 11  # groups that are worked on at a time, so that they stay in the processor's cache


def kind_of(tensor: Tensor, becomes: str | None) -> str:
    """Return the type that a tensor has in memory; ``becomes`` is as of `Weights`."""
    is_matrix = len(tensor.shape) > 1 and not ("ffn_gate_inp" in tensor.name or tensor.name.endswith(".bias"))
    if becomes is None or tensor.kind not in FLOATS or not is_matrix:
        return tensor.kind
    kind = _BECOMES["int8" if becomes == "int4" and tensor.name in _ENDS else becomes]
    return tensor.kind if kind in FORMATS and tensor.shape[-1] % GROUP else kind


def growth(tensor: Tensor, kind: str) -> int:
    """Return how many bytes a tensor takes more as ``kind`` than in its file."""
    if kind == tensor.kind:
        return 0
    each = FORMATS[kind].block_bytes / (TILE * GROUP) if kind in FORMATS else 2
    return round(prod(tensor.shape) * each) - tensor.known.nbytes


def quantised(kind: str, weights: Floats) -> Blocks:
    """Return rows of floats, float32[rows, inputs], as ``Q4_1`` or ``Q8_0``; inputs are a multiple of 32.

    Raises `ModelError` where a weight is too large for a scale in float16, or no number.
    """
    groups = weights.reshape(-1, GROUP)
    scale, least = np.empty(len(groups), np.float16), np.zeros(len(groups), np.float16)
    codes = np.empty(groups.shape, np.uint8)
    with np.errstate(all="ignore"):
        for start in range(0, len(groups), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            one = np.ascontiguousarray(groups[part].T)  # a group is a column, so that sums are of whole vectors
            if kind == "Q4_1":
                scale[part], lows = _fitted(one)
                least[part] = -lows
                codes[part] = _codes(one, *(x.astype(np.float32) for x in (scale[part], -least[part]))).T
            else:
                scale[part] = np.abs(one).max(0) / np.float32(127)
                codes[part] = (np.rint(one * _inverse(scale[part].astype(np.float32))) + 128).clip(1, 255).T
    if not (np.isfinite(scale).all() and np.isfinite(least).all()):
        raise ModelError(f"weights that are too large for {kind}, or no numbers: take them as they are")
    planes, shape = planes_from_codes(codes.reshape(weights.shape), FORMATS[kind]), (len(weights), -1)
    return Blocks(
        planes=planes, scale=scale.reshape(shape), least=least.reshape(shape) if FORMATS[kind].least else None
    )


def _fitted(one: Floats) -> tuple[Floats, Floats]:
    """Return scale and lowest value of each column, by least squares and rounding in turns."""
    lows = one.min(0)
    steps = (one.max(0) - lows) / np.float32(15)
    total = one.sum(0)
    for _ in range(_ROUNDS):
        codes = _codes(one, steps, lows)
        sums, squares = codes.sum(0), np.einsum("ij,ij->j", codes, codes)
        products = np.einsum("ij,ij->j", codes, one)
        spread = GROUP * squares - sums * sums
        some = spread > 0  # where all weights are equal, all codes are
        steps = np.where(some, (GROUP * products - sums * total) / spread, steps)
        lows = np.where(some, (total - steps * sums) / GROUP, lows)
    return steps, lows


def _codes(one: Floats, steps: Floats, lows: Floats) -> Floats:
    codes = one - lows
    codes *= _inverse(steps)
    np.rint(codes, out=codes)
    return np.clip(codes, 0, 15, out=codes)


def _inverse(steps: Floats) -> Floats:
    return np.where(steps == 0, np.float32(0), np.float32(1) / steps)


def bfloat16_bits(values: Floats) -> NDArray[np.uint16]:
    """Round float32 to the nearest bfloat16, ties to even; returns its bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return ((bits + half) >> np.uint32(16)).astype(np.uint16)
