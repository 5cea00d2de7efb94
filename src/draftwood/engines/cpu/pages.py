"""Keys and values of texts, in pages that texts with the same beginning share.

A cell holds the keys and values of one token, in float16. In a page, each layer has for each key head its keys as
[PAGE / 16, head size, 16 cells] and its values as [PAGE, head room], the head size rounded up to 16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from draftwood.engines.cpu.emit import F32, I16, I64, LANES, POINTER, VOID, Body, function, vector

Page = NDArray[np.int16]
PAGE = 64
"""Cells of a page."""
_MOVE = ir.FunctionType(VOID, [POINTER, POINTER, I64, I64, I64, I64])
"""Page addresses, cells int64[moves, 2] (from, to), moves, key heads of all layers, head size, head room."""


class Pages:
    """The pages of one text. ``addresses`` int64 holds where each page lies, for compiled code, at ``address``.

    Pages that came from another text, or that `share` gave to one, are copied before they are written to. A page
    takes memory only where it was written.
    """

    def __init__(self, page_bytes: int, pages: Sequence[Page] = ()) -> None:
        self._page_bytes = page_bytes
        self._pages = list(pages)
        self._shared = len(self._pages)
        self.addresses = np.zeros(max(16, len(self._pages)), dtype=np.int64)
        self._ready = 0  # cells before this one have a page
        self._note(0)

    def _note(self, first: int) -> None:
        count = len(self._pages)
        if count > len(self.addresses):
            self.addresses = np.concatenate((self.addresses, np.zeros(count, dtype=np.int64)))
        for i in range(first, count):
            self.addresses[i] = self._pages[i].ctypes.data
        self.address = int(self.addresses.ctypes.data)
        self._ready = count * PAGE

    def make_ready(self, first: int, end: int) -> None:
        """Make cells from ``first`` up to ``end`` this text's own, so that they may be written."""
        if end <= self._ready and first >= self._shared * PAGE:
            return
        page = first // PAGE
        for i in range(page, self._shared):
            self._pages[i] = self._pages[i].copy()
        while len(self._pages) * PAGE < end:
            self._pages.append(np.empty(self._page_bytes // 2, dtype=np.int16))
        self._note(page)
        self._shared = min(self._shared, page)  # last: after an interrupt the pages still count as shared

    def clear(self) -> None:
        """Write zeros to all cells, for passes whose results are not read."""
        for page in self._pages:
            page[:] = 0

    def share(self, length: int) -> list[Page]:
        """Return the pages of the first ``length`` cells for another text; from now on both may only read them."""
        count = -(-length // PAGE)
        self._shared = max(self._shared, count)
        return self._pages[:count]

    def cut(self, length: int) -> None:
        """Give back pages after the first ``length`` cells, but for one that the next tokens will need."""
        count = -(-length // PAGE) + 1
        if count < len(self._pages):
            self._ready = min(self._ready, count * PAGE)  # first: no interrupt may leave such cells ready
            self._shared = min(self._shared, count)
            del self._pages[count:]


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
