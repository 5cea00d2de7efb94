"""Attention of each row over its path: committed tokens, its ancestors in the tree, itself.

A path is cut into chunks of `CHUNK` positions, which are computed apart and joined in order (`write_joined`).
Within a chunk a score is the sum of q[i] * k[i] in order, the largest score is subtracted, weights are added in 16
lanes, and weighted values are added position by position. None of this depends on the cell in which a position
lies, nor on other rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.cells import PAGE, head_bytes, page_of, places_in_page
from draftwood.engines.cpu.code.emit import (
    F32,
    I1,
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
from draftwood.engines.cpu.code.records import PASS, PHASE
from draftwood.engines.cpu.code.rounding import capped, exponential
from draftwood.engines.files.formats import GROUP

CHUNK = 512
"""Positions whose softmax is computed together; a longer path is joined from several chunks."""
SHARES = 4
"""Pieces of work that the queries of one unit and one key head are divided into."""
UNIT_ROWS, WIDEST = 16, 256
"""Most rows of a unit of attention, and of a pass."""
PART_HEAD = 16
"""Float32 numbers before a part's sum of values: largest score, sum of weights, 14 unused."""

_LOWEST = float("-inf")
_BLOCK = ir.FunctionType(VOID, [POINTER, POINTER, POINTER, I64, I64])
_QUERIES = (6, 4, 3, 2, 1)
_TOGETHER = (2, 1)
"""Vectors of keys (or values) that are computed at once, so that each query (or weight) is read once for all."""


def write_attention(module: ir.Module, features: frozenset[str]) -> None:
    """Write ``attention``, which computes a share of the queries of one unit and one key head.

    It is piece ``(unit * kv_heads + head) * SHARES + share``: some blocks, each of which reads keys once.
    """
    for count in _QUERIES:
        _write_block(module, features, count)
    body, (whole, phase, piece) = function(module, "attention", PIECE, features)
    kv_heads = PHASE.number(body, phase, "kv_heads")
    group = body.sdiv(PHASE.number(body, phase, "heads"), kv_heads)
    of_head, share = body.sdiv(piece, body.i64(SHARES)), body.srem(piece, body.i64(SHARES))
    number, head = body.sdiv(of_head, kv_heads), body.srem(of_head, kv_heads)
    unit = body.at(PASS.place(body, whole, "units"), body.mul(number, body.i64(32)))
    queries = body.mul(body.get(unit, I64, 8, align=8), group)
    most = body.i64(_QUERIES[0])
    blocks = body.sdiv(body.add(queries, body.i64(_QUERIES[0] - 1)), most)
    start, end = (
        body.mul(body.sdiv(body.mul(blocks, body.add(share, body.i64(i))), body.i64(SHARES)), most)
        for i in range(2)
    )
    for count, first in body.runs(body.sub(body.least_of(end, queries), start), _QUERIES):
        body.call(module.globals[f"queries_{count}"], [whole, phase, unit, head, body.add(start, first)])
    body.ret_void()


class _Block:
    """Values in the code for a few queries of one unit and one key head."""

    def __init__(self, body: Body, arguments: Any, count: int) -> None:
        self.body, self.count = body, count
        self.whole, self.phase, self.unit, self.head, self.first = arguments
        phase = self.phase
        self.size = PHASE.number(body, phase, "head_size")
        self.room = PHASE.number(body, phase, "head_room")
        self.heads = PHASE.number(body, phase, "heads")
        group = body.sdiv(self.heads, PHASE.number(body, phase, "kv_heads"))
        start, self.chunk, self.end = (body.get(self.unit, I64, 8 * slot, align=8) for slot in (0, 2, 3))
        self.low = body.mul(self.chunk, body.i64(CHUNK))
        self.high = body.add(self.low, body.i64(CHUNK))
        places = [body.add(self.first, body.i64(i)) for i in range(count)]
        self.in_unit = [body.sdiv(place, group) for place in places]
        self.query_heads = [body.add(body.mul(self.head, group), body.srem(place, group)) for place in places]
        self.rows = [body.add(start, place) for place in self.in_unit]
        self.text = body.pointer(self._of_row("texts", start))
        self.base = self._of_row("bases", start)
        self.known = body.least_of(self.base, self.high)  # end of the committed positions of this chunk
        self.lengths = [self._of_row("lengths", row) for row in self.rows]
        self.tails = [body.pointer(self._of_row("tails", row)) for row in self.rows]
        q, width = PHASE.place(body, phase, "q"), body.padded(body.mul(self.heads, self.size), GROUP)
        numbers = [
            body.add(body.mul(row, width), body.mul(head, self.size))
            for row, head in zip(self.rows, self.query_heads, strict=True)
        ]
        self.queries = [body.at(q, body.mul(number, body.i64(4))) for number in numbers]
        self.scores = [body.room(F32, CHUNK + LANES) for _ in range(count)]
        self.near = [body.room(F32, WIDEST + 2 * LANES) for _ in range(count)]
        before = body.mul(self.head, head_bytes(body, self.size, self.room))
        self.head_at = body.add(PHASE.number(body, phase, "page_layer"), before)

    def _of_row(self, name: str, row: Any) -> Any:
        place = PASS.place(self.body, self.whole, name)
        return self.body.get(place, I64, self.body.mul(row, self.body.i64(8)), align=8)

    def cell(self, cell: Any) -> list[Any]:
        """Return where a cell's keys and values lie."""
        body = self.body
        start = body.at(page_of(body, self.text, cell), self.head_at)
        return [body.at(start, offset) for offset in places_in_page(body, cell, self.size, self.room)]

    def value(self, cell: Any, first: Any) -> Any:
        """Return sixteen values of a cell from number ``first`` on."""
        body = self.body
        place = body.at(self.cell(cell)[1], body.mul(first, body.i64(2)))
        return body.from_half(body.get(place, vector(I16), align=2))


def _write_block(module: ir.Module, features: frozenset[str], count: int) -> None:
    body, arguments = function(module, f"queries_{count}", _BLOCK, features)
    block = _Block(body, arguments, count)
    lows, ends = _write_bounds(block)
    low = lows[0]
    for other in lows[1:]:
        low = body.least_of(low, other)
    origin = body.sdiv(block.low, body.i64(LANES))
    first = body.add(origin, body.sdiv(low, body.i64(LANES)))
    last = body.sdiv(body.add(block.known, body.i64(LANES - 1)), body.i64(LANES))
    _write_scores(block, first, last, origin, block.scores)
    with body.if_then(body.icmp_signed("<", block.base, block.high)):
        near = body.sdiv(block.base, body.i64(LANES))
        last = body.sdiv(body.add(block.end, body.i64(LANES - 1)), body.i64(LANES))
        _write_scores(block, near, last, near, block.near)
        for i in range(count):
            _write_near(block, i, body.mul(near, body.i64(LANES)))
    _write_weights(block, low, lows, ends)
    _write_sums(block, low, lows, ends)
    body.ret_void()


def _write_bounds(block: _Block) -> tuple[list[Any], list[Any]]:
    """Return first and end position in this chunk of each query; the end may lie before the first."""
    body = block.body
    window = PHASE.number(body, block.phase, "window")
    has_window = body.icmp_signed(">", window, body.i64(0))
    lows, ends = [], []
    for length in block.lengths:
        first = body.most_of(body.sub(body.sub(length, window), block.low), body.i64(0))
        lows.append(body.select(has_window, first, body.i64(0)))
        ends.append(body.sub(body.least_of(length, block.high), block.low))
    return lows, ends


def _write_scores(block: _Block, first: Any, last: Any, origin: Any, into: list[Any]) -> None:
    """Write scores of sixteen cells at once: q[0] * k[0], then + q[1] * k[1] and so on, by fma.

    Meanwhile the next cells' keys and these cells' values are prefetched, since processors prefetch by themselves
    only what follows in memory, and the next page of the cache may lie anywhere.
    """
    body, kind = block.body, vector(F32)
    final = body.sub(last, body.i64(1))
    for count, done in body.runs(body.sub(last, first), _TOGETHER):
        tiles = [body.add(body.add(first, done), body.i64(i)) for i in range(count)]
        cells = [block.cell(body.mul(tile, body.i64(LANES))) for tile in tiles]
        ahead = [body.least_of(body.add(tile, body.i64(count)), final) for tile in tiles]
        following = [block.cell(body.mul(tile, body.i64(LANES)))[0] for tile in ahead]
        sums = [[body.variable(body.same(F32, 0.0)) for _ in into] for _ in tiles]
        with body.loop(0, block.size) as d:
            offset = body.mul(d, body.i64(2 * LANES))
            keys = []
            for (own, values), later in zip(cells, following, strict=True):
                body.prefetch(body.at(later, offset))
                body.prefetch(body.at(values, offset))
                keys.append(body.from_half(body.get(own, vector(I16), offset, align=2)))
            for i, query in enumerate(block.queries):
                value = body.splat(body.get(query, F32, body.mul(d, body.i64(4)), align=4))
                for key, totals in zip(keys, sums, strict=True):
                    body.store(body.mul_add(key, value, body.read(totals[i], kind)), totals[i])
        for tile, totals in zip(tiles, sums, strict=True):
            place = body.mul(body.sub(tile, origin), body.i64(4 * LANES))
            for total, scores in zip(totals, into, strict=True):
                body.put(body.read(total, kind), scores, place, align=4)


def _write_near(block: _Block, i: int, start: Any) -> None:
    """Copy scores of a path's cells after its base to their positions; ``near`` begins with the cell ``start``."""
    body = block.body
    low = body.most_of(block.base, block.low)
    with body.loop(low, body.least_of(block.high, block.lengths[i])) as position:
        index = body.mul(body.sub(position, block.base), body.i64(4))
        cell = body.sext(body.get(block.tails[i], I32, index, align=4), I64)
        score = body.get(block.near[i], F32, body.mul(body.sub(cell, start), body.i64(4)), align=4)
        body.put(score, block.scores[i], body.mul(body.sub(position, block.low), body.i64(4)), align=4)


def _write_weights(block: _Block, least: Any, lows: list[Any], ends: list[Any]) -> None:
    """Turn scores into weights, from position ``least`` in the chunk on; write the queries' maxima and sums."""
    body, kind = block.body, vector(F32)
    cap = PHASE.real(body, block.phase, "soft_cap")
    first = body.sdiv(least, body.i64(LANES))
    for i, (low, end) in enumerate(zip(lows, ends, strict=True)):
        part, last = _part(block, i), body.sdiv(body.add(end, body.i64(LANES - 1)), body.i64(LANES))
        most, total = body.variable(body.same(F32, _LOWEST)), body.variable(body.same(F32, 0.0))
        with body.loop(first, last) as tile:
            place = body.at(block.scores[i], body.mul(tile, body.i64(4 * LANES)))
            score = body.variable(body.get(place, kind, align=4))
            with body.if_then(body.fcmp_ordered(">", cap, body.f32(0.0))):
                body.store(capped(body, body.read(score, kind), cap), score)
            score = body.select(_between(body, tile, low, end), body.read(score, kind), body.same(F32, _LOWEST))
            body.put(score, place, align=4)
            body.store(body.larger(score, body.read(most, kind)), most)
        highest = body.fold(body.read(most, kind), body.larger)
        with body.loop(first, last) as tile:
            place = body.at(block.scores[i], body.mul(tile, body.i64(4 * LANES)))
            weight = exponential(body, body.fsub(body.get(place, kind, align=4), body.splat(highest)))
            weight = body.select(_between(body, tile, low, end), weight, body.same(F32, 0.0))
            body.put(weight, place, align=4)
            body.store(body.fadd(body.read(total, kind), weight), total)
        body.put(highest, part, 0, align=4)
        body.put(body.fold(body.read(total, kind), body.fadd), part, 4, align=4)


def _between(body: Body, tile: Any, low: Any, end: Any) -> Any:
    """Return which positions of a tile lie from ``low`` up to ``end``."""
    first = body.trunc(body.mul(tile, body.i64(LANES)), I32)
    lanes = body.add(body.splat(first), ir.Constant(vector(I32), list(range(LANES))))
    above = body.icmp_signed(">=", lanes, body.splat(body.trunc(low, I32)))
    below = body.icmp_signed("<", lanes, body.splat(body.trunc(end, I32)))
    return body.select(above, below, ir.Constant(vector(I1), [0] * LANES))


def _part(block: _Block, i: int) -> Any:
    """Return the memory of one query's result for this chunk."""
    body = block.body
    fold = body.get(PASS.place(body, block.whole, "folds"), I64, body.mul(block.rows[i], body.i64(16)), align=8)
    index = body.add(body.mul(body.add(fold, block.chunk), block.heads), block.query_heads[i])
    parts = PHASE.place(body, block.phase, "parts")
    return body.at(parts, body.mul(index, body.mul(body.add(block.room, body.i64(PART_HEAD)), body.i64(4))))


def _add_known(block: _Block, parts: list[Any], first: Any) -> None:
    """Write the addition of the values of committed positions that all queries see: for the whole head those of
    a page, then those of the next one, so that a page's values stay in the nearest cache.
    """
    body, kind = block.body, vector(F32)
    page = body.variable(first)
    with body.while_() as (_, after):
        start = body.read(page, I64)
        body.go_on(body.icmp_signed("<", start, block.known), after)
        end = body.add(body.and_(start, body.i64(-PAGE)), body.i64(PAGE))
        end = body.least_of(end, block.known)
        _, values = block.cell(start)
        for numbers, sums in _sums(block, parts, _TOGETHER):
            rows = [body.at(values, body.mul(d, body.i64(2))) for d in numbers]
            with body.loop(start, end) as position:
                offset = body.mul(body.sub(position, start), body.mul(block.room, body.i64(2)))
                some = [body.from_half(body.get(row, vector(I16), offset, align=2)) for row in rows]
                place = body.mul(body.sub(position, block.low), body.i64(4))
                for i, weights in enumerate(block.scores):
                    weight = body.splat(body.get(weights, F32, place, align=4))
                    for value, totals in zip(some, sums, strict=True):
                        body.store(body.mul_add(value, weight, body.read(totals[i], kind)), totals[i])
        body.store(end, page)


def _add_seen(block: _Block, d: Any, position: Any, sums: list[Any], lows: list[Any]) -> None:
    """Write the addition of the values of a position that lies before the windows of some queries.

    For these it is left out, not added with a weight of 0: a value may be NaN.
    """
    body, kind = block.body, vector(F32)
    value, within = block.value(position, d), body.sub(position, block.low)
    for total, weights, low in zip(sums, block.scores, lows, strict=True):
        with body.if_then(body.icmp_signed(">=", within, low)):
            weight = body.splat(body.get(weights, F32, body.mul(within, body.i64(4)), align=4))
            body.store(body.mul_add(value, weight, body.read(total, kind)), total)


def _sums(
    block: _Block, parts: list[Any], sizes: Sequence[int] = (1,)
) -> Iterator[tuple[list[Any], list[list[Any]]]]:
    """Go through a head's values in vectors of sixteen numbers; ``sizes`` says how many vectors at once.

    Yields the first number of each vector, and for each vector the sums of all queries, which are read from their
    parts and written back.
    """
    body, kind = block.body, vector(F32)
    for count, first in body.runs(body.sdiv(block.room, body.i64(LANES)), sizes):
        numbers = [body.mul(body.add(first, body.i64(i)), body.i64(LANES)) for i in range(count)]
        places = [body.mul(body.add(d, body.i64(PART_HEAD)), body.i64(4)) for d in numbers]
        sums = [[body.variable(body.get(part, kind, place, align=4)) for part in parts] for place in places]
        yield numbers, sums
        for totals, place in zip(sums, places, strict=True):
            for total, part in zip(totals, parts, strict=True):
                body.put(body.read(total, kind), part, place, align=4)


def _write_sums(block: _Block, low: Any, lows: list[Any], ends: list[Any]) -> None:
    """Write the sums of weight times value, position by position."""
    body, kind = block.body, vector(F32)
    parts = [_part(block, i) for i in range(block.count)]
    all_see = low
    for other in lows:
        all_see = body.most_of(all_see, other)
    first = body.least_of(body.add(block.low, all_see), block.known)
    for (d,), (sums,) in _sums(block, parts):
        for total in sums:
            body.store(body.same(F32, 0.0), total)
        with body.loop(body.add(block.low, low), first) as position:
            _add_seen(block, d, position, sums, lows)
    _add_known(block, parts, body.most_of(first, body.add(block.low, low)))
    for (d,), (sums,) in _sums(block, parts):
        for i, total in enumerate(sums):
            first = body.most_of(body.most_of(block.base, block.low), body.add(block.low, lows[i]))
            with body.loop(first, body.add(block.low, ends[i])) as position:
                index = body.mul(body.sub(position, block.base), body.i64(4))
                cell = body.sext(body.get(block.tails[i], I32, index, align=4), I64)
                weight = body.get(
                    block.scores[i], F32, body.mul(body.sub(position, block.low), body.i64(4)), align=4
                )
                added = body.mul_add(block.value(cell, d), body.splat(weight), body.read(total, kind))
                body.store(added, total)
