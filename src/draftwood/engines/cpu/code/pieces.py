"""Pieces of products: some tiles of a matrix, alone, with a gate after them, or as scores."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.emit import (
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    PIECE,
    POINTER,
    VOID,
    Body,
    function,
    vector,
)
from draftwood.engines.cpu.code.instructions import Dots
from draftwood.engines.cpu.code.products import CORE, float_weights, unpacked
from draftwood.engines.cpu.code.records import PASS, PHASE
from draftwood.engines.cpu.code.rounding import capped, gelu, silu, write_rounded_row
from draftwood.engines.cpu.code.rows import row_of, rows_of_piece
from draftwood.engines.files.formats import GROUP, STEPS, TILE, Format

BEST = 16
"""Bytes of the record of a piece's best token."""
_LOWEST = float("-inf")


def write_products(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``product``, ``silu_gate``, ``gelu_gate``, these two with ``_rounded``, ``scores`` and ``choices``."""
    body, (whole, phase, piece) = function(module, "product", PIECE, features)
    low, high = tiles_of(body, phase, piece)
    write_call(body, phase, low, high, PASS.number(body, whole, "rows"))
    body.ret_void()
    for act, activation in (("silu", silu), ("gelu", gelu)):
        for ending in ("", "_rounded"):
            _write_gated(module, features, f"{act}_gate{ending}", activation, rounded=bool(ending))
    _write_scores(module, features)
    _write_choices(module, features)


def tiles_of(body: Body, phase: Any, piece: Any) -> tuple[Any, Any]:
    """Return the first tile of a piece, and the one after its last."""
    per = PHASE.number(body, phase, "per_piece")
    low = body.mul(piece, per)
    return low, body.least_of(body.add(low, per), PHASE.number(body, phase, "tiles"))


def write_call(
    body: Body, phase: Any, low: Any, high: Any, rows: Any, which: str = "", *, expert: Any = None,
    first: Any = None, y: Any = None,
) -> None:  # fmt: skip
    """Write the call of a phase's first product, or (``_2``) its second, for so many rows.

    ``first`` is the first row of an ``expert``, of whose product nothing is scaled or added.
    """

    def number(name: str) -> Any:
        return PHASE.number(body, phase, name)

    weights, x = (PHASE.place(body, phase, f"{name}{which}") for name in ("weights", "x"))
    y = PHASE.place(body, phase, f"y{which}") if y is None else y
    x_stride, y_stride = number(f"x_stride{which}"), number("y_stride")
    if expert is None:
        ends = [number("adds"), PHASE.real(body, phase, "scale"), PHASE.place(body, phase, "bias")]
    else:
        weights = body.at(weights, body.mul(expert, number(f"expert_bytes{which}")))
        x, y = (body.at(place, body.mul(first, stride)) for place, stride in ((x, x_stride), (y, y_stride)))
        ends = [body.i64(0), body.f32(1.0), body.pointer(body.i64(0))]
    sizes = [number(f"{name}{which}") for name in ("blocks", "tile_bytes")]
    call = [weights, *sizes, x, x_stride, y, y_stride, rows, low, high, *ends]
    body.call_at(number(f"core{which}"), CORE, call)


def _write_gated(
    module: ir.Module, features: frozenset[str], name: str, activation: Any, *, rounded: bool
) -> None:
    """Write ``y = act(core(x)) * core_2(x)`` of a piece's tiles; ``rounded`` writes records of it to out, too."""
    body, (whole, phase, piece) = function(module, name, PIECE, features)
    low, high = tiles_of(body, phase, piece)
    rows = PASS.number(body, whole, "rows")
    for which in ("", "_2"):
        write_call(body, phase, low, high, rows, which)
    write_gating(body, phase, low, high, (body.i64(0), rows), activation, rounded=rounded)
    body.ret_void()


def write_gating(
    body: Body, phase: Any, low: Any, high: Any, rows: tuple[Any, Any], activation: Any, *, rounded: bool
) -> None:
    """Write ``y = act(y) * y_2`` of some tiles and rows, from first to end; ``rounded`` as in `_write_gated`."""
    start, width = body.mul(low, body.i64(4 * TILE)), body.mul(body.sub(high, low), body.i64(TILE))
    with body.loop(*rows) as row:
        offset = body.add(start, body.mul(row, PHASE.number(body, phase, "y_stride")))
        gates, ups = (body.at(PHASE.place(body, phase, name), offset) for name in ("y", "y_2"))
        with body.loop(0, width, LANES) as i:
            at = body.mul(i, body.i64(4))
            gate, up = (body.get(place, vector(F32), at, align=4) for place in (gates, ups))
            body.put(body.fmul(activation(body, gate), up), gates, at, align=4)
        if rounded:  # a record of 64 bytes for each two tiles
            write_rounded_row(
                body, gates, width, body.at(row_of(body, phase, "out", row), body.mul(low, body.i64(32)))
            )


def _write_scores(module: ir.Module, features: frozenset[str]) -> None:
    """Write scores of the scored rows for a piece's tokens, and each row's best one: the lowest of equals."""
    body, (whole, phase, piece) = function(module, "scores", PIECE, features)
    low, high = tiles_of(body, phase, piece)
    scores, stride = PASS.place(body, whole, "scores"), PHASE.number(body, phase, "y_stride")
    rows = PASS.number(body, whole, "scored_rows")
    write_call(body, phase, low, high, rows, y=scores)
    first = body.mul(low, body.i64(TILE))
    end = body.least_of(body.mul(high, body.i64(TILE)), PHASE.number(body, phase, "width"))
    with body.loop(0, rows) as row:
        line = body.at(scores, body.mul(row, stride))
        record = body.at(
            PASS.place(body, whole, "best"), body.mul(body.add(body.mul(piece, rows), row), body.i64(BEST))
        )
        _write_best(body, line, first, end, PHASE.real(body, phase, "soft_cap"), record)
    body.ret_void()


def _write_best(body: Body, line: Any, first: Any, end: Any, cap: Any, record: Any) -> None:
    with body.if_then(body.fcmp_ordered(">", cap, body.f32(0.0))), body.loop(first, end, LANES) as token:
        place = body.at(line, body.mul(token, body.i64(4)))
        body.put(capped(body, body.get(place, vector(F32), align=4), cap), place, align=4)
    for at, value in enumerate(best_of(body, line, first, end)):
        body.put(value, record, 4 * at, align=4)


def best_of(body: Body, line: Any, first: Any, end: Any) -> tuple[Any, Any, Any]:
    """Return the best of a row's scores from ``first`` up to ``end``, its number, and not 0 if one is NaN.

    The number is the lowest of equals, and -1 where no score is above -infinity.
    """
    kind, whole = vector(F32), vector(I32)
    best, at = body.variable(body.same(F32, _LOWEST)), body.variable(body.same(I32, -1))
    odd = body.variable(body.same(I32, 0))
    with body.loop(first, end, LANES) as start:
        score = body.get(line, kind, body.mul(start, body.i64(4)), align=4)
        numbers = body.add(body.splat(body.trunc(start, I32)), ir.Constant(whole, list(range(LANES))))
        is_one = body.icmp_signed("<", numbers, body.splat(body.trunc(end, I32)))
        score = body.select(is_one, score, body.same(F32, _LOWEST))
        odd_here = body.zext(body.fcmp_unordered("uno", score, score), whole)
        body.store(body.or_(body.read(odd, whole), odd_here), odd)
        better = body.fcmp_ordered(">", score, body.read(best, kind))
        body.store(body.select(better, numbers, body.read(at, whole)), at)
        body.store(body.select(better, score, body.read(best, kind)), best)
    scores, numbers = body.read(best, kind), body.read(at, whole)
    found, number = body.lane(scores, 0), body.lane(numbers, 0)
    for lane in range(1, LANES):
        found, number = _better_of(body, found, number, body.lane(scores, lane), body.lane(numbers, lane))
    return found, number, body.fold(body.read(odd, whole), body.or_)


def _better_of(body: Body, score: Any, token: Any, other: Any, other_token: Any) -> tuple[Any, Any]:
    """Return the better of two scores with its token, of equal ones the lower; -1, no token, counts as largest."""
    equal = body.and_(body.fcmp_ordered("==", other, score), body.icmp_unsigned("<", other_token, token))
    wins = body.or_(body.fcmp_ordered(">", other, score), equal)
    return body.select(wins, other, score), body.select(wins, other_token, token)


def _write_choices(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``choices``: each row's best token of all pieces; -1 if a score is NaN or none is above -infinity."""
    body, (whole, phase, _) = function(module, "choices", PIECE, features)
    rows, best = PASS.number(body, whole, "scored_rows"), PASS.place(body, whole, "best")
    with body.loop(0, rows) as row:
        found, token = body.variable(body.f32(_LOWEST)), body.variable(ir.Constant(I32, -1))
        odd = body.variable(ir.Constant(I32, 0))
        with body.loop(0, PHASE.number(body, phase, "pieces")) as piece:
            record = body.at(best, body.mul(body.add(body.mul(piece, rows), row), body.i64(BEST)))
            score, at = _better_of(
                body, body.read(found, F32), body.read(token, I32),
                body.get(record, F32, 0, align=4), body.get(record, I32, 4, align=4),
            )  # fmt: skip
            body.store(score, found)
            body.store(at, token)
            body.store(body.or_(body.read(odd, I32), body.get(record, I32, 8, align=4)), odd)
        is_odd = body.icmp_signed("!=", body.read(odd, I32), ir.Constant(I32, 0))
        choice = body.select(is_odd, ir.Constant(I32, -1), body.read(token, I32))
        place = body.at(PASS.place(body, whole, "choices"), body.mul(row, body.i64(8)))
        body.put(body.sext(choice, I64), place, align=8)
    body.ret_void()


ROW = ir.FunctionType(VOID, [POINTER, I64, I64, I64, F32, POINTER])
"""Reads one output's weights; takes weights, blocks, tile_bytes, output, factor, out float32[inputs]."""


def write_embedding(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``embedding``: each row's token's weights times ``scale``, to out. ``core`` is of type `ROW`."""
    body, (whole, phase, piece) = function(module, "embedding", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        token = body.get(PASS.place(body, whole, "tokens"), I32, body.mul(row, body.i64(4)), align=4)
        call = [
            PHASE.place(body, phase, "weights"), PHASE.number(body, phase, "blocks"),
            PHASE.number(body, phase, "tile_bytes"), body.sext(token, I64), PHASE.real(body, phase, "scale"),
            row_of(body, phase, "out", row),
        ]  # fmt: skip
        body.call_at(PHASE.number(body, phase, "core"), ROW, call)
    body.ret_void()


def write_row_reader(module: ir.Module, name: str, form: Format, features: frozenset[str]) -> None:
    """Write the reading of one output's weights from a format's tiles: a function of type `ROW`."""
    body, (weights, blocks, tile_bytes, output, factor, out) = function(module, name, ROW, features)
    tile, lane = body.sdiv(output, body.i64(TILE)), body.srem(output, body.i64(TILE))
    start = body.at(weights, body.mul(tile, tile_bytes))
    codes = body.room(I8, 64 * STEPS)
    with body.loop(0, blocks) as block:
        place = body.at(start, body.mul(block, body.i64(form.block_bytes)))
        with body.loop(0, form.groups) as group:
            first = body.add(body.i64(form.head_bytes), body.mul(group, body.i64(form.group_bytes)))
            for k, step in enumerate(unpacked(body, form, Dots(), body.at(place, first))):
                body.put(step, codes, 64 * k)
            number = body.add(body.mul(block, body.i64(form.groups)), group)
            line = body.at(out, body.mul(number, body.i64(4 * GROUP)))
            halves = max(1, form.factors)
            for half in range(halves):
                scale, least = _scales(body, form, place, group, lane, half)
                with body.loop(STEPS * half // halves, STEPS * (half + 1) // halves) as k:
                    for i in range(4):
                        at = body.add(
                            body.mul(k, body.i64(64)), body.add(body.mul(lane, body.i64(4)), body.i64(i))
                        )
                        code = body.sub(body.zext(body.get(codes, I8, at), I32), ir.Constant(I32, form.offset))
                        value = body.fmul(scale, body.sitofp(code, F32))
                        value = value if least is None else body.fsub(value, least)
                        body.put(
                            body.fmul(value, factor), line, body.add(body.mul(k, body.i64(16)), body.i64(4 * i))
                        )
    body.ret_void()


def _scales(body: Body, form: Format, place: Any, group: Any, lane: Any, half: int) -> tuple[Any, Any]:
    """Return what a code of one output is multiplied by, and what is subtracted then (None: nothing)."""
    at = body.trunc(lane, I32)
    found = []
    per = TILE * form.factors
    for which in range(1 + form.least):
        heads = body.from_half(body.get(place, vector(I16), 2 * TILE * which, align=2))
        value = body.extract_element(heads, at)
        if form.factors:
            first = body.i64(2 * TILE * (1 + form.least) + per * which + TILE * half)
            offset = body.add(first, body.mul(group, body.i64(per * (1 + form.least))))
            factor = body.get(place, I8, body.add(offset, lane))
            signed = form.signed and not which
            value = body.fmul(value, body.sitofp((body.sext if signed else body.zext)(factor, I32), F32))
        found.append(value)
    return found[0], found[1] if form.least else None


def write_float_row_reader(module: ir.Module, name: str, kind: str, features: frozenset[str]) -> None:
    """Write a reader for ``F32``, ``F16`` or ``BF16`` [tiles, inputs, 16]; ``blocks`` is the number of inputs."""
    body, (weights, inputs, tile_bytes, output, factor, out) = function(module, name, ROW, features)
    tile, lane = body.sdiv(output, body.i64(TILE)), body.srem(output, body.i64(TILE))
    start, size = body.at(weights, body.mul(tile, tile_bytes)), 4 if kind == "F32" else 2
    with body.loop(0, inputs) as k:
        values = float_weights(body, kind, body.at(start, body.mul(k, body.i64(size * TILE))))
        value = body.extract_element(values, body.trunc(lane, I32))
        body.put(body.fmul(value, factor), out, body.mul(k, body.i64(4)), align=4)
    body.ret_void()
