"""The sums of weights times values of a chunk, in whole numbers.

Of each group of 32 values a weight is multiplied by the scale of the position's values, and these products are
rounded to 15 bits of the largest in the chunk. Products with values of 8 bits are then added as integers: within
int32, exactly, and so in any order of cells. A cell that a query does not see has the weight -0.0 (`UNSEEN`) and
is left out, since the scale of its values may be NaN.
"""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.engines.cpu.blocks.attention_queries import UNSEEN, Queries, Span
from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.records import PART_HEAD
from draftwood.engines.cpu.code.rounding import SOME, from_bfloat, rounded
from draftwood.engines.cpu.code.values import I16, I32, LANES, Value
from draftwood.engines.files.formats import GROUP

_MOST = 32767
"""Largest whole number of a weight."""
_INFINITE = float("inf")
TOGETHER = {16: 2, 8: 2, 4: 4}
"""Vectors of keys or values that are computed at once, by the lanes of a processor's vectors: each query, or
weight, is read once for all of them."""


def write_sums(block: Queries, least: Value) -> None:
    """Write the sums of weight times value over the positions from ``least`` in the chunk on."""
    code, spans, count = block.code, block.spans(least), len(block.parts)
    for i in range(count):
        _write_by_cell(block, i, spans)
    lanes = block.dots.outputs
    with code.count(0, block.groups) as group:
        are_odd = _write_scales(block, group, spans)
        steps = [code.variable(step) for step in _write_whole(block, spans)]
        with code.when(are_odd):
            for i, step in enumerate(steps):
                step.now = step.now + _odd(block, i, group, spans)
        for first in range(0, GROUP, lanes * TOGETHER[lanes]):
            sums = _sums(block, group, spans, range(first, first + lanes * TOGETHER[lanes], lanes))
            for numbers, part, step in zip(sums, block.parts, steps, strict=True):
                for at, whole in enumerate(numbers):
                    place = PART_HEAD + first + at * lanes
                    part.array("f32", lanes)[group * GROUP + place] = whole.real() * step.now


def _write_by_cell(block: Queries, i: int, spans: tuple[Span, Span]) -> None:
    """Write the weights of a query's positions from the base's tile on, by their cells."""
    code, (before, near), weights = block.code, spans, block.scores[i]
    with code.count(near.first, near.last) as tile:
        block.near[i].f32x16[(tile - near.first) * LANES] = code.real(UNSEEN, LANES)
    start, end = near.first * LANES, block.high.least(block.lengths[i])
    first = start.most(before.first * LANES)
    with code.count(first, block.known) as position:
        block.near[i].f32[position - start] = weights.f32[position - block.low]
    with code.count(first.most(block.base), end) as position:
        block.near[i].f32[block.tail_cell(i, position) - start] = weights.f32[position - block.low]


def _scales(block: Queries, group: Value, tile: Value) -> Value:
    """Return the scales of a group of values in the cells of a tile."""
    cell = tile * LANES
    return from_bfloat((block.cells(cell).value_scales(cell) + group * (2 * PAGE)).i16x16[0])


def _write_scales(block: Queries, group: Value, spans: tuple[Span, Span]) -> Value:
    """Write a group's scales for all queries, 0 for NaN and +infinity; returns whether any is not finite."""
    code = block.code
    odd = code.variable(code.real(0.0, LANES))
    for span in spans:
        with code.count(span.first, span.last) as tile:
            scales = _scales(block, group, tile)
            span.scales.f32x16[(tile - span.origin) * LANES] = (scales < _INFINITE).where(scales, 0.0)
            odd.now = odd.now.plus_product(scales, code.real(0.0, LANES))
    return odd.now.sum().is_nan


def _write_whole(block: Queries, spans: tuple[Span, Span]) -> list[Value]:
    """Write all queries' weights times scales of a group as whole numbers; returns the step of each query."""
    code = block.code
    most = [code.variable(code.real(0.0, LANES)) for _ in block.parts]
    for span in spans:
        with code.count(span.first, span.last) as tile:
            at = (tile - span.origin) * LANES
            scales = span.scales.f32x16[at]
            for weights, found in zip(span.weights, most, strict=True):
                found.now = (weights.f32x16[at] * scales).most(found.now)
    largest = [found.now.fold(Value.most) for found in most]
    inverses = [(one > SOME).where(float(_MOST) / one, 0.0).splat() for one in largest]
    for span in spans:
        with code.count(span.first, span.last) as tile:
            at = (tile - span.origin) * LANES
            scales = span.scales.f32x16[at]
            for weights, codes, inverse in zip(span.weights, span.codes, inverses, strict=True):
                codes.i16x16[at] = rounded(weights.f32x16[at] * scales * inverse).narrow(I16)
    return [(one > SOME).where(one * (1 / _MOST), 0.0) for one in largest]


def _odd(block: Queries, i: int, group: Value, spans: tuple[Span, Span]) -> Value:
    """Return NaN if a query sees values that are not finite, else 0."""
    code = block.code
    found = code.variable(code.real(0.0, LANES))
    for span in spans:
        with code.count(span.first, span.last) as tile:
            weights = span.weights[i].f32x16[(tile - span.origin) * LANES]
            is_unseen = weights.bits_as(I32) < 0
            found.now = found.now + is_unseen.where(0.0, _scales(block, group, tile) * 0.0)
    return found.now.sum()


def _sums(block: Queries, group: Value, spans: tuple[Span, Span], numbers: Sequence[int]) -> list[list[Value]]:
    """Return int32 sums per query: a vector from each of these numbers of a group on."""
    code, dots = block.code, block.dots
    lanes = dots.outputs
    sums = [[code.variable(code.same(I32, 0, lanes)) for _ in numbers] for _ in block.parts]
    for span in spans:
        with code.count(span.first, span.last) as tile:
            cell = tile * LANES
            values, next_values = (
                of(cell).values(cell) + group * (GROUP * PAGE) for of in (block.cells, block.next_cells)
            )
            first = (tile - span.origin) * (LANES // 2)
            with code.count(0, LANES // 2) as pair:
                line = values + pair * (2 * GROUP)
                (next_values + pair * (2 * GROUP)).prefetch(second=True)
                some = [(line + 2 * number).array("i8", 2 * lanes)[0].signed(I16) for number in numbers]
                for codes, totals in zip(span.codes, sums, strict=True):
                    weights = codes.i32[first + pair]
                    for total, value in zip(totals, some, strict=True):
                        total.now = dots.plus_pairs(total.now, value, weights)
    return [[total.now for total in totals] for totals in sums]
