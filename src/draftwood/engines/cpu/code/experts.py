"""Mixtures of experts: each row chooses some, and those rows that share one read its weights together.

A row's scores of the experts are a product like any other. Its best ones, of equal ones the lower, are weighted
by the softmax over the chosen. Slots (a row and one of its experts) are ordered by expert, the inputs are copied
into that order, and a product takes the slots of an expert as its rows. What comes out is added up per row, the
best expert first: so a row's result depends on no other row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.emit import F32, I32, I64, LANES, PIECE, Body, function, vector
from draftwood.engines.cpu.code.pieces import best_of, tiles_of, write_call, write_gating
from draftwood.engines.cpu.code.records import PASS, PHASE
from draftwood.engines.cpu.code.rounding import gelu, silu
from draftwood.engines.cpu.code.rows import one_exponential, row_of, rows_of_piece

GROUP_BYTES = 24
_LINE = 64
_LOWEST = float("-inf")


def write_choosing(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``experts_chosen`` (of scores x), ``experts_grouped``, ``experts_gathered`` (rows of x to out)."""
    body, (whole, phase, piece) = function(module, "experts_chosen", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        _write_chosen(body, phase, row)
    body.ret_void()
    _write_grouped(module, features)
    body, (whole, phase, piece) = function(module, "experts_gathered", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        source = row_of(body, phase, "x", row)
        with body.loop(0, PHASE.number(body, phase, "used")) as rank:
            target = row_of(body, phase, "out", _slot(body, phase, "places", row, rank))
            with body.loop(0, PHASE.number(body, phase, "out_stride"), _LINE) as at:
                body.put(body.get(source, vector(I32), at, align=4), target, at, align=4)
    body.ret_void()


def _slot(body: Body, phase: Any, name: str, row: Any, rank: Any) -> Any:
    slot = body.add(body.mul(row, PHASE.number(body, phase, "used")), rank)
    return body.get(PHASE.place(body, phase, name), I64, body.mul(slot, body.i64(8)), align=8)


def _write_chosen(body: Body, phase: Any, row: Any) -> None:
    """Write a row's experts and their shares: exp(score - best score), divided by the sum of these."""
    used, experts = PHASE.number(body, phase, "used"), PHASE.number(body, phase, "experts")
    scores, first = row_of(body, phase, "x", row), body.mul(row, used)
    chosen = body.at(PHASE.place(body, phase, "chosen"), body.mul(first, body.i64(8)))
    shares = body.at(PHASE.place(body, phase, "shares"), body.mul(first, body.i64(4)))
    total = body.variable(body.f32(0.0))
    with body.loop(0, used) as rank:
        _, best, _ = best_of(body, scores, body.i64(0), experts)
        expert = body.most_of(body.sext(best, I64), body.i64(0))  # the first where all are NaN
        place = body.at(scores, body.mul(expert, body.i64(4)))
        here = body.mul(rank, body.i64(4))
        body.put(body.get(place, F32, align=4), shares, here, align=4)
        body.put(body.f32(_LOWEST), place, align=4)
        body.put(expert, chosen, body.mul(rank, body.i64(8)), align=8)
    highest = body.get(shares, F32, align=4)
    with body.loop(0, used) as rank:
        here = body.mul(rank, body.i64(4))
        weight = one_exponential(body, body.fsub(body.get(shares, F32, here, align=4), highest))
        body.put(weight, shares, here, align=4)
        body.store(body.fadd(body.read(total, F32), weight), total)
    with body.loop(0, used) as rank:
        here = body.mul(rank, body.i64(4))
        body.put(body.fdiv(body.get(shares, F32, here, align=4), body.read(total, F32)), shares, here, align=4)


def _write_grouped(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``experts_grouped``: the slots ordered by expert, those of one expert by row."""
    body, (whole, phase, _) = function(module, "experts_grouped", PIECE, features)
    slots = body.mul(PASS.number(body, whole, "rows"), PHASE.number(body, phase, "used"))
    experts, groups = PHASE.number(body, phase, "experts"), PHASE.place(body, phase, "groups")
    chosen, places = PHASE.place(body, phase, "chosen"), PHASE.place(body, phase, "places")
    counts = PHASE.place(body, phase, "counts")
    with body.loop(0, slots) as slot:
        count = _counter(body, counts, chosen, slot)
        body.put(body.add(body.get(count, I64, align=8), body.i64(1)), count, align=8)
    number, first = body.variable(body.i64(0)), body.variable(body.i64(0))
    with body.loop(0, experts) as expert:
        place = body.at(counts, body.mul(expert, body.i64(8)))
        count, start = body.get(place, I64, align=8), body.read(first, I64)
        with body.if_then(body.icmp_signed(">", count, body.i64(0))):
            index = body.add(body.read(number, I64), body.i64(1))
            group = body.at(groups, body.mul(index, body.i64(GROUP_BYTES)))
            for at, value in enumerate((expert, start, count)):
                body.put(value, group, 8 * at, align=8)
            body.put(start, place, align=8)
            body.store(index, number)
            body.store(body.add(start, count), first)
    body.put(body.read(number, I64), groups, align=8)
    with body.loop(0, slots) as slot:
        count = _counter(body, counts, chosen, slot)
        place = body.get(count, I64, align=8)
        body.put(place, places, body.mul(slot, body.i64(8)), align=8)
        body.put(body.add(place, body.i64(1)), count, align=8)
    with body.loop(0, slots) as slot:
        body.put(body.i64(0), _counter(body, counts, chosen, slot), align=8)
    body.ret_void()


def _counter(body: Body, counts: Any, chosen: Any, slot: Any) -> Any:
    expert = body.get(chosen, I64, body.mul(slot, body.i64(8)), align=8)
    return body.at(counts, body.mul(expert, body.i64(8)))


class _Group:
    """A piece of one expert's product, as code is written for it: some tiles, and the expert's slots as rows."""

    def __init__(self, body: Body, phase: Any, piece: Any) -> None:
        self.body, self.phase = body, phase
        parts, groups = PHASE.number(body, phase, "parts_of"), PHASE.place(body, phase, "groups")
        number = body.sdiv(piece, parts)
        nothing = body.append_basic_block("nothing")
        body.go_on(body.icmp_signed("<", number, body.get(groups, I64, align=8)), nothing)
        with body.goto_block(nothing):
            body.ret_void()
        group = body.at(groups, body.mul(body.add(number, body.i64(1)), body.i64(GROUP_BYTES)))
        self.expert, self.first, self.count = (body.get(group, I64, 8 * at, align=8) for at in range(3))
        self.low, self.high = tiles_of(body, phase, body.srem(piece, parts))

    def write_call(self, which: str = "") -> None:
        """Write the call of the expert's product."""
        call = self.body, self.phase, self.low, self.high, self.count, which
        write_call(*call, expert=self.expert, first=self.first)


def write_experts(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``silu_experts``, ``gelu_experts``, both with ``_rounded``, ``experts_product``, ``experts_added``."""
    for act, activation in (("silu", silu), ("gelu", gelu)):
        for ending in ("", "_rounded"):
            body, (_, phase, piece) = function(module, f"{act}_experts{ending}", PIECE, features)
            group = _Group(body, phase, piece)
            for which in ("", "_2"):
                group.write_call(which)
            rows = group.first, body.add(group.first, group.count)
            write_gating(body, phase, group.low, group.high, rows, activation, rounded=bool(ending))
            body.ret_void()
    body, (_, phase, piece) = function(module, "experts_product", PIECE, features)
    _Group(body, phase, piece).write_call()
    body.ret_void()
    body, (whole, phase, piece) = function(module, "experts_added", PIECE, features)
    with rows_of_piece(body, whole, phase, piece) as row:
        _write_added(body, phase, row)
    body.ret_void()


def _write_added(body: Body, phase: Any, row: Any) -> None:
    """Write ``out = sum of share * x``, or where it ``adds``, ``out += scale * sum of share * x``."""
    kind, used = vector(F32), PHASE.number(body, phase, "used")
    out, scale = row_of(body, phase, "out", row), body.splat(PHASE.real(body, phase, "scale"))
    adds = body.icmp_signed("!=", PHASE.number(body, phase, "adds"), body.i64(0))
    with body.loop(0, body.padded(PHASE.number(body, phase, "width")), LANES) as i:
        offset, total = body.mul(i, body.i64(4)), body.variable(body.same(F32, 0.0))
        with body.loop(0, used) as rank:
            values = row_of(body, phase, "x", _slot(body, phase, "places", row, rank))
            slot = body.add(body.mul(row, used), rank)
            share = body.get(PHASE.place(body, phase, "shares"), F32, body.mul(slot, body.i64(4)), align=4)
            value = body.get(values, kind, offset, align=4)
            body.store(body.mul_add(value, body.splat(share), body.read(total, kind)), total)
        found = body.read(total, kind)
        more = body.mul_add(found, scale, body.get(out, kind, offset, align=4))
        body.put(body.select(adds, more, found), out, offset, align=4)
