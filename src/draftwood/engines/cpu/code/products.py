"""Products ``y = W x`` of packed weights and rows of inputs, in whole numbers.

Inputs are rounded to 8 bits per group of 32 (`draftwood.engines.cpu.code.rounding`). Of each group the products of
codes and inputs are added as integers, exactly; the groups of an output are added as float32, one after another.
So a row's result depends on that row alone: not on how many rows there are, nor on how the work is divided."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.emit import F32, I8, I16, I32, I64, POINTER, VOID, Body, function, vector
from draftwood.engines.cpu.code.instructions import Dots
from draftwood.engines.files.formats import TILE, Format

GROUP_RECORD = 64
"""Bytes of a group of inputs: int8[32], float32 step, int32 sums of inputs 0-15, 16-31 and of all, float32 each of
these sums times minus the step, 4 bytes of padding."""
STEP, SUMS, MINUS = 32, 36, 48
"""Offsets in it of the step, of the three sums, and of these times minus the step."""

CORE = ir.FunctionType(
    VOID, [POINTER, I64, I64, POINTER, I64, POINTER, I64, I64, I64, I64, I64, F32, POINTER]
)  # weights, blocks, tile_bytes, x, x_stride, y, y_stride, rows, first tile, end tile, adds, scale, bias
_FAR, _NEAR = 8192, 1024
"""Bytes ahead at which weights are prefetched: into a core's second-level cache, and from there into the first. A
core fetches a dozen lines at a time into its first, too few to hide the latency of memory."""
ROWS = (8, 7, 6, 5, 4, 3, 2, 1)
"""Numbers of rows that are computed together, whose codes are unpacked once."""
TOGETHER = 2
"""Up to so many rows, all outputs of a tile are computed together: then every line of memory is read once."""


def write_product(module: ir.Module, name: str, form: Format, dots: Dots, features: frozenset[str]) -> None:
    """Write the product for weights of one format: a function of type `CORE`."""
    body, (weights, blocks, tile_bytes, x, x_stride, y, y_stride, rows, low, high, adds, scale, bias) = function(
        module, name, CORE, features
    )
    with body.loop(low, high) as tile:
        start = body.at(weights, body.mul(tile, tile_bytes))
        out = body.at(y, body.mul(tile, body.i64(4 * TILE)))
        shift = body.at(bias, body.mul(tile, body.i64(4 * TILE)))
        for count, row in body.runs(rows, ROWS):
            inputs, places = _some_rows(body, row, count, (x, x_stride), (out, y_stride))
            every = TILE // dots.outputs
            together = every if count <= TOGETHER else 1
            with body.loop(0, every, together) as first:
                parts = [body.add(first, body.i64(i)) for i in range(together)]
                sums = _tile(body, form, dots, start, blocks, inputs, parts)
                for part, found in zip(parts, sums, strict=True):
                    offset = body.mul(part, body.i64(4 * dots.outputs))
                    here = [body.at(place, offset) for place in places]
                    _store(body, found, here, adds, scale, bias, body.at(shift, offset))
    body.ret_void()


def _some_rows(body: Body, first: Any, count: int, *of: tuple[Any, Any]) -> list[list[Any]]:
    """Return the addresses of a few rows in each of some arrays, given by address and bytes of a row."""
    numbers = [body.add(first, body.i64(r)) for r in range(count)]
    return [[body.at(place, body.mul(number, stride)) for number in numbers] for place, stride in of]


def _tile(
    body: Body, form: Format, dots: Dots, start: Any, blocks: Any, inputs: list[Any], parts: list[Any]
) -> list[list[Any]]:
    """Write the sums of some parts of a tile for a few rows; returns float32[outputs] per part and row."""
    kind = vector(F32, dots.outputs)
    sums = [[body.variable(body.same(F32, 0.0, dots.outputs)) for _ in inputs] for _ in parts]
    with body.loop(0, blocks) as block:
        place = body.at(start, body.mul(block, body.i64(form.block_bytes)))
        heads = [_head(body, form, dots, place, part) for part in parts]
        with body.loop(0, form.groups) as group:
            number = body.add(body.mul(block, body.i64(form.groups)), group)
            records = [body.at(row, body.mul(number, body.i64(GROUP_RECORD))) for row in inputs]
            codes = body.at(
                place, body.add(body.i64(form.head_bytes), body.mul(group, body.i64(form.group_bytes)))
            )
            share = form.block_bytes // form.groups  # of the block's scales, too
            _write_prefetch(body, body.at(place, body.mul(group, body.i64(share))), share)
            for part, head, totals in zip(parts, heads, sums, strict=True):
                here = body.at(codes, body.mul(part, body.i64(4 * dots.outputs)))
                ready = [dots.prepared(body, form, step) for step in unpacked(body, form, dots, here)]
                factors = _factors(body, form, dots, place, group, part, head)
                for total, record in zip(totals, records, strict=True):
                    body.store(_added(body, form, dots, ready, factors, record, body.read(total, kind)), total)
    return [[body.read(place, kind) for place in some] for some in sums]


def _write_prefetch(body: Body, codes: Any, size: int) -> None:
    """Prefetch weights of later groups: the processor's own prefetching stops at the end of a small page."""
    for line in range(0, size, 64):
        body.prefetch(body.at(codes, body.i64(_FAR + line)), second=True)
        body.prefetch(body.at(codes, body.i64(_NEAR + line)))


def _added(
    body: Body, form: Format, dots: Dots, steps: list[Any], factors: list[tuple[Any, Any]], record: Any, total: Any
) -> Any:
    """Write the addition of one group to one row's sums."""
    n = dots.outputs
    each = 8 // len(factors)
    step = body.splat(body.get(record, F32, STEP), n)
    for half, (scale, least) in enumerate(factors):
        which = half if len(factors) == 2 else 2
        whole = dots.total(body, form, steps[each * half : each * (half + 1)], record, each * half)
        if form.offset and not dots.applies_offset(form):
            offset = body.mul(body.get(record, I32, SUMS + 4 * which), ir.Constant(I32, form.offset))
            whole = body.sub(whole, body.splat(offset, n))
        total = body.mul_add(body.sitofp(whole, vector(F32, n)), body.fmul(scale, step), total)
        if least is not None:
            minus = body.splat(body.get(record, F32, MINUS + 4 * which), n)
            total = body.mul_add(minus, least, total)
    return total


def unpacked(body: Body, form: Format, dots: Dots, codes: Any) -> list[Any]:
    """Write code that unpacks a group's eight steps, uint8[4 * outputs] each, of one part of a tile."""
    lanes = 4 * dots.outputs
    steps: list[Any] = [None] * 8
    shift = plane = 0
    for bits in form.planes:
        mask = (1 << bits) - 1
        for v in range(bits):
            whole = body.get(codes, vector(I8, lanes), 64 * (plane + v), align=16)
            for field in range(8 // bits):
                code = whole
                if field:
                    code = body.lshr(code, body.same(I8, bits * field, lanes))
                if field < 8 // bits - 1:
                    code = body.and_(code, body.same(I8, mask, lanes))
                if shift:
                    code = body.shl(code, body.same(I8, shift, lanes))
                at = v + bits * field
                steps[at] = code if steps[at] is None else body.or_(steps[at], code)
        shift, plane = shift + bits, plane + bits
    if form.codebook:
        return [dots.looked_up(body, step, form.codebook) for step in steps]
    return steps


def _head(body: Body, form: Format, dots: Dots, place: Any, part: Any) -> tuple[Any, Any]:
    """Write scales and leasts of a block, float32[outputs]; the second is None where the format has none."""
    n = dots.outputs
    found = [
        body.from_half(body.get(body.at(place, body.mul(part, body.i64(2 * n))), vector(I16, n), 2 * TILE * which))
        for which in range(1 + form.least)
    ]
    return found[0], found[1] if form.least else None


def _factors(
    body: Body, form: Format, dots: Dots, place: Any, group: Any, part: Any, head: tuple[Any, Any]
) -> list[tuple[Any, Any]]:
    """Write what multiplies the sums of a group, or of each of its halves: scales and leasts."""
    scale, least = head
    if not form.factors:
        return [(scale, least)]
    n = dots.outputs
    first = body.at(place, body.add(body.i64(2 * TILE * (1 + form.least)), body.mul(part, body.i64(n))))
    first = body.at(first, body.mul(group, body.i64(TILE * form.factors * (1 + form.least))))
    found = []
    for half in range(form.factors):
        factor = body.get(first, vector(I8, n), TILE * half)
        wide = (body.sext if form.signed else body.zext)(factor, vector(I32, n))
        one, other = body.fmul(scale, body.sitofp(wide, vector(F32, n))), None
        if least is not None:
            wide = body.zext(body.get(first, vector(I8, n), TILE * (form.factors + half)), vector(I32, n))
            other = body.fmul(least, body.sitofp(wide, vector(F32, n)))
        found.append((one, other))
    return found


def _store(body: Body, found: list[Any], places: list[Any], adds: Any, scale: Any, bias: Any, shift: Any) -> None:
    """Write one vector of results for each of a few rows: ``y = scale * sum + bias``, or ``y += scale * sum``."""
    kind = found[0].type
    many = body.splat(scale, kind.count)
    with body.if_else(body.icmp_signed("!=", adds, body.i64(0))) as (adding, storing):
        with adding:
            for total, place in zip(found, places, strict=True):
                body.put(body.mul_add(total, many, body.get(place, kind, align=4)), place, align=4)
        with storing:
            for total, place in zip(found, places, strict=True):
                body.put(body.fmul(total, many), place, align=4)
            with body.if_then(body.icmp_unsigned("!=", body.ptrtoint(bias, I64), body.i64(0))):
                more = body.get(shift, kind, align=4)
                for place in places:
                    body.put(body.fadd(body.get(place, kind, align=4), more), place, align=4)


FLOAT_ROWS = {16: (8, 4, 2, 1), 8: (3, 2, 1), 4: (3, 2, 1)}
"""By the lanes of a processor's vectors: numbers of rows whose sums, with the weights, fit its registers."""


def write_float_product(module: ir.Module, name: str, kind: str, lanes: int, features: frozenset[str]) -> None:
    """Write the product for weights ``F32``, ``F16`` or ``BF16`` [tiles, inputs, 16] with rows of float32.

    A function of type `CORE`, in which ``blocks`` is the number of inputs. Two sums per output, of even and of odd
    inputs, are added at last. `FLOAT_ROWS` of ``lanes`` rows read the weights together, which changes no sum.
    """
    body, (weights, inputs, tile_bytes, x, x_stride, y, y_stride, rows, low, high, adds, scale, bias) = function(
        module, name, CORE, features
    )
    with body.loop(low, high) as tile:
        start = body.at(weights, body.mul(tile, tile_bytes))
        out, shift = (body.at(place, body.mul(tile, body.i64(4 * TILE))) for place in (y, bias))
        for count, row in body.runs(rows, FLOAT_ROWS[lanes]):
            values, places = _some_rows(body, row, count, (x, x_stride), (out, y_stride))
            _store(body, _float_sums(body, kind, start, inputs, values), places, adds, scale, bias, shift)
    body.ret_void()


def _float_sums(body: Body, kind: str, start: Any, inputs: Any, rows: list[Any]) -> list[Any]:
    """Write the sums of a tile for a few rows; returns float32[16] per row."""
    wide = vector(F32, TILE)
    sums = [[body.variable(body.same(F32, 0.0)) for _ in range(2)] for _ in rows]
    step = TILE * (4 if kind == "F32" else 2)

    def add(k: Any, which: int) -> None:
        weight = float_weights(body, kind, body.at(start, body.mul(k, body.i64(step))))
        for row, totals in zip(rows, sums, strict=True):
            value = body.splat(body.get(row, F32, body.mul(k, body.i64(4)), align=4))
            body.store(body.mul_add(weight, value, body.read(totals[which], wide)), totals[which])

    whole = body.and_(inputs, body.i64(-4))
    with body.loop(0, whole, 4) as k:
        _write_prefetch(body, body.at(start, body.mul(k, body.i64(step))), 4 * step)
        for i in range(4):
            add(body.add(k, body.i64(i)), i % 2)
    for i in range(3):
        rest = body.add(whole, body.i64(i))
        with body.if_then(body.icmp_signed("<", rest, inputs)):
            add(rest, i % 2)
    return [body.fadd(body.read(even, wide), body.read(odd, wide)) for even, odd in sums]


def float_weights(body: Body, kind: str, place: Any) -> Any:
    """Return the weights of sixteen outputs for one input, as float32."""
    if kind == "F32":
        return body.get(place, vector(F32), align=4)
    bits = body.get(place, vector(I16), align=2)
    if kind == "F16":
        return body.from_half(bits)
    return body.bitcast(body.shl(body.zext(bits, vector(I32)), body.same(I32, 16)), vector(F32))
