"""Where the keys and values of a token lie, and code that writes and moves them.

A cell holds the keys and values of one token, in float16. In a page, each layer has for each key head its keys as
[PAGE / 16, head size, 16 cells] and its values as [PAGE, head room], the head size rounded up to 16.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.emit import F32, I16, I64, LANES, POINTER, VOID, Body, function, vector

PAGE = 64
"""Cells of a page."""
_MOVE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64, I64, I64])
"""Page addresses, cells int64[moves, 2] (from, to), moves, key heads of all layers, head size, head room."""


def page_of(body: Body, pages: Any, cell: Any) -> Any:
    """Return the page in which a cell lies."""
    index = body.mul(body.sdiv(cell, body.i64(PAGE)), body.i64(8))
    return body.pointer(body.get(pages, I64, index, align=8))


def places_in_page(body: Body, cell: Any, size: Any, room: Any) -> tuple[Any, Any]:
    """Return where a cell's first key, and its first value, lie from a head's beginning on."""
    within = body.and_(cell, body.i64(PAGE - 1))
    tile, lane = body.sdiv(within, body.i64(LANES)), body.and_(within, body.i64(LANES - 1))
    key = body.add(body.mul(body.mul(tile, size), body.i64(LANES)), lane)
    value = body.add(body.mul(size, body.i64(PAGE)), body.mul(within, room))
    return body.mul(key, body.i64(2)), body.mul(value, body.i64(2))


def head_bytes(body: Body, size: Any, room: Any) -> Any:
    """Return the bytes of a head's keys and values in a page."""
    return body.mul(body.add(size, room), body.i64(2 * PAGE))


def write_cell(body: Body, start: Any, cell: Any, row: tuple[Any, Any], size: Any, room: Any) -> None:
    """Write a head's keys and values, float32[size] each, into a cell; the head begins at ``start``."""
    column, line = (body.at(start, offset) for offset in places_in_page(body, cell, size, room))
    for lanes, i in body.runs(size, (LANES, 1)):
        offset = body.mul(i, body.i64(4))
        keys, values = (body.to_half(body.get(place, vector(F32, lanes), offset, align=4)) for place in row)
        for lane in range(lanes):
            number = body.add(i, body.i64(lane))
            body.put(body.lane(keys, lane), column, body.mul(number, body.i64(2 * LANES)), align=2)
        body.put(values, line, body.mul(i, body.i64(2)), align=2)


def write_moving(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``move``, which copies keys and values from cell to cell, in order: see `_MOVE`."""
    body, (pages, cells, moves, heads, size, room) = function(module, "move", _MOVE, features)
    with body.loop(0, moves) as number:
        places = []
        for slot in range(2):
            cell = body.get(cells, I64, body.add(body.mul(number, body.i64(16)), body.i64(8 * slot)), align=8)
            page = page_of(body, pages, cell)
            places.append([body.at(page, offset) for offset in places_in_page(body, cell, size, room)])
        (key, value), (new_key, new_value) = places
        with body.loop(0, heads) as head:
            start = body.mul(head, head_bytes(body, size, room))
            with body.loop(0, size) as i:
                offset = body.add(start, body.mul(i, body.i64(2 * LANES)))
                body.put(body.get(key, I16, offset, align=2), new_key, offset, align=2)
                offset = body.add(start, body.mul(i, body.i64(2)))
                body.put(body.get(value, I16, offset, align=2), new_value, offset, align=2)
    body.ret_void()
