"""Pieces of products: some tiles of a matrix, alone, with a gate behind them, or as scores."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.emit import F32, I32, I64, LANES, PIECE, Body, function, vector
from draftwood.engines.cpu.formats import TILE
from draftwood.engines.cpu.products import CORE
from draftwood.engines.cpu.records import PASS, PHASE
from draftwood.engines.cpu.rounding import gelu, silu, tanh, write_rounded_row
from draftwood.engines.cpu.rows import row_of

BEST = 16
"""Bytes of the record of a piece's best token."""
_LOWEST = float("-inf")


def write_products(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``product``, ``silu_gate``, ``gelu_gate``, these two with ``_rounded``, ``scores`` and ``choices``."""
    body, (whole, phase, piece) = function(module, "product", PIECE, features)
    low, high = _tiles(body, phase, piece)
    _write_call(body, whole, phase, low, high)
    body.ret_void()
    for act, activation in (("silu", silu), ("gelu", gelu)):
        for ending in ("", "_rounded"):
            _write_gated(module, features, f"{act}_gate{ending}", activation, rounded=bool(ending))
    _write_scores(module, features)
    _write_choices(module, features)


def _tiles(body: Body, phase: Any, piece: Any) -> tuple[Any, Any]:
    """Return first and end tile of a piece."""
    per = PHASE.number(body, phase, "per_piece")
    low = body.mul(piece, per)
    return low, body.least_of(body.add(low, per), PHASE.number(body, phase, "tiles"))


def _write_call(
    body: Body, whole: Any, phase: Any, low: Any, high: Any, which: str = "", y: Any = None, rows: str = "rows",
    of: str = "",
) -> None:  # fmt: skip
    """Write the call of a phase's first product, or (``_2``) its second; ``of`` names the slot of its x."""
    weights, core = PHASE.place(body, phase, f"weights{which}"), PHASE.number(body, phase, f"core{which}")
    y = PHASE.place(body, phase, f"y{which}") if y is None else y
    blocks, tile_bytes = (PHASE.number(body, phase, f"{name}{which}") for name in ("blocks", "tile_bytes"))
    x, x_stride = PHASE.place(body, phase, f"x{of}"), PHASE.number(body, phase, f"x_stride{of}")
    y_stride, adds = PHASE.number(body, phase, "y_stride"), PHASE.number(body, phase, "adds")
    scale, bias = PHASE.real(body, phase, "scale"), PHASE.place(body, phase, "bias")
    count = PASS.number(body, whole, rows)
    body.call_at(
        core, CORE, [weights, blocks, tile_bytes, x, x_stride, y, y_stride, count, low, high, adds, scale, bias]
    )


def _write_gated(
    module: ir.Module, features: frozenset[str], name: str, activation: Any, *, rounded: bool
) -> None:
    """Write ``y = act(core(x)) * core_2(x)`` of a piece's tiles, whose records go to out."""
    body, (whole, phase, piece) = function(module, name, PIECE, features)
    low, high = _tiles(body, phase, piece)
    for which in ("", "_2"):
        _write_call(body, whole, phase, low, high, which, of=which)
    write_gating(
        body, phase, low, high, (body.i64(0), PASS.number(body, whole, "rows")), activation, rounded=rounded
    )
    body.ret_void()


def write_gating(
    body: Body, phase: Any, low: Any, high: Any, rows: tuple[Any, Any], activation: Any, *, rounded: bool
) -> None:
    """Write ``y = act(y) * y_2`` of some tiles and rows, first and end, whose records go to out."""
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
    low, high = _tiles(body, phase, piece)
    scores, stride = PASS.place(body, whole, "scores"), PHASE.number(body, phase, "y_stride")
    rows = PASS.number(body, whole, "scored_rows")
    _write_call(body, whole, phase, low, high, y=scores, rows="scored_rows")
    first = body.mul(low, body.i64(TILE))
    end = body.least_of(body.mul(high, body.i64(TILE)), PHASE.number(body, phase, "width"))
    with body.loop(0, rows) as row:
        line = body.at(scores, body.mul(row, stride))
        record = body.at(
            PASS.place(body, whole, "best"),
            body.mul(body.add(body.mul(piece, rows), row), body.i64(BEST)),
        )
        _write_best(body, line, first, end, PHASE.real(body, phase, "soft_cap"), record)
    body.ret_void()


def _write_best(body: Body, line: Any, first: Any, end: Any, cap: Any, record: Any) -> None:
    kind, whole = vector(F32), vector(I32)
    best, at = body.variable(body.same(F32, _LOWEST)), body.variable(body.same(I32, -1))
    odd = body.variable(body.same(I32, 0))
    for place, value in ((best, body.same(F32, _LOWEST)), (at, body.same(I32, -1)), (odd, body.same(I32, 0))):
        body.store(value, place)
    with body.if_then(body.fcmp_ordered(">", cap, body.f32(0.0))), body.loop(first, end, LANES) as token:
        place, many = body.at(line, body.mul(token, body.i64(4))), body.splat(cap)
        capped = body.fmul(many, tanh(body, body.fdiv(body.get(place, kind, align=4), many)))
        body.put(capped, place, align=4)
    with body.loop(first, end, LANES) as token:
        score = body.get(line, kind, body.mul(token, body.i64(4)), align=4)
        tokens = body.add(body.splat(body.trunc(token, I32)), ir.Constant(whole, list(range(LANES))))
        is_token = body.icmp_signed("<", tokens, body.splat(body.trunc(end, I32)))
        score = body.select(is_token, score, body.same(F32, _LOWEST))
        odd_here = body.zext(body.fcmp_unordered("uno", score, score), whole)
        body.store(body.or_(body.read(odd, whole), odd_here), odd)
        better = body.fcmp_ordered(">", score, body.read(best, kind))
        body.store(body.select(better, tokens, body.read(at, whole)), at)
        body.store(body.select(better, score, body.read(best, kind)), best)
    scores, tokens = body.read(best, kind), body.read(at, whole)
    found, token = body.lane(scores, 0), body.lane(tokens, 0)
    for lane in range(1, LANES):
        found, token = better_of(body, found, token, body.lane(scores, lane), body.lane(tokens, lane))
    body.put(found, record, 0, align=4)
    body.put(token, record, 4, align=4)
    body.put(body.fold(body.read(odd, whole), body.or_), record, 8, align=4)


def better_of(body: Body, score: Any, token: Any, other: Any, other_token: Any) -> tuple[Any, Any]:
    """Return the better of two scores with its token, of equal ones the lower token."""
    equal = body.and_(
        body.fcmp_ordered("==", other, score), body.icmp_unsigned("<", other_token, token)
    )  # unsigned: -1, no token, is the largest
    wins = body.or_(body.fcmp_ordered(">", other, score), equal)
    return body.select(wins, other, score), body.select(wins, other_token, token)


def _write_choices(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``choices``: the best token of all pieces, by row; -1 where a score is NaN or none is finite."""
    body, (whole, phase, _) = function(module, "choices", PIECE, features)
    rows, best = PASS.number(body, whole, "scored_rows"), PASS.place(body, whole, "best")
    with body.loop(0, rows) as row:
        found, token = body.variable(body.f32(_LOWEST)), body.variable(ir.Constant(I32, -1))
        odd = body.variable(ir.Constant(I32, 0))
        for place, value in (
            (found, body.f32(_LOWEST)),
            (token, ir.Constant(I32, -1)),
            (odd, ir.Constant(I32, 0)),
        ):
            body.store(value, place)
        with body.loop(0, PHASE.number(body, phase, "pieces")) as piece:
            record = body.at(best, body.mul(body.add(body.mul(piece, rows), row), body.i64(BEST)))
            score, at = better_of(
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
