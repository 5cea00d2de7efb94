"""Where the keys and values of a token lie, and code that writes and moves them.

A cell holds the keys and values of one token, as whole numbers: of each group of 32 numbers of a head, keys within
8191 and values within 127, with a scale (`draftwood.engines.cpu.code.rounding.coded`). In a page, each layer of
attention has for each key head, whose numbers are padded with zeros to ``room``, a multiple of 32:

    keys             int16 [PAGE / 16, room / 2, 16 cells, 2]
    scales of keys   bfloat16 [PAGE / 16, room / 32, 16 cells]
    values           int8 [room / 32, PAGE / 2, 32, 2 cells]
    scales of values bfloat16 [room / 32, PAGE]

so that two neighbouring numbers of a query meet sixteen cells at once, and two neighbouring weights many values.
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.records import KernelModule
from draftwood.engines.cpu.code.rounding import write_coded
from draftwood.engines.cpu.code.values import I8, I16, I32, I64, LANES, POINTER, VOID, Place, Value
from draftwood.engines.files.formats import GROUP

PAGE = 64
"""Cells of a page."""
TOKENS = 2
"""Tokens before a row whose inputs a short convolution needs: it covers three."""
MOST_KEY, MOST_VALUE = 8191, 127
"""Largest whole numbers of keys and queries, and of values: 32 * 8191 * 8191 and 512 * 32767 * 127 (weights of 15
bits at the positions of a chunk) are both below 2 ** 31."""
_MOVE = ir.FunctionType(VOID, [POINTER, POINTER, I64, POINTER, I64])
"""Page addresses, cells int64[moves, 2] (from, to), moves, runs int64[runs, 3], runs.

A run is what layers of one size have side by side: its place in a page, how many key heads these layers have
together, the room of a head."""


@dataclass(frozen=True, slots=True)
class HeadCells:
    """The cells of one head in the code: where it begins in a page, and the numbers of a head in memory."""

    start: Place
    room: Value

    @staticmethod
    def bytes(room: Value) -> Value:
        """Bytes of a head in a page."""
        return (room * 3 + room // GROUP * 4) * PAGE

    def keys(self, cell: Value) -> Place:
        """Return where the first two keys of a cell lie; the next two are 64 bytes further."""
        within = cell & (PAGE - 1)
        return self.start + (within // LANES * (self.room // 2) * LANES + (within & (LANES - 1))) * 4

    def key_scales(self, cell: Value) -> Place:
        """Return where the scale of a cell's first keys lies; the next one is 32 bytes further."""
        within = cell & (PAGE - 1)
        first = within // LANES * (self.room // GROUP) * LANES + (within & (LANES - 1))
        return self.start + self.room * (2 * PAGE) + first * 2

    def values(self, cell: Value) -> Place:
        """Return where a cell's first value lies.

        The next one is 2 bytes further, and the next group ``GROUP * PAGE``.
        """
        within = cell & (PAGE - 1)
        first = within // 2 * (2 * GROUP) + (within & 1)
        return self.start + (self.room * 2 + self.room // GROUP * 2) * PAGE + first

    def value_scales(self, cell: Value) -> Place:
        """Return where the scale of a cell's first values lies; the next one is ``2 * PAGE`` bytes further."""
        first = (self.room * 3 + self.room // GROUP * 2) * PAGE
        return self.start + first + (cell & (PAGE - 1)) * 2


def page_of(pages: Place, cell: Value) -> Place:
    """Return the page in which a cell lies."""
    return pages.i64[cell // PAGE].place()


def write_cell(code: Code, cells: HeadCells, cell: Value, size: Value, row: tuple[Place, Place]) -> None:
    """Write a head's keys and values, float32[size] each, into a cell."""
    keys, values = row
    column, scales = cells.keys(cell), cells.key_scales(cell)
    with write_coded(code, keys, size, MOST_KEY) as (group, halves, scale):
        for half, whole in enumerate(halves):
            pairs = whole.narrow(I16).bits_as(I32, LANES // 2)
            place = column + (group * GROUP + half * LANES) * (2 * LANES)
            for pair in range(LANES // 2):
                place.i32[pair * LANES] = pairs.lane(pair)
        scales.i16[group * LANES] = scale
    first, scales = cells.values(cell), cells.value_scales(cell)
    with write_coded(code, values, size, MOST_VALUE) as (group, halves, scale):
        for half, whole in enumerate(halves):
            numbers = whole.narrow(I8)
            place = first + (group * (GROUP * PAGE) + half * (2 * LANES))
            for number in range(LANES):
                place.i8[number * 2] = numbers.lane(number)
        scales.i16[group * PAGE] = scale


def _write_moving(module: ir.Module, instructions: Instructions) -> None:
    """Write ``move``, which copies keys and values from cell to cell, in order: see `_MOVE`."""
    code, (pages, cells, moves, runs, count) = function(module, "move", _MOVE, instructions)
    with code.count(0, moves) as number, code.count(0, count) as run:
        first, heads, room = (runs.i64[run * 3 + i] for i in range(3))
        with code.count(0, heads) as head:
            here = first + head * HeadCells.bytes(room)
            old, new = (cells.i64[number * 2 + slot] for slot in range(2))
            of_old, of_new = (HeadCells(page_of(pages, cell) + here, room) for cell in (old, new))
            source, target = of_old.keys(old), of_new.keys(new)
            with code.count(0, room // 2) as i:
                target.i32[i * LANES] = source.i32[i * LANES]
            from_scales, to_scales = of_old.key_scales(old), of_new.key_scales(new)
            with code.count(0, room // GROUP) as group:
                to_scales.i16[group * LANES] = from_scales.i16[group * LANES]
            source, target = of_old.values(old), of_new.values(new)
            from_scales, to_scales = of_old.value_scales(old), of_new.value_scales(new)
            with code.count(0, room // GROUP) as group:
                to_scales.i16[group * PAGE] = from_scales.i16[group * PAGE]
                start = group * (GROUP * PAGE)
                with code.count(0, GROUP) as i:
                    (target + start).i8[i * 2] = (source + start).i8[i * 2]
    code.ret_void()


MOVING = KernelModule("cells")
MOVING.also(_write_moving)
