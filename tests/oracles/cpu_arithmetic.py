"""Arithmetic of the CPU engine in numpy: float32 operations one by one, each rounded once, with the engine's bits.

Arrays are float32 unless a docstring says otherwise. Functions of one argument work number by number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.files.formats import FORMATS, GROUP, Format, codes_from_planes, eight_bit_floats
from draftwood.engines.files.gguf_blocks import Blocks
from draftwood.engines.files.gguf_types import read_blocks, read_floats

Floats = NDArray[np.float32]
F = np.float32
LANES = 16


@np.errstate(all="ignore")
def fma(a: Any, b: Any, c: Any) -> Floats:
    """Return a * b + c, rounded once.

    The product is exact in float64. The sum is rounded to odd there (a last bit of 1 says that something was cut
    off), so that rounding it to float32 is right.
    """
    product = np.multiply(a, b, dtype=np.float64)
    total = product + c
    back = total - product
    error = (product - (total - back)) + (c - back)
    bits = np.asarray(total).view(np.int64)
    is_cut = np.isfinite(total) & (error != 0) & (bits & 1 == 0)
    odd = np.where((error > 0) == (total > 0), bits + 1, bits - 1)
    return np.where(is_cut, odd, bits).view(np.float64).astype(F)


def same_bits(a: Floats, b: Floats) -> bool:
    """Whether numbers have the same bits; what is not a number equals any other such."""
    nan = np.isnan(a)
    same = a.view(np.int32) == b.view(np.int32)
    return a.shape == b.shape and bool((np.isnan(b) == nan).all() and same[~nan].all())


# --- sums in 16 lanes --------------------------------------------------------------------------------------------


def in_lanes(values: Floats) -> Floats:
    """Cut [..., n] into runs of 16 numbers, the last one filled with zeros: [runs, ..., 16]."""
    missing = -values.shape[-1] % LANES
    padded = np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])
    return np.moveaxis(padded.reshape(*values.shape[:-1], -1, LANES), -2, 0)


def folded(lanes: Floats) -> Floats:
    """Add the 16 lanes of [..., 16] up: the upper half onto the lower half, again and again."""
    while lanes.shape[-1] > 1:
        lower, upper = np.split(lanes, 2, axis=-1)
        lanes = lower + upper
    return lanes[..., 0]


# --- elementary functions ----------------------------------------------------------------------------------------

_LOG2 = F(1.4426950408889634)
_LN2_HIGH, _LN2_LOW = F(0.693359375), F(-2.12194440e-4)
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exponential(x: Floats) -> Floats:
    """Return exp(x), for x up to 88: 2**n * exp(r), where n is x / ln(2) rounded and r = x - n * ln(2).

    ln(2) is taken as two numbers, so that r is exact enough (Cody and Waite, 1980). exp(r) is
    1 + (r + r**2 * p(r)), p being the polynomial of Cephes' expf. Below -87.3 the result is 0, so that none is
    subnormal.
    """
    small = x < F(-87.3)
    x = np.where(small, F(0), x)
    n = np.rint(x * _LOG2)
    r = fma(n, -_LN2_LOW, fma(n, -_LN2_HIGH, x))
    p = np.full_like(r, _EXP[0])
    for factor in _EXP[1:]:
        p = fma(p, r, F(factor))
    found = fma(p * r, r, r) + F(1)
    return np.where(small, F(0), np.ldexp(found, np.nan_to_num(n).astype(np.int32)))


def sigmoid(x: Floats) -> Floats:
    """Return 1 / (1 + exp(-x)); numbers below -80 count as -80."""
    return F(1) / (F(1) + exponential(-np.where(x < F(-80), F(-80), x)))


def silu(x: Floats) -> Floats:
    """Return x * sigmoid(x)."""
    return x * sigmoid(x)


def gelu(x: Floats) -> Floats:
    """Return GELU, approximated with tanh: x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))."""
    inner = fma(x * x * x, F(0.044715), x)
    return x * sigmoid(inner * F(1.5957691216057308))


def squared(x: Floats) -> Floats:
    """Return x * x of numbers above 0, and 0 for others (squared ReLU, arXiv 2109.08668)."""
    above = np.maximum(x, F(0))
    return above * above


def clamped_gate(gate: Floats, up: Floats) -> Floats:
    """Return ``g * sigmoid(1.702 * g) * (u + 1)``; g is ``min(gate, 7)``, u is up, cut at -7 and 7 (gpt-oss)."""
    gate, up = np.minimum(gate, F(7)), np.clip(up, F(-7), F(7))
    return gate * sigmoid(gate * F(1.702)) * (up + F(1))


def tanh(x: Floats) -> Floats:
    """Return 2 * sigmoid(2 * x) - 1, the last two operations rounded once."""
    return fma(sigmoid(x + x), F(2), F(-1))


def capped(x: Floats, cap: float) -> Floats:
    """Return cap * tanh(x / cap), which lies between -cap and cap; x itself where cap is 0."""
    return F(cap) * tanh(x / F(cap)) if cap else x


_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip


def softplus(x: Floats) -> Floats:
    """Return log(1 + exp(x)), as max(x, 0) + log(1 + e) where e = exp(-|x|).

    log(1 + e) is r - r**2 / 2 + r**3 * p(r), p being the polynomial of Cephes' logf: r = e up to sqrt(2) - 1;
    above, r = (e - 1) / 2, and ln(2) is added, as two numbers.
    """
    e = exponential(-np.abs(x))
    high = e > F(0.41421356)
    r = np.where(high, (e - F(1)) * F(0.5), e)
    square = r * r
    p = np.full_like(r, _LOG[0])
    for factor in _LOG[1:]:
        p = fma(p, r, F(factor))
    found = p * r * square
    found = np.where(high, found + _LN2_LOW, found)
    found = r + fma(square, F(-0.5), found)
    found = np.where(high, found + _LN2_HIGH, found)
    return np.where(x > 0, x, F(0)) + found


# --- products ----------------------------------------------------------------------------------------------------


@np.errstate(all="ignore")
def rounded(x: Floats) -> tuple[NDArray[np.float64], Floats]:
    """Round inputs [..., n] to whole numbers of 8 bits times a step for each group of 32.

    Returns whole numbers, as float64[..., n], and steps [..., n / 32]. A step is the largest size of its group
    times 1 / 127: 0 where no size is above 1e-30, NaN where a number of the group is not finite.
    """
    groups = x.reshape(*x.shape[:-1], -1, GROUP)
    largest = np.abs(groups).max(-1)
    some = largest > F(1e-30)
    step = np.where(some, largest * F(1 / 127), F(0))
    inverse = np.where(some, F(127) / largest, F(0))
    whole = np.rint(groups * inverse[..., None])  # ties to even
    step = np.where(np.isfinite(groups).all(-1), step, F(np.nan))
    return whole.astype(np.float64).reshape(x.shape), step


class Quantised:
    """A matrix W [outputs, inputs] of whole numbers of few bits, with scales for each 32 or 16 inputs.

    A weight is ``scale * code - least``. Codes are float64, so that sums of products of them are exact.
    """

    def __init__(self, blocks: Blocks, form: Format) -> None:
        codes = codes_from_planes(blocks.planes, form)
        book = np.array(form.codebook or range(256), np.float64)
        self.codes = book[codes] - form.offset
        self.size = GROUP // max(1, form.factors)  # inputs that share a scale
        parts = codes.shape[1] // self.size
        factors = eight_bit_floats(blocks.factors) if form.floating else blocks.factors
        self.scale = _scales(blocks.scale, factors, parts, form.power)
        self.least = None if blocks.least is None else _scales(blocks.least, blocks.least_factors, parts)

    @np.errstate(all="ignore")
    def times(self, x: Floats) -> Floats:
        """Return W x for inputs [..., inputs], rounded to 8 bits: [..., outputs].

        Part by part of the inputs, in order: the sum of code * input, which is exact, is multiplied by
        scale * step and added by fma; then (-step * sum of inputs) * least is, where the type has leasts.
        """
        every, steps = rounded(x)
        total = np.zeros((*x.shape[:-1], len(self.codes)), F)
        for part in range(self.scale.shape[1]):
            here = slice(self.size * part, self.size * (part + 1))
            whole, step = every[..., here], steps[..., here.start // GROUP, None]
            total = fma((whole @ self.codes[:, here].T).astype(F), self.scale[:, part] * step, total)
            if self.least is not None:
                minus = -step * whole.sum(-1, keepdims=True).astype(F)
                total = fma(minus, self.least[:, part], total)
        return total


def _scales(scale: Any, factors: Any, parts: int, power: int = 0) -> Floats:
    """Return ``2 ** power * scale`` of each part's block, times the part's factor if any: [outputs, parts]."""
    wide = np.repeat(scale.astype(F) * F(2.0**power), parts // scale.shape[1], axis=1)
    return wide if factors is None else wide * factors.astype(F)


class Plain:
    """A matrix W [outputs, inputs] of float32; numbers of 16 bits were made so without rounding."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights

    @np.errstate(all="ignore")
    def times(self, x: Floats) -> Floats:
        """Return W x for inputs [..., inputs]: [..., outputs]. Two sums by fma, of even and of odd inputs, in
        order; they are added at last.
        """
        sums = [np.zeros((*x.shape[:-1], len(self.weights)), F) for _ in range(2)]
        for i in range(x.shape[-1]):
            sums[i % 2] = fma(self.weights[:, i], x[..., i, None], sums[i % 2])
        return sums[0] + sums[1]


def read_matrix(kind: str, raw: NDArray[np.uint8], scale: float = 1.0) -> Quantised | Plain:
    """Return the matrix of a tensor's bytes, uint8[outputs, bytes of a row]; ``kind`` is its type in GGUF.

    ``scale`` is what NVFP4's weights are multiplied by.
    """
    if kind in FORMATS:
        return Quantised(read_blocks(kind, raw, scale), FORMATS[kind])
    return Plain(read_floats(kind, raw))
