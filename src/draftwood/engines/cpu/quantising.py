"""Floats in other types: rounded to 16 bits, or as whole numbers with a scale for each group of 32 inputs.

``Q8_0`` has a scale, by the greatest weight. ``Q4_1`` has a scale and a least value: they begin at the least and
the greatest weight of the group and are then fitted to the codes by least squares, some rounds of it.
"""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.formats import FORMATS, GROUP, TILE
from draftwood.engines.cpu.gguf_blocks import Blocks
from draftwood.engines.cpu.gguf_file import Tensor
from draftwood.engines.cpu.gguf_types import Codes, Floats, blocks_of
from draftwood.errors import ModelError

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
