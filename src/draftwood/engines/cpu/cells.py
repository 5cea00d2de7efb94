"""Copies keys and values from cell to cell, where a branch that was kept did not lie behind the text."""

from __future__ import annotations

from llvmlite import ir

from draftwood.engines.cpu.attention import PAGE
from draftwood.engines.cpu.emit import I16, I64, LANES, POINTER, VOID, function

MOVE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64, I64, I64])
"""pages of the text, cells int64[moves, 2] (from, to), moves, heads of all layers, head size, head room."""


def write_moving(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``move``, a function of type `MOVE`: moves are made in order."""
    body, (pages, cells, moves, heads, size, room) = function(module, "move", MOVE, features)
    head_bytes = body.mul(body.add(size, room), body.i64(2 * PAGE))
    with body.loop(0, moves) as number:
        places = []
        for slot in range(2):
            cell = body.get(cells, I64, body.add(body.mul(number, body.i64(16)), body.i64(8 * slot)), align=8)
            index = body.mul(body.sdiv(cell, body.i64(PAGE)), body.i64(8))
            within = body.and_(cell, body.i64(PAGE - 1))
            tile, lane = body.sdiv(within, body.i64(LANES)), body.and_(within, body.i64(LANES - 1))
            page = body.pointer(body.get(pages, I64, index, align=8))
            key = body.at(
                page, body.mul(body.add(body.mul(body.mul(tile, size), body.i64(LANES)), lane), body.i64(2))
            )
            value = body.at(
                page, body.mul(body.add(body.mul(size, body.i64(PAGE)), body.mul(within, room)), body.i64(2))
            )
            places.append((key, value))
        (key, value), (new_key, new_value) = places
        with body.loop(0, heads) as head:
            start = body.mul(head, head_bytes)
            with body.loop(0, size) as i:
                offset = body.add(start, body.mul(i, body.i64(2 * LANES)))
                body.put(body.get(key, I16, offset, align=2), new_key, offset, align=2)
                offset = body.add(start, body.mul(i, body.i64(2)))
                body.put(body.get(value, I16, offset, align=2), new_value, offset, align=2)
    body.ret_void()
