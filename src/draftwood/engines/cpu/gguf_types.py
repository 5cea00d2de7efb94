"""The numbers of GGUF's types: codes of the quantised ones, in the meaning of `formats`, and floats."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS, GROUP, TILE, Format
from draftwood.engines.cpu.gguf_blocks import Blocks, Bytes, Factors, Halves, Scales, read_blocks
from draftwood.engines.cpu.gguf_file import Tensor
from draftwood.engines.cpu.planes import codes_from_planes, planes_from_codes
from draftwood.errors import ModelError, UnsupportedModelError

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes(Scales):
    """Quantised rows, one code for each weight.

    Attributes
    ----------
    codes
        uint8[rows, inputs].
    """

    codes: Bytes


def read_codes(kind: str, raw: Bytes) -> Codes:
    """Read rows of a quantised type.

    Parameters
    ----------
    kind
        A name of ``formats.FORMATS``.
    raw
        uint8[rows, bytes of a row], as they lie in the file.

    Raises
    ------
    UnsupportedModelError
        The type is none of these.
    """
    return codes_of(read_blocks(kind, raw), FORMATS[kind])


def codes_of(blocks: Blocks, format: Format) -> Codes:
    """Give each weight a code of its own."""
    return Codes(
        codes=codes_from_planes(blocks.planes, format),
        scale=blocks.scale,
        least=blocks.least,
        factors=blocks.factors,
        least_factors=blocks.least_factors,
    )


def blocks_of(codes: Codes, format: Format) -> Blocks:
    """Cut codes into planes: the inverse of `codes_of`."""
    return Blocks(
        planes=planes_from_codes(codes.codes, format),
        scale=codes.scale,
        least=codes.least,
        factors=codes.factors,
        least_factors=codes.least_factors,
    )


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


def dequantised(codes: Codes, format: Format) -> Floats:
    """Return the weights, float32[rows, inputs], rounded as ggml rounds them."""
    values = np.array(format.codebook, np.uint8)[codes.codes] if format.codebook else codes.codes
    steps = values.astype(np.float32) - np.float32(format.offset)
    weights = _along(codes.scale, codes.factors, steps.shape[1]) * steps
    if codes.least is not None:
        weights -= _along(codes.least, codes.least_factors, steps.shape[1])
    return weights


def _along(scale: Halves, factors: Factors | None, inputs: int) -> Floats:
    """Return ``scale * factors`` for each input, float32[rows, inputs]."""
    wide = scale.astype(np.float32)
    if factors is not None:
        wide = np.repeat(wide, factors.shape[1] // wide.shape[1], axis=1) * factors
    return np.repeat(wide, inputs // wide.shape[1], axis=1)


FLOATS = ("F32", "F16", "BF16")
_BECOMES = {"int4": "Q4_1", "int8": "Q8_0", "float16": "F16", "bfloat16": "BF16"}
"""What matrices of floats become, by the words of the user."""
_ENDS = ("token_embd.weight", "output.weight")  # in 4 bits they change the choice of one token in ten
_ROUNDS = 4  # of fitting; each makes the squared error smaller or leaves it
_AT_ONCE = 1 << 11  # groups that are worked on at a time, so that they stay in the processor's cache


def kind_of(tensor: Tensor, becomes: str | None) -> str:
    """Return the type that a tensor has in memory where floats are to become something, as in `CpuTarget`."""
    is_matrix = len(tensor.shape) > 1 and "ffn_gate_inp" not in tensor.name
    if becomes is None or tensor.kind not in FLOATS or not is_matrix:
        return tensor.kind
    kind = _BECOMES["int8" if becomes == "int4" and tensor.name in _ENDS else becomes]
    return tensor.kind if kind in FORMATS and tensor.shape[-1] % GROUP else kind


def growth(tensor: Tensor, kind: str) -> int:
    """Return how many bytes a tensor takes more as ``kind`` than in its file."""
    if kind == tensor.kind:
        return 0
    each = FORMATS[kind].block_bytes / (TILE * GROUP) if kind in FORMATS else 2
    return round(prod(tensor.shape) * each) - tensor.nbytes


def quantised(kind: str, weights: Floats) -> Blocks:
    """Return rows of floats, float32[rows, inputs], as ``Q4_1`` or ``Q8_0``; inputs are a multiple of 32.

    Raises `ModelError` where a weight is too large for a scale in float16, or no number.
    """
    groups = weights.reshape(-1, GROUP)
    scale, least = np.empty(len(groups), np.float16), np.empty(len(groups), np.float16)
    codes = np.empty(groups.shape, np.uint8)
    with np.errstate(all="ignore"):
        for start in range(0, len(groups), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            one = np.ascontiguousarray(groups[part].T)  # a group is a column, so that sums are of whole vectors
            steps, lows = _fitted(one) if kind == "Q4_1" else (np.abs(one).max(0) / np.float32(127), None)
            scale[part] = steps
            if lows is not None:
                least[part] = -lows
                codes[part] = _codes(one, *(x.astype(np.float32) for x in (scale[part], -least[part]))).T
            else:
                codes[part] = (np.rint(one * _inverse(scale[part].astype(np.float32))) + 128).clip(1, 255).T
    shape = (len(weights), -1)
    halves = (scale, least) if FORMATS[kind].least else (scale,)
    if not all(np.isfinite(numbers).all() for numbers in halves):
        raise ModelError(f"weights that are too large for {kind}, or no numbers: take them as they are")
    found = Codes(
        codes=codes.reshape(weights.shape), scale=scale.reshape(shape),
        least=least.reshape(shape) if FORMATS[kind].least else None,
    )  # fmt: skip
    return blocks_of(found, FORMATS[kind])


def _fitted(one: Floats) -> tuple[Floats, Floats]:
    """Return scale and least value of each column."""
    lows = one.min(0)
    steps = (one.max(0) - lows) / np.float32(15)
    total = one.sum(0)
    for _ in range(_ROUNDS):
        codes = _codes(one, steps, lows)
        sums, squares, products = (
            codes.sum(0),
            np.einsum("ij,ij->j", codes, codes),
            np.einsum("ij,ij->j", codes, one),
        )
        spread = GROUP * squares - sums * sums
        some = spread > 0  # all codes are one where all weights are
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
