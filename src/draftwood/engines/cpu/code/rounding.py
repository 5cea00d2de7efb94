"""Rounds rows of float32 to whole numbers per group of 32, and elementary functions without the C library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from draftwood.engines.cpu.code.emit import Code
from draftwood.engines.cpu.code.values import F32, I8, I16, I32, Place, Value
from draftwood.engines.files.formats import GROUP

GROUP_RECORD = 64
"""Bytes of a group of inputs: int8[32], float32 step, int32 sums of inputs 0-15, 16-31 and of all, float32 each of
these sums times minus the step, 4 bytes of padding."""
STEP, SUMS, MINUS = 32, 36, 48
"""Offsets in it of the step, of the three sums, and of these times minus the step."""

_MAGIC = 12582912.0  # 1.5 * 2**23: added and subtracted again, it rounds to whole numbers, ties to even
_MAGIC_BITS = 0x4B400000
_LOG2 = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # Cody and Waite: the first has few bits, so n * it is exact
# Cephes' expf: the polynomial of (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2.
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
"""Cephes' logf: the polynomial of (log(1 + r) - r + r**2 / 2) / r**3 for r from sqrt(1/2) - 1 to sqrt(2) - 1."""
SOME = 1e-30
"""A group of numbers none of which is larger counts as zeros."""
_LEAST = -87.3  # exp of less is 0, so no result is subnormal


def write_rounded(values: Place, record: Place) -> None:
    """Write a group of 32 float32 at ``values`` as a record of whole numbers (`GROUP_RECORD`).

    The step is the largest size / 127. A number that is not finite makes the step NaN, and so every sum with it.
    """
    halves, largest, nothing = _group(values)
    is_some = largest > SOME
    inverse = is_some.where(127.0 / largest, 0.0)
    step = is_some.where(largest * (1 / 127), 0.0) + nothing
    sums = []
    for half, part in enumerate(halves):
        whole = rounded(part * inverse)
        record.i8x16[16 * half] = whole.narrow(I8)
        sums.append(whole.sum())
    (record + STEP).f32[0] = step
    minus = -step
    for at, total in enumerate((*sums, sums[0] + sums[1])):
        (record + SUMS).i32[at] = total
        (record + MINUS).f32[at] = minus * total.real()


def write_rounded_row(code: Code, values: Place, width: Value, records: Place) -> None:
    """Write ``width`` float32, a multiple of 32, as records."""
    with code.count(0, width // GROUP) as group:
        write_rounded(values + group * (4 * GROUP), records + group * GROUP_RECORD)


@contextmanager
def write_coded(
    code: Code, values: Place, size: Value, most: int
) -> Iterator[tuple[Value, tuple[Value, Value], Value]]:
    """Write a loop over the groups of 32 of ``size`` float32, the last one padded with zeros.

    Yields a group's number, its whole numbers within ``most`` as int32[16] twice, and their scale, the bits of a
    bfloat16: the largest size / most, rounded up to one. The scale is NaN where a number is not finite.
    """
    room = code.room(F32, GROUP)
    with code.count(0, size.padded(GROUP) // GROUP) as group:
        start, left = values + group * (4 * GROUP), size - group * GROUP
        with code.when(left < GROUP):
            room.f32x32[0] = code.real(0.0, GROUP)
            with code.count(0, left) as i:
                room.f32[i] = start.f32[i]
        whole = (left < GROUP).where(room.number(), start.number()).place()
        halves, largest, nothing = _group(whole)
        is_some = largest > SOME
        scale = ((largest * (1 / most)).bits_as(I32) + 0xFFFF) & -0x10000
        inverse = is_some.where(1.0 / scale.bits_as(F32), 0.0)
        bits = nothing.is_nan.where(0x7FC00000, is_some.where(scale, 0)) >> 16
        low, high = (rounded(part * inverse) for part in halves)
        yield group, (low, high), bits.narrow(I16)


def from_bfloat(bits: Value) -> Value:
    """Return bfloat16 numbers, given as int16, as float32."""
    return (bits.unsigned(I32) << 16).bits_as(F32)


def rounded(x: Value) -> Value:
    """Return float32 numbers, of a size below 2**22, rounded to int32: to the nearest, ties to even."""
    return (x + _MAGIC).bits_as(I32) - _MAGIC_BITS


def _group(values: Place) -> tuple[tuple[Value, Value], Value, Value]:
    """Return a group of 32 float32 as two vectors, their largest size, and 0, or NaN where one is not finite."""
    low, high = values.f32x16[0], values.f32x16[GROUP // 2]
    return (low, high), abs(low).most(abs(high)).fold(Value.most), (low * 0.0 + high * 0.0).sum()


def exponential(x: Value) -> Value:
    """Return exp(x) of float32 up to about an ulp; 1 exactly for 0, 0 for numbers below -87.3; x <= 88."""
    is_small = x < _LEAST
    shifted = x * _LOG2 + _MAGIC
    power = shifted.bits_as(I32) - _MAGIC_BITS
    whole = shifted - _MAGIC
    rest = x.plus_product(whole, x.as_value(-_LN2_HIGH))
    rest = rest.plus_product(whole, x.as_value(-_LN2_LOW))
    found = x.as_value(_EXP[0])
    for factor in _EXP[1:]:
        found = x.as_value(factor).plus_product(found, rest)
    found = rest.plus_product(found * rest, rest) + 1.0
    return is_small.where(0.0, found * ((power + 127) << 23).bits_as(x.element))


def one_exponential(x: Value) -> Value:
    """Return exp of one number."""
    return exponential(x.splat(4)).lane(0)


def sigmoid(x: Value) -> Value:
    """Return 1 / (1 + exp(-x))."""
    low = x.as_value(-80.0)
    clipped = (x <= low).where(low, x)  # NaN stays NaN
    return 1.0 / (exponential(-clipped) + 1.0)


def silu(x: Value) -> Value:
    """Return x * sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x: Value) -> Value:
    """Return log(1 + exp(x)), as max(x, 0) + log(1 + exp(-abs(x)))."""
    e = exponential(-abs(x))
    is_high = e > 0.41421356  # then log(1 + e) = ln(2) + log((1 + e) / 2)
    rest = is_high.where((e - 1.0) * 0.5, e)
    square = rest * rest
    found = x.as_value(_LOG[0])
    for factor in _LOG[1:]:
        found = x.as_value(factor).plus_product(found, rest)
    found = found * rest * square
    found = is_high.where(found + _LN2_LOW, found)
    found = rest + found.plus_product(square, x.as_value(-0.5))
    found = is_high.where(found + _LN2_HIGH, found)
    return (x > 0.0).where(x, 0.0) + found


def gelu(x: Value) -> Value:
    """Return GELU by its approximation with tanh: x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))."""
    inner = x.plus_product(x * x * x, x.as_value(0.044715))
    return x * sigmoid(inner * 1.5957691216057308)


def squared(x: Value) -> Value:
    """Return the squares of numbers above 0, and 0 for others (squared ReLU)."""
    above = (x <= 0.0).where(0.0, x)  # so written, NaN stays NaN
    return above * above


def clamped_gate(gate: Value, up: Value) -> Value:
    """Return gpt-oss's gating: ``g * sigmoid(1.702 * g) * (u + 1)`` of ``min(gate, 7)`` and up within 7."""
    gate = (gate > 7.0).where(7.0, gate)  # so written, NaN stays NaN
    up = (up > 7.0).where(7.0, up)
    up = (up < -7.0).where(-7.0, up)
    return gate * sigmoid(gate * 1.702) * (up + 1.0)


def tanh(x: Value) -> Value:
    """Return tanh, as 2 * sigmoid(2 x) - 1."""
    return x.as_value(-1.0).plus_product(sigmoid(x + x), x.as_value(2.0))


def capped(x: Value, cap: Value) -> Value:
    """Return cap * tanh(x / cap)."""
    return tanh(x / cap) * cap
