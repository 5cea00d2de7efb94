"""Rounds rows of float32 to 8 bits per group of 32, and elementary functions without the C library."""

from __future__ import annotations

from typing import Any

from draftwood.engines.cpu.code.emit import F32, I8, I32, Body, vector
from draftwood.engines.cpu.code.products import GROUP_RECORD, MINUS, STEP, SUMS
from draftwood.engines.files.formats import GROUP

_MAGIC = 12582912.0  # 1.5 * 2**23: added and subtracted again, it rounds to whole numbers, ties to even
_LOG2 = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # Cody and Waite: the first has few bits, so n * it is exact
# Cephes' expf: the polynomial of (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOWEST = -87.3  # exp of less is 0, so no result is subnormal


def write_rounded(body: Body, values: Any, record: Any) -> None:
    """Write a group of 32 float32 at ``values`` as a record of whole numbers (`GROUP_RECORD`).

    The step is the largest size / 127. A number that is not finite makes the step NaN, and so every sum with it.
    """
    kind = vector(F32, 16)
    halves = [body.get(values, kind, 64 * half, align=4) for half in range(2)]
    sizes = [body.magnitude(half) for half in halves]
    largest = body.fold(body.larger(sizes[0], sizes[1]), body.larger)
    step = body.fmul(largest, body.f32(1 / 127))
    inverse = body.fdiv(body.f32(127.0), largest)
    inverse = body.select(body.fcmp_ordered(">", largest, body.f32(1e-30)), inverse, body.f32(0.0))
    step = body.select(body.fcmp_ordered(">", largest, body.f32(1e-30)), step, body.f32(0.0))
    nothing = body.fadd(*(body.fmul(half, body.same(F32, 0.0)) for half in halves))
    step = body.fadd(step, body.fold(nothing, body.fadd))
    sums = []
    for half, part in enumerate(halves):
        scaled = body.fadd(body.fmul(part, body.splat(inverse)), body.same(F32, _MAGIC))
        whole = body.sub(body.bitcast(scaled, vector(I32)), body.same(I32, 0x4B400000))
        body.put(body.trunc(whole, vector(I8, 16)), record, 16 * half, align=16)
        sums.append(body.fold(whole, body.add))
    body.put(step, record, STEP, align=4)
    minus = body.fneg(step)
    for at, total in enumerate((*sums, body.add(*sums))):
        body.put(total, record, SUMS + 4 * at, align=4)
        body.put(body.fmul(minus, body.sitofp(total, F32)), record, MINUS + 4 * at, align=4)


def write_rounded_row(body: Body, values: Any, width: Any, records: Any) -> None:
    """Write ``width`` float32, a multiple of 32, as records."""
    with body.loop(0, body.sdiv(width, body.i64(GROUP))) as group:
        write_rounded(
            body,
            body.at(values, body.mul(group, body.i64(4 * GROUP))),
            body.at(records, body.mul(group, body.i64(GROUP_RECORD))),
        )


def exponential(body: Body, x: Any) -> Any:
    """Return exp(x) of float32[16] up to about an ulp; 1 exactly for 0, 0 for numbers below -87.3; x <= 88."""
    kind = x.type
    n = kind.count

    def const(value: float) -> Any:
        return body.same(F32, value, n)

    small = body.fcmp_ordered("<", x, const(_LOWEST))
    x = body.select(small, const(0.0), x)
    shifted = body.fadd(body.fmul(x, const(_LOG2)), const(_MAGIC))
    power = body.sub(body.bitcast(shifted, vector(I32, n)), body.same(I32, 0x4B400000, n))
    whole = body.fsub(shifted, const(_MAGIC))
    rest = body.mul_add(whole, const(-_LN2_HIGH), x)
    rest = body.mul_add(whole, const(-_LN2_LOW), rest)
    found = const(_EXP[0])
    for factor in _EXP[1:]:
        found = body.mul_add(found, rest, const(factor))
    found = body.fadd(body.mul_add(body.fmul(found, rest), rest, rest), const(1.0))
    scale = body.shl(body.add(power, body.same(I32, 127, n)), body.same(I32, 23, n))
    found = body.fmul(found, body.bitcast(scale, kind))
    return body.select(small, const(0.0), found)


def sigmoid(body: Body, x: Any) -> Any:
    """Return 1 / (1 + exp(-x)) of float32[16]."""
    one = body.same(F32, 1.0, x.type.count)
    low = body.same(F32, -80.0, x.type.count)
    clipped = body.select(body.fcmp_unordered(">", x, low), x, low)  # NaN stays NaN
    return body.fdiv(one, body.fadd(one, exponential(body, body.fneg(clipped))))


def silu(body: Body, x: Any) -> Any:
    """Return x * sigmoid(x)."""
    return body.fmul(x, sigmoid(body, x))


def gelu(body: Body, x: Any) -> Any:
    """Return GELU by its approximation with tanh: x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))."""
    n = x.type.count
    cube = body.fmul(body.fmul(x, x), x)
    inner = body.mul_add(cube, body.same(F32, 0.044715, n), x)
    return body.fmul(x, sigmoid(body, body.fmul(inner, body.same(F32, 1.5957691216057308, n))))


def tanh(body: Body, x: Any) -> Any:
    """Return tanh of float32[16], as 2 * sigmoid(2 x) - 1."""
    n = x.type.count
    return body.mul_add(sigmoid(body, body.fadd(x, x)), body.same(F32, 2.0, n), body.same(F32, -1.0, n))


def capped(body: Body, x: Any, cap: Any) -> Any:
    """Return cap * tanh(x / cap)."""
    many = body.splat(cap, x.type.count)
    return body.fmul(many, tanh(body, body.fdiv(x, many)))
