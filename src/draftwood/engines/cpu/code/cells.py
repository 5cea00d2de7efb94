"""Where the keys and values of a token lie, and code that writes and moves them.

A cell holds the keys and values of one token, in float16. In a page, each layer of attention has for each key head
its keys as [PAGE / 16, head size, 16 cells] and its values as [PAGE, head room]; head room is the head size
rounded up to 16.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.records import KernelModule
from draftwood.engines.cpu.code.values import I64, LANES, POINTER, VOID, Place, Value

PAGE = 64
"""Cells of a page."""
TOKENS = 2
"""Tokens before a row whose inputs a short convolution needs: it covers three."""
_MOVE = ir.FunctionType(VOID, [POINTER, POINTER, I64, POINTER, I64])
"""Page addresses, cells int64[moves, 2] (from, to), moves, runs int64[runs, 4], runs.

A run is what layers of one size have side by side: its place in a page, all key heads, head size, head room."""


@dataclass(frozen=True, slots=True)
class HeadCells:
    """The cells of one head in the code: the sizes of its keys and of its values in memory."""

    size: Value
    room: Value

    @property
    def bytes(self) -> Value:
        """Bytes of the head's keys and values in a page."""
        return (self.size + self.room) * (2 * PAGE)

    def places(self, head: Place, cell: Value) -> tuple[Place, Place]:
        """Return where a cell's first key, and its first value, lie; ``head`` is where the head begins."""
        within = cell & (PAGE - 1)
        key = within // LANES * self.size * LANES + (within & (LANES - 1))
        value = self.size * PAGE + within * self.room
        return head + key * 2, head + value * 2


def page_of(pages: Place, cell: Value) -> Place:
    """Return the page in which a cell lies."""
    return pages.i64[cell // PAGE].place()


def write_cell(code: Code, cells: HeadCells, head: Place, cell: Value, row: tuple[Place, Place]) -> None:
    """Write a head's keys and values, float32[size] each, into a cell; the head begins at ``head``."""
    column, line = cells.places(head, cell)
    for lanes, i in code.runs(cells.size, (LANES, 1)):
        keys, values = ((place + i * 4).array("f32", lanes)[0].to_half() for place in row)
        for lane in range(lanes):
            column.i16[(i + lane) * LANES] = keys.lane(lane)
        (line + i * 2).array("i16", lanes)[0] = values


def _write_moving(module: ir.Module, instructions: Instructions) -> None:
    """Write ``move``, which copies keys and values from cell to cell, in order: see `_MOVE`."""
    code, (pages, cells, moves, runs, count) = function(module, "move", _MOVE, instructions)
    with code.count(0, moves) as number, code.count(0, count) as run:
        first, heads, size, room = (runs.i64[run * 4 + i] for i in range(4))
        of_head = HeadCells(size, room)
        ends = []
        for slot in range(2):
            cell = cells.i64[number * 2 + slot]
            ends.append(of_head.places(page_of(pages, cell) + first, cell))
        (key, value), (new_key, new_value) = ends
        with code.count(0, heads) as head:
            start = head * of_head.bytes
            with code.count(0, size) as i:
                (new_key + start).i16[i * LANES] = (key + start).i16[i * LANES]
                (new_value + start).i16[i] = (value + start).i16[i]
    code.ret_void()


MOVING = KernelModule("cells")
MOVING.also(_write_moving)
