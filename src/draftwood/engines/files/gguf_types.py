"""Weights of GGUF's types, read and made: rows of quantised ones as planes of bits (see `formats`), and floats."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.formats import (
    FORMATS,
    GROUP,
    TILE,
    Bytes,
    Format,
    codes_from_planes,
    eight_bit_floats,
    planes_from_codes,
)
from draftwood.engines.files.gguf_blocks import READERS, Blocks, Factors, Scales
from draftwood.engines.files.gguf_file import BLOCK_BYTES, Tensor
from draftwood.engines.files.gguf_grids import GRIDS
from draftwood.errors import ModelError, UnsupportedModelError

Floats = NDArray[np.float32]
_READERS = READERS | GRIDS


def read_blocks(kind: str, raw: Bytes, scale: float = 1.0) -> Blocks:
    """Take rows of blocks apart, uint8[rows, bytes of a row]; raises `UnsupportedModelError` for other types.

    All weights are multiplied by ``scale``, a float32 number, where the format is ``floating``.
    """
    if kind not in _READERS:
        raise not_read(kind)
    blocks = _READERS[kind](raw.reshape(len(raw), -1, BLOCK_BYTES[kind]))
    return replace(blocks, scale=blocks.scale * np.float32(scale)) if FORMATS[kind].floating else blocks


def not_read(kind: str) -> UnsupportedModelError:
    """Return the error for a type without a format."""
    said = f"weights of type {kind} are not supported"
    return UnsupportedModelError(f"{said}: get the model in another quantisation, such as Q4_K_M")


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
    factors = blocks.factors
    if factors is not None and format.floating:
        factors = eight_bit_floats(factors)
    weights = _along(blocks.scale, factors, steps.shape[1], format.power) * steps
    if blocks.least is not None:
        weights -= _along(blocks.least, blocks.least_factors, steps.shape[1])
    return weights


def _along(scale: Scales, factors: Factors | None, inputs: int, power: int = 0) -> Floats:
    """Return ``2 ** power * scale * factors`` for each input, float32[rows, inputs]."""
    wide = scale.astype(np.float32) * np.float32(2.0**power)
    if factors is not None:
        wide = np.repeat(wide, factors.shape[1] // wide.shape[1], axis=1) * factors
    return np.repeat(wide, inputs // wide.shape[1], axis=1)


# --- what floats become ------------------------------------------------------------------------------------------

FLOATS = ("F32", "F16", "BF16")
_BECOMES = {"int4": "Q4_1", "int8": "Q8_0", "float16": "F16", "bfloat16": "BF16"}  # by what users write
_ENDS = ("token_embd.weight", "output.weight")  # in 4 bits they change the choice of one token in ten
_ROUNDS = 4  # of fitting; none makes the squared error larger
_AT_ONCE = 1 << 11  # groups that are worked on at a time, so that they stay in the processor's cache


_STAY = ("ffn_gate_inp", "per_layer_token_embd")  # what `becomes` leaves as it is


def kind_of(tensor: Tensor, becomes: str | None) -> str:
    """Return the type that a tensor has in memory; ``becomes`` is as of `Weights`."""
    stays = any(name in tensor.name for name in _STAY) or tensor.name.endswith(".bias")
    is_matrix = len(tensor.shape) > 1 and not stays
    if becomes is None or tensor.kind not in FLOATS or not is_matrix:
        return tensor.kind
    kind = _BECOMES["int8" if becomes == "int4" and tensor.name in _ENDS else becomes]
    return tensor.kind if kind in FORMATS and tensor.shape[-1] % GROUP else kind


def growth(tensor: Tensor, kind: str) -> int:
    """Return how many bytes a tensor takes more as ``kind`` than in its file."""
    if kind not in FORMATS:
        return 0 if kind == tensor.kind else 2 * prod(tensor.shape) - tensor.known.nbytes
    each = FORMATS[kind].block_bytes / FORMATS[kind].groups / (TILE * GROUP)
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
