"""What kernels compute, in numpy: whole numbers, and float32 operations one by one, each rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.rounding import GROUP_RECORD, MINUS, STEP, SUMS
from draftwood.engines.files.formats import GROUP, Format
from tests.engines.cpu.random_blocks import Codes

Floats = NDArray[np.float32]
_F = np.float32
_MAGIC = _F(12582912.0)


def fma(a: Any, b: Any, c: Any) -> Floats:
    """Return a * b + c of float32 numbers, rounded once.

    The product is exact in float64. The sum is rounded to odd there (a last bit of 1 says that something was cut
    off), so that rounding it to float32 is right.
    """
    with np.errstate(all="ignore"):
        product, more = np.broadcast_arrays(np.asarray(a, np.float64) * b, np.asarray(c, np.float64))
        total = product + more
        back = total - product
        error = (product - (total - back)) + (more - back)
        cut = np.isfinite(total) & (error != 0)
        bits = total.copy().view(np.int64)
        outwards = (error > 0) == (total > 0)
        bits = np.where(cut & (bits & 1 == 0), np.where(outwards, bits + 1, bits - 1), bits)
        return bits.view(np.float64).astype(np.float32)


def rounded(values: Floats) -> NDArray[np.uint8]:
    """Round float32 [rows, inputs] to records [rows, inputs / 32, 64], as `rounding.write_rounded` does."""
    groups = values.reshape(len(values), -1, GROUP)
    found = np.zeros((*groups.shape[:2], GROUP_RECORD), dtype=np.uint8)
    with np.errstate(all="ignore"):
        largest = np.fmax.reduce(np.abs(groups), axis=-1, initial=0).astype(_F)
        some = largest > _F(1e-30)
        inverse = np.where(some, _F(127) / largest, _F(0)).astype(_F)
        step = np.where(some, largest * _F(1 / 127), _F(0)).astype(_F)
        step = step + (groups * _F(0)).sum(-1, dtype=_F)
        scaled = groups * inverse[..., None] + _MAGIC
    whole = scaled.view(np.int32) - np.int32(0x4B400000)
    found[..., :GROUP] = whole.astype(np.int8).view(np.uint8)
    sums = np.stack([whole[..., :16].sum(-1), whole[..., 16:].sum(-1), whole.sum(-1)], axis=-1).astype(np.int32)
    found[..., STEP : STEP + 4].view(_F)[..., 0] = step
    found[..., SUMS : SUMS + 12].view(np.int32)[...] = sums
    with np.errstate(all="ignore"):
        found[..., MINUS : MINUS + 12].view(_F)[...] = -step[..., None] * sums.astype(_F)
    return found


def product(codes: Codes, form: Format, records: NDArray[np.uint8]) -> Floats:
    """Return W x for records of rows, float32[rows, outputs], in the order of `products`."""
    book = np.array(form.codebook, np.int32) if form.codebook else np.arange(256, dtype=np.int32)
    weights = book[codes.codes].astype(np.int64) - form.offset
    x = records[..., :GROUP].view(np.int8).astype(np.int64)
    halves = max(1, form.factors)
    total = np.zeros((len(records), len(weights)), dtype=_F)
    for group in range(x.shape[1]):
        for half in range(halves):
            part = slice(GROUP * half // halves, GROUP * (half + 1) // halves)
            whole = x[:, group, part] @ weights[:, GROUP * group : GROUP * (group + 1)][:, part].T
            which = half if halves == 2 else 2
            step = records[:, group, STEP : STEP + 4].view(_F)
            minus = records[:, group, MINUS + 4 * which : MINUS + 4 * which + 4].view(_F)
            at = group * halves + half
            with np.errstate(all="ignore"):
                scale = _scale(codes.scale, codes.factors, group, at, form) * step
            total = fma(whole.astype(_F), scale, total)
            if codes.least is not None:
                total = fma(minus, _scale(codes.least, codes.least_factors, group, at, form), total)
    return total


def _scale(scale: Any, factors: Any, group: int, at: int, form: Format) -> Floats:
    found = scale[:, group // form.groups].astype(_F)
    return found if factors is None else found * factors[:, at].astype(_F)


def float_product(weights: Floats, x: Floats) -> Floats:
    """Return W x of floats: two sums, of even and of odd inputs, added at last."""
    sums = [np.zeros((len(x), len(weights)), dtype=_F) for _ in range(2)]
    for k in range(x.shape[1]):
        sums[k % 2] = fma(weights[None, :, k], x[:, k, None], sums[k % 2])
    with np.errstate(all="ignore"):
        return sums[0] + sums[1]


def stored(total: Floats, y: Floats, scale: float, bias: Floats | None, *, adds: bool) -> Floats:
    """Return ``y + scale * total``, or ``scale * total + bias``."""
    if adds:
        return fma(total, _F(scale), y)
    with np.errstate(all="ignore"):
        found = total * _F(scale)
        return found if bias is None else found + bias


def same_bits(a: Floats, b: Floats) -> bool:
    """Whether numbers have the same bits; what is not a number equals any other such."""
    nan = np.isnan(a)
    same = a.view(np.int32) == b.view(np.int32)
    return a.shape == b.shape and bool((np.isnan(b) == nan).all() and same[~nan].all())
