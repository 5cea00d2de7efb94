"""The kernel of attention: of each row, over its path of committed tokens, its ancestors in the tree, and itself.

Attention with grouped queries: Ainslie et al., 2023 (arXiv 2305.13245); windows and joining of chunks as in
FlashAttention: Dao et al., 2022 (arXiv 2205.14135).

                chunk 0 (512 positions)       chunk 1                      a row's path, by position
    unit 0      rows 0-15: part, part, ...    rows 0-15: part, part, ...   one part per row, head and chunk
    unit 1      rows 16-31 ...

A piece is a share of the queries (row, query head) of one unit, one chunk and one key head. It takes up to six
queries together, so that keys and values are read once for all. Within a chunk a score is the sum of q[i] * k[i]
in order, the largest score is subtracted, weights are added in 16 lanes, and weighted values are added position by
position. `joined` adds up a row's parts in order. None of this depends on the cell in which a position lies, nor
on other rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.cells import PAGE, HeadCells, page_of
from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.records import (
    ADDRESS,
    CHUNK,
    NUMBER,
    PART_HEAD,
    PASS,
    REAL,
    WIDEST,
    KernelModule,
    Layout,
    Per,
    PieceCode,
    View,
)  # fmt: skip
from draftwood.engines.cpu.code.rounding import capped, exponential
from draftwood.engines.cpu.code.values import F32, I32, I64, LANES, LOWEST, POINTER, VOID, Place, Value, Variable
from draftwood.engines.files.formats import GROUP

SHARES = 4
"""Pieces of work that the queries of one unit and one key head are divided into."""

_QUERIES = (6, 4, 3, 2, 1)
"""Numbers of queries that are computed together."""
_TOGETHER = (2, 1)
"""Vectors of keys (or values) that are computed at once, so that each query (or weight) is read once for all."""
_FUNCTION = ir.FunctionType(VOID, [POINTER, POINTER, POINTER, I64, I64])
"""Takes pass, phase, unit, key head, first query."""

MODULE = KernelModule("attention")
_FIELDS = {
    "heads": NUMBER, "kv_heads": NUMBER, "head_size": NUMBER, "head_room": NUMBER,
    "q": ADDRESS,  # float32[rows, heads * head_size, padded to 32]
    "page_layer": NUMBER,  # bytes from a page's beginning to this layer's keys
    "window": NUMBER,  # positions that a row sees, itself included; 0: all
    "soft_cap": REAL,  # of scores; 0: none
    "parts": ADDRESS,  # float32[parts, heads, PART_HEAD + head_room]
}  # fmt: skip
_LAYOUT = Layout(2, **_FIELDS)


class _Queries:
    """Values in the code for a few queries of one unit and one key head."""

    def __init__(self, code: Code, arguments: list[Any], count: int) -> None:
        whole, phase, unit, head, first = arguments
        self.code, self.count = code, count
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
        self.known = self.base.least(
            self.high
        )  # end of this chunk's positions that lie in the cells of their number
        self.lengths = [of_pass.lengths.i64[row] for row in self.rows]
        self.tails = [of_pass.tails.i64[row].place() for row in self.rows]
        width = (phase.heads * phase.head_size).padded(GROUP)
        self.queries = [
            phase.q + (row * width + one * phase.head_size) * 4
            for row, one in zip(self.rows, self.query_heads, strict=True)
        ]
        self.scores = [code.room(F32, CHUNK + LANES) for _ in range(count)]  # by position in the chunk
        self.near = [
            code.room(F32, WIDEST + 2 * LANES) for _ in range(count)
        ]  # by cell, from the base rounded down to 16
        self.cells = HeadCells(phase.head_size, phase.head_room)
        self._head_at = phase.page_layer + head * self.cells.bytes
        self.parts = [self._part(i) for i in range(count)]

    def _part(self, i: int) -> Place:
        """Return where one query's result for this chunk lies."""
        phase = self.phase
        number = self.whole.folds.i64[self.rows[i] * 2] + self.chunk
        size = (phase.head_room + PART_HEAD) * 4
        return phase.parts + (number * phase.heads + self.query_heads[i]) * size

    def cell(self, cell: Value) -> tuple[Place, Place]:
        """Return where a cell's keys and values lie."""
        return self.cells.places(page_of(self.text, cell) + self._head_at, cell)

    def tail_cell(self, i: int, position: Value) -> Value:
        """Return the cell of a query's position from its base on."""
        return self.tails[i].i32[position - self.base].signed()


def _write_queries(count: int) -> None:
    """Write ``queries_COUNT``, which computes so many queries of a piece."""

    def write(module: ir.Module, instructions: Instructions) -> None:
        code, arguments = function(module, f"queries_{count}", _FUNCTION, instructions)
        block = _Queries(code, arguments, count)
        lows, ends = _bounds(block)
        low = lows[0]
        for other in lows[1:]:
            low = low.least(other)
        origin = block.low // LANES
        _write_scores(block, origin + low // LANES, (block.known + (LANES - 1)) // LANES, origin, block.scores)
        with code.when(block.base < block.high):
            near = block.base // LANES
            _write_scores(block, near, (block.end + (LANES - 1)) // LANES, near, block.near)
            for i in range(count):
                _write_near(block, i, near * LANES)
        _write_weights(block, low, lows, ends)
        _write_sums(block, low, lows, ends)
        code.ret_void()

    MODULE.also(write)


def _bounds(block: _Queries) -> tuple[list[Value], list[Value]]:
    """Return first and end position in this chunk of each query; the end may lie before the first."""
    window = block.phase.window
    lows, ends = [], []
    for length in block.lengths:
        first = (length - window - block.low).most(0)
        lows.append((window > 0).where(first, 0))
        ends.append(length.least(block.high) - block.low)
    return lows, ends


def _write_scores(block: _Queries, first: Value, last: Value, origin: Value, into: list[Place]) -> None:
    """Write scores of sixteen cells at once: q[0] * k[0], then + q[1] * k[1] and so on, by fma.

    ``first``, ``last``, ``origin`` count groups of 16 cells; ``into`` begins with group ``origin``. Keys of the
    next cells and values of these are prefetched, since processors prefetch by themselves only what follows in
    memory, and the next page of the cache may lie anywhere.
    """
    code = block.code
    for count, done in code.runs(last - first, _TOGETHER):
        tiles = [first + done + i for i in range(count)]
        cells = [block.cell(tile * LANES) for tile in tiles]
        following = [block.cell((tile + count).least(last - 1) * LANES)[0] for tile in tiles]
        sums = [[code.variable(code.real(0.0, LANES)) for _ in into] for _ in tiles]
        with code.count(0, block.phase.head_size) as d:
            offset = d * (2 * LANES)
            keys = []
            for (own, values), later in zip(cells, following, strict=True):
                (later + offset).prefetch()
                (values + offset).prefetch()
                keys.append((own + offset).i16x16[0].from_half())
            for i, query in enumerate(block.queries):
                value = query.f32[d].splat()
                for key, totals in zip(keys, sums, strict=True):
                    totals[i].now = totals[i].now.plus_product(key, value)
        for tile, totals in zip(tiles, sums, strict=True):
            for total, scores in zip(totals, into, strict=True):
                scores.f32x16[(tile - origin) * LANES] = total.now


def _write_near(block: _Queries, i: int, start: Value) -> None:
    """Copy scores of cells from the base on out of ``near``, whose first cell is ``start``, to their positions."""
    low = block.base.most(block.low)
    with block.code.count(low, block.high.least(block.lengths[i])) as position:
        cell = block.tail_cell(i, position)
        block.scores[i].f32[position - block.low] = block.near[i].f32[cell - start]


def _write_weights(block: _Queries, least: Value, lows: list[Value], ends: list[Value]) -> None:
    """Turn scores into weights, from position ``least`` in the chunk on; write the queries' maxima and sums."""
    code, cap = block.code, block.phase.soft_cap
    first = least // LANES
    for scores, part, low, end in zip(block.scores, block.parts, lows, ends, strict=True):
        last = (end + (LANES - 1)) // LANES
        most, total = code.variable(code.real(LOWEST, LANES)), code.variable(code.real(0.0, LANES))
        with code.count(first, last) as tile:
            score = code.variable(scores.f32x16[tile * LANES])
            with code.when(cap > 0.0):
                score.now = capped(score.now, cap)
            seen = _between(code, tile, low, end).where(score.now, LOWEST)
            scores.f32x16[tile * LANES] = seen
            most.now = seen.most(most.now)
        highest = most.now.fold(Value.most)
        with code.count(first, last) as tile:
            weight = exponential(scores.f32x16[tile * LANES] - highest)
            weight = _between(code, tile, low, end).where(weight, 0.0)
            scores.f32x16[tile * LANES] = weight
            total.now = total.now + weight
        part.f32[0] = highest
        part.f32[1] = total.now.sum()


def _between(code: Code, tile: Value, low: Value, end: Value) -> Value:
    """Return which positions of a tile lie from ``low`` up to ``end``."""
    lanes = code.listed(I32, range(LANES)) + (tile * LANES).narrow(I32)
    return (lanes >= low.narrow(I32)) & (lanes < end.narrow(I32))


def _sums(block: _Queries, sizes: Sequence[int] = (1,)) -> Iterator[tuple[list[Value], list[list[Variable]]]]:
    """Go through a head's values in vectors of sixteen numbers; ``sizes`` says how many vectors at once.

    Yields the first number of each vector, and for each vector the sums of all queries, which are read from their
    parts and written back.
    """
    code = block.code
    for count, first in code.runs(block.phase.head_room // LANES, sizes):
        numbers = [(first + i) * LANES for i in range(count)]
        sums = [[code.variable(part.f32x16[d + PART_HEAD]) for part in block.parts] for d in numbers]
        yield numbers, sums
        for totals, d in zip(sums, numbers, strict=True):
            for total, part in zip(totals, block.parts, strict=True):
                part.f32x16[d + PART_HEAD] = total.now


def _write_sums(block: _Queries, low: Value, lows: list[Value], ends: list[Value]) -> None:
    """Write the sums of weight times value, position by position.

    Positions that lie before some windows; then those before the base that all see; then the tails' cells.
    """
    code = block.code
    all_see = low
    for other in lows:
        all_see = all_see.most(other)
    first = (block.low + all_see).least(block.known)
    for (d,), (sums,) in _sums(block):
        for total in sums:
            total.now = code.real(0.0, LANES)
        with code.count(block.low + low, first) as position:
            _add_seen(block, d, position, sums, lows)
    _add_known(block, first.most(block.low + low))
    for (d,), (sums,) in _sums(block):
        for i, total in enumerate(sums):
            first = block.base.most(block.low).most(block.low + lows[i])
            with code.count(first, block.low + ends[i]) as position:
                value = _value(block, block.tail_cell(i, position), d)
                weight = block.scores[i].f32[position - block.low]
                total.now = total.now.plus_product(value, weight.splat())


def _value(block: _Queries, cell: Value, first: Value) -> Value:
    """Return sixteen values of a cell from number ``first`` on."""
    _, values = block.cell(cell)
    return values.i16x16[first].from_half()


def _add_seen(block: _Queries, d: Value, position: Value, sums: list[Variable], lows: list[Value]) -> None:
    """Write the addition of the values of a position that lies before the windows of some queries.

    For these it is left out, not added with a weight of 0: a value may be NaN.
    """
    value, within = _value(block, position, d), position - block.low
    for total, weights, low in zip(sums, block.scores, lows, strict=True):
        with block.code.when(within >= low):
            total.now = total.now.plus_product(value, weights.f32[within].splat())


def _add_known(block: _Queries, first: Value) -> None:
    """Write the addition of the values of the positions before the base that all queries see: for the whole head
    those of a page, then those of the next one, so that a page's values stay in the nearest cache.
    """
    code = block.code
    page = code.variable(first)
    with code.repeat() as (_, after):
        start = page.now
        code.go_on(start < block.known, after)
        end = ((start & -PAGE) + PAGE).least(block.known)
        _, values = block.cell(start)
        for numbers, sums in _sums(block, _TOGETHER):
            rows = [values + d * 2 for d in numbers]
            with code.count(start, end) as position:
                offset = (position - start) * block.phase.head_room
                some = [row.i16x16[offset].from_half() for row in rows]
                for i, weights in enumerate(block.scores):
                    weight = weights.f32[position - block.low].splat()
                    for value, totals in zip(some, sums, strict=True):
                        totals[i].now = totals[i].now.plus_product(value, weight)
        page.now = end


for _count in _QUERIES:
    _write_queries(_count)


def _attention(piece: PieceCode) -> None:
    """Piece ``(unit * kv_heads + head) * SHARES + share`` computes a share of a unit's and head's queries."""
    code, phase = piece.code, piece.phase
    group = phase.heads // phase.kv_heads
    of_head, share = piece.number // SHARES, piece.number % SHARES
    unit = piece.whole.units + of_head // phase.kv_heads * 32
    queries = unit.i64[1] * group
    most = _QUERIES[0]
    blocks = (queries + (most - 1)) // most
    start, end = (blocks * (share + i) // SHARES * most for i in range(2))
    for count, first in code.runs(end.least(queries) - start, _QUERIES):
        code.call_here(
            f"queries_{count}", piece.whole.record, phase.record, unit, of_head % phase.kv_heads, start + first
        )


ATTENTION = MODULE.kernel("attention", Per.UNITS, _attention, **_FIELDS)
"""Parts of attention, from the queries q and the cells of a layer."""
