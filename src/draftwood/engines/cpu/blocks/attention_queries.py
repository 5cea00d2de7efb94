"""Some queries of attention that are computed together, in the code that is written for them."""

from __future__ import annotations

from typing import Any, NamedTuple

from draftwood.engines.cpu.code.cells import HeadCells, page_of
from draftwood.engines.cpu.code.emit import Code
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    CHUNK,
    NUMBER,
    PART_HEAD,
    PASS,
    REAL,
    ROWS,
    WIDEST,
    Layout,
    View,
)  # fmt: skip
from draftwood.engines.cpu.code.values import F32, I16, LANES, Place, Value
from draftwood.engines.files.formats import GROUP

FIELDS = {
    "heads": NUMBER, "kv_heads": NUMBER, "head_size": NUMBER, "head_room": NUMBER,
    "queries": ROWS,  # of each head, as `query_bytes` says
    "page_layer": NUMBER,  # bytes from a page's beginning to this layer's keys
    "window": NUMBER,  # positions that a row sees, itself included; 0: all
    "soft_cap": REAL,  # of scores; 0: none
    "parts": ADDRESS,  # float32[parts, heads, PART_HEAD + head_room]
}  # fmt: skip
_LAYOUT = Layout(2, **FIELDS)
UNSEEN = -0.0
"""The weight of a position that a query does not see; that of a seen one may be 0.0: the sign tells them apart."""


def query_bytes(room: Any) -> Any:
    """Return the bytes of a head's query: int16[room], then float32[room / 32] scales."""
    return room * 2 + room // GROUP * 4


class Span(NamedTuple):
    """Cells that queries see, in tiles of sixteen: the first, and the one after the last.

    ``weights`` and ``codes`` have a place per query: what it gives to each cell, from that of ``origin`` on, as
    float32 and as int16. A weight is `UNSEEN` where the query does not see the cell. ``scales`` are those of a
    group of values.
    """

    first: Value
    last: Value
    origin: Value
    weights: list[Place]
    codes: list[Place]
    scales: Place


class Queries:
    """Values in the code for a few queries of one unit and one key head."""

    def __init__(self, code: Code, arguments: list[Any], count: int) -> None:
        whole, phase, unit, head, first = arguments
        self.code, self.dots = code, code.instructions.dots
        self.whole, self.phase = View(code, whole, PASS), View(code, phase, _LAYOUT)
        phase, of_pass = self.phase, self.whole
        group = phase.heads // phase.kv_heads
        start, self.chunk, self.end = (unit.i64[slot] for slot in (0, 2, 3))
        self.low = self.chunk * CHUNK  # the chunk's first position
        self.high = self.low + CHUNK
        places = [first + i for i in range(count)]
        self.rows = [start + place // group for place in places]
        self.query_heads = [head * group + place % group for place in places]
        self.text = of_pass.texts.i64[start].place()
        self.base = of_pass.bases.i64[start]
        # The end of this chunk's positions that lie in the cells of their number.
        self.known = self.base.least(self.high)
        self.lengths = [of_pass.lengths.i64[row] for row in self.rows]
        self.tails = [of_pass.tails.i64[row].place() for row in self.rows]
        self.room = phase.head_room
        self.groups = self.room // GROUP
        self.queries = [
            phase.queries[row] + one * query_bytes(self.room)
            for row, one in zip(self.rows, self.query_heads, strict=True)
        ]
        # By position in the chunk; by cell, from the tile of the base on; whole numbers of both.
        self.scores = [code.room(F32, CHUNK + LANES) for _ in places]
        self.near = [code.room(F32, WIDEST + 2 * LANES) for _ in places]
        self.codes = [code.room(I16, CHUNK + WIDEST + 2 * LANES) for _ in places]
        self.scales = code.room(F32, CHUNK + WIDEST + 2 * LANES)
        bytes_ = HeadCells.bytes(self.room)
        self._head_at = phase.page_layer + head * bytes_
        # Where the next pieces' keys and values lie: of the next key head, or of the first one a chunk further.
        is_last = (head + 1).equals(phase.kv_heads)
        self._next_at = is_last.where(phase.page_layer, self._head_at + bytes_)
        self._next_step = is_last.where(CHUNK, code.whole(0))
        self.parts = [self._part(i) for i in range(count)]

    def _part(self, i: int) -> Place:
        """Return where one query's result for this chunk lies."""
        phase = self.phase
        number = self.whole.folds.i64[self.rows[i] * 2] + self.chunk
        return phase.parts + (number * phase.heads + self.query_heads[i]) * ((self.room + PART_HEAD) * 4)

    def cells(self, cell: Value) -> HeadCells:
        """Return the cells of the page in which this one lies."""
        return HeadCells(page_of(self.text, cell) + self._head_at, self.room)

    def next_cells(self, cell: Value) -> HeadCells:
        """Return the cells that the next pieces read when these read the page of this one, for prefetching."""
        return HeadCells(
            page_of(self.text, (cell + self._next_step).least(self.end - 1)) + self._next_at, self.room
        )

    def tail_cell(self, i: int, position: Value) -> Value:
        """Return the cell of a query's position from its base on."""
        return self.tails[i].i32[position - self.base].signed()

    def spans(self, least: Value) -> tuple[Span, Span]:
        """Return the cells of the chunk's positions from ``least`` on: tiles before the base's, and the rest."""
        origin, near = self.low // LANES, self.base // LANES
        end = (self.base < self.high).where((self.end + (LANES - 1)) // LANES, near)
        before = Span(origin + least // LANES, self.known // LANES, origin, self.scores, self.codes, self.scales)
        codes = [codes + 2 * CHUNK for codes in self.codes]
        return before, Span(near, end, near, self.near, codes, self.scales + 4 * CHUNK)
