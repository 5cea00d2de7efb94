"""The kernel of attention: of each row, over its path of committed tokens, its ancestors in the tree, and itself.

Attention with grouped queries: Ainslie et al., 2023 (arXiv 2305.13245); windows and joining of chunks as in
FlashAttention: Dao et al., 2022 (arXiv 2205.14135).

                chunk 0 (512 positions)       chunk 1                      a row's path, by position
    unit 0      rows 0-15: part, part, ...    rows 0-15: part, part, ...   one part per row, head and chunk
    unit 1      rows 16-31 ...

A piece is a share of the queries (row, query head) of one unit, one chunk and one key head. It takes up to six
queries together, so that keys and values are read once for all. Within a chunk a score is the sum of q[i] * k[i],
of each group of 32 in whole numbers, the groups in order; the largest score is subtracted, and weights are added
in 16 lanes. `draftwood.engines.cpu.blocks.attention_values` adds weighted values; `joined` adds up a row's parts
in order. None of this depends on the cell in which a position lies, nor on other rows.
"""

from __future__ import annotations

from typing import Any

from draftwood.engines.cpu.blocks.attention_queries import FIELDS, UNSEEN, Queries
from draftwood.engines.cpu.blocks.attention_values import TOGETHER, write_sums
from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.records import CHUNK, PART_HEAD, QUERIES, KernelModule, Per, PieceCode
from draftwood.engines.cpu.code.rounding import capped, exponential, from_bfloat
from draftwood.engines.cpu.code.values import I32, LANES, LOWEST, Place, Value
from draftwood.engines.files.formats import GROUP

SHARES = 4
"""Pieces of work that the queries of one unit and one key head are divided into."""

_QUERIES = {16: (6, 4, 3, 2, 1), 8: (4, 3, 2, 1), 4: (6, 4, 3, 2, 1)}
"""Numbers of queries that are computed together, by the lanes of a processor's vectors: their sums fit its
registers."""
MODULE = KernelModule("attention")


def _write_queries(count: int) -> None:
    """Write ``queries_COUNT``, which computes so many queries of a piece."""

    def write(module: Any, instructions: Instructions) -> None:
        code, arguments = function(module, f"queries_{count}", QUERIES, instructions)
        block = Queries(code, arguments, count)
        # Parts of many rows fill no cache: asked for now, their lines are near when sums are written.
        with code.count(0, (block.room + PART_HEAD) * 4, 64) as line:
            for part in block.parts:
                (part + line).prefetch(second=True)
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
        write_sums(block, low)
        code.ret_void()

    MODULE.also(write)


def _bounds(block: Queries) -> tuple[list[Value], list[Value]]:
    """Return first and end position in this chunk of each query; the end may lie before the first."""
    window = block.phase.window
    lows, ends = [], []
    for length in block.lengths:
        first = (length - window - block.low).most(0)
        lows.append((window > 0).where(first, 0))
        ends.append(length.least(block.high) - block.low)
    return lows, ends


def _write_scores(block: Queries, first: Value, last: Value, origin: Value, into: list[Place]) -> None:
    """Write scores of sixteen cells at once.

    ``first``, ``last``, ``origin`` count groups of 16 cells; ``into`` begins with group ``origin``.
    """
    lanes = block.dots.outputs
    most = TOGETHER[lanes] * lanes // LANES
    for count, done in block.code.runs(last - first, range(most, 0, -1)):
        tiles = [first + done + i for i in range(count)]
        sums = _scores(block, tiles)
        for tile, of_tile in zip(tiles, sums, strict=True):
            for at, totals in enumerate(of_tile):
                for total, scores in zip(totals, into, strict=True):
                    scores.array("f32", lanes)[(tile - origin) * LANES + at * lanes] = total


def _scores(block: Queries, tiles: list[Value]) -> list[list[list[Value]]]:
    """Return scores of some tiles: for each vector of a tile, a vector per query.

    Of each group of 32 numbers the sum of q * k is exact, and times the product of both scales it is added by fma
    to the sum of the groups before it. Meanwhile the keys of the next pieces are prefetched into the second-level
    cache, and with the sums their values: without this, a row would wait for them as long as its arithmetic takes.
    """
    code, dots = block.code, block.dots
    lanes = dots.outputs
    starts = range(0, LANES, lanes)
    cells, later = ([of(tile * LANES) for tile in tiles] for of in (block.cells, block.next_cells))
    keys, next_keys = (
        [one.keys(tile * LANES) for one, tile in zip(some, tiles, strict=True)] for some in (cells, later)
    )
    next_scales = [some(tiles[0] * LANES) for some in (later[0].key_scales, later[0].value_scales)]
    sums = [[[code.variable(code.real(0.0, lanes)) for _ in block.queries] for _ in starts] for _ in tiles]
    with code.count(0, block.groups) as group:
        for place, step in zip(next_scales, (2 * LANES * len(tiles), 2 * PAGE), strict=True):
            (place + group * step).prefetch(second=True)
        whole = [[[code.variable(code.same(I32, 0, lanes)) for _ in block.queries] for _ in starts] for _ in tiles]
        with code.count(0, GROUP // 2) as pair:
            offset = (group * (GROUP // 2) + pair) * (4 * LANES)
            for place in next_keys:
                (place + offset).prefetch(second=True)
            some = [[(place + offset + 4 * at).array("i16", 2 * lanes)[0] for at in starts] for place in keys]
            for i, query in enumerate(block.queries):
                two = query.i32[group * (GROUP // 2) + pair]
                for of_tile, totals in zip(some, whole, strict=True):
                    for numbers, total in zip(of_tile, totals, strict=True):
                        total[i].now = dots.plus_pairs(total[i].now, numbers, two)
        factors = [(query + block.room * 2).f32[group] for query in block.queries]
        for t, tile in enumerate(tiles):
            scales = cells[t].key_scales(tile * LANES) + group * (2 * LANES)
            for at, start in enumerate(starts):
                scale = from_bfloat((scales + 2 * start).array("i16", lanes)[0])
                for one, exact, factor in zip(sums[t][at], whole[t][at], factors, strict=True):
                    one.now = one.now.plus_product(exact.now.real(), scale * factor)
    return [[[total.now for total in totals] for totals in of_tile] for of_tile in sums]


def _write_near(block: Queries, i: int, start: Value) -> None:
    """Copy scores of cells from the base on out of ``near``, whose first cell is ``start``, to their positions."""
    low = block.base.most(block.low)
    with block.code.count(low, block.high.least(block.lengths[i])) as position:
        cell = block.tail_cell(i, position)
        block.scores[i].f32[position - block.low] = block.near[i].f32[cell - start]


def _write_weights(block: Queries, least: Value, lows: list[Value], ends: list[Value]) -> None:
    """Turn scores into weights, from position ``least`` in the chunk on; write the queries' maxima and sums.

    Positions that a query does not see get the weight `UNSEEN`.
    """
    code, cap = block.code, block.phase.soft_cap
    first = least // LANES
    for scores, part, low, end in zip(block.scores, block.parts, lows, ends, strict=True):
        last = (end + (LANES - 1)) // LANES
        most, total = code.variable(code.real(LOWEST, LANES)), code.variable(code.real(0.0, LANES))
        sees_all = (end - low).equals(CHUNK) & (cap <= 0.0)
        with code.if_else(sees_all.ir) as (as_they_are, changed):
            with as_they_are, code.count(first, last) as tile:
                most.now = scores.f32x16[tile * LANES].most(most.now)
            with changed, code.count(first, last) as tile:
                found = code.variable(scores.f32x16[tile * LANES])
                with code.when(cap > 0.0):
                    found.now = capped(found.now, cap)
                seen = _between(code, tile, low, end).where(found.now, LOWEST)
                scores.f32x16[tile * LANES] = seen
                most.now = seen.most(most.now)
        highest = most.now.fold(Value.most)
        with code.count(first, last) as tile:
            score = scores.f32x16[tile * LANES]
            weight = score.equals(LOWEST).where(UNSEEN, exponential(score - highest))
            scores.f32x16[tile * LANES] = weight
            total.now = total.now + weight
        part.f32[0] = highest
        part.f32[1] = total.now.sum()


def _between(code: Code, tile: Value, low: Value, end: Value) -> Value:
    """Return which positions of a tile lie from ``low`` up to ``end``."""
    lanes = code.listed(I32, range(LANES)) + (tile * LANES).narrow(I32)
    return (lanes >= low.narrow(I32)) & (lanes < end.narrow(I32))


for _count in sorted({count for counts in _QUERIES.values() for count in counts}):
    _write_queries(_count)


def _attention(piece: PieceCode) -> None:
    """Piece ``(unit * kv_heads + head) * SHARES + share`` computes a share of a unit's and head's queries."""
    code, phase = piece.code, piece.phase
    group = phase.heads // phase.kv_heads
    of_head, share = piece.number // SHARES, piece.number % SHARES
    unit = piece.whole.units + of_head // phase.kv_heads * 32
    queries = unit.i64[1] * group
    counts = _QUERIES[code.instructions.dots.outputs]
    most = counts[0]
    blocks = (queries + (most - 1)) // most
    start, end = (blocks * (share + i) // SHARES * most for i in range(2))
    for count, first in code.runs(end.least(queries) - start, counts):
        code.call_here(
            f"queries_{count}", piece.whole.record, phase.record, unit, of_head % phase.kv_heads, start + first
        )


ATTENTION = MODULE.kernel("attention", Per.UNITS, _attention, **FIELDS)
"""Parts of attention, from queries and the cells of a layer."""
