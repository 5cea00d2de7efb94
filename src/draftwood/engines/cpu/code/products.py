"""Products ``y = W x`` of packed weights and rows of inputs, in integer arithmetic.

Inputs are rounded to 8 bits per group of 32 (`draftwood.engines.cpu.code.rounding`). Of each group the products of
codes and inputs are added as integers, exactly; the groups of an output are added as float32, one after another.
So a row's result depends on that row alone: not on how many rows there are, nor on how the work is divided."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Dots, Instructions
from draftwood.engines.cpu.code.packed import Scales, float_weights, unpacked
from draftwood.engines.cpu.code.records import Field, RowsView
from draftwood.engines.cpu.code.rounding import GROUP_RECORD, MINUS, STEP, SUMS
from draftwood.engines.cpu.code.values import F32, I64, POINTER, VOID, Array, Place, Value, Variable
from draftwood.engines.files.formats import TILE, Format

CORE = ir.FunctionType(
    VOID, [POINTER, I64, I64, POINTER, I64, POINTER, I64, I64, I64, I64, I64, F32, POINTER]
)  # weights, blocks, tile_bytes, x, x_stride, y, y_stride, rows, first tile, end tile, adds, scale, bias
_FAR, _NEAR = 8192, 1024
"""Bytes ahead at which weights are prefetched: into a core's second-level cache, and from there into the first. A
core fetches a dozen lines at a time into its first, too few to hide the latency of memory. Where a core computes
faster than its memory gives weights, it may be better left alone: see `Dots.fetches_ahead`."""
ROWS_TOGETHER = (8, 7, 6, 5, 4, 3, 2, 1)
"""Rows that share one unpacking of codes, the largest number that fits first."""
_WHOLE_TILES, _GROUPS_IN_TURN = 2, 16
"""Up to so many rows, all outputs of a tile are computed together. Else, where vectors are shorter than a tile,
its parts take turns, each for so many groups, whose weights stay in the first cache meanwhile."""


class _Core(NamedTuple):
    """The arguments of a function of type `CORE`."""

    weights: Place
    blocks: Value
    tile_bytes: Value
    x: Place
    x_stride: Value
    y: Place
    y_stride: Value
    rows: Value
    low: Value
    high: Value
    adds: Value
    scale: Value
    bias: Place

    def inputs(self, first: Value, count: int) -> list[Place]:
        """Return the addresses of the inputs of a few rows."""
        return [self.x + (first + i) * self.x_stride for i in range(count)]

    def outputs(self, first: Value, count: int, tile: Value) -> list[Place]:
        """Return the addresses of a tile's outputs in a few rows."""
        start = self.y + tile * (4 * TILE)
        return [start + (first + i) * self.y_stride for i in range(count)]

    def store(self, code: Code, found: list[Value], places: list[Place], shift: Place) -> None:
        """Write a vector of results in each of a few rows: ``y = scale * (sum + bias)``, or ``y += `` that.

        ``shift`` is where the bias of these outputs lies."""
        lanes = found[0].lanes
        outs = [place.array("f32", lanes) for place in places]
        scale = self.scale.splat(lanes)
        sums = [code.variable(total) for total in found]
        with code.when(self.bias.number().differs(0)):
            more = shift.array("f32", lanes)[0]
            for total in sums:
                total.now = total.now + more
        with code.if_else(self.adds.differs(0).ir) as (adding, storing):
            with adding:
                for total, out in zip(sums, outs, strict=True):
                    out[0] = out[0].plus_product(total.now, scale)
            with storing:
                for total, out in zip(sums, outs, strict=True):
                    out[0] = total.now * scale


def write_product(module: ir.Module, name: str, form: Format, instructions: Instructions) -> None:
    """Write the product for weights of one format: a function of type `CORE`."""
    code, arguments = function(module, name, CORE, instructions)
    core = _Core(*arguments)
    dots = instructions.dots
    parts = TILE // dots.outputs
    with code.count(core.low, core.high) as tile:
        start = core.weights + tile * core.tile_bytes
        shift = core.bias + tile * (4 * TILE)
        for count, row in code.runs(core.rows, ROWS_TOGETHER):
            inputs, places = core.inputs(row, count), core.outputs(row, count, tile)
            run = _Run(code, form, dots, start, inputs)
            if parts == 1 or count <= _WHOLE_TILES:
                for number, found in enumerate(run.together(core.blocks, parts)):
                    at = number * (4 * dots.outputs)
                    core.store(code, found, [place + at for place in places], shift + at)
            else:
                totals = run.in_turn(core.blocks, parts)
                with code.count(0, parts) as part:
                    offset = part * (4 * dots.outputs)
                    sums = run.read(totals, part)
                    core.store(code, sums, [place + offset for place in places], shift + offset)
    code.ret_void()


class _Run(NamedTuple):
    """The sums of a tile for a few rows, in the code; ``start`` is where the tile lies.

    A tile has a part for each vector of outputs."""

    code: Code
    form: Format
    dots: Dots
    start: Place
    inputs: list[Place]

    def together(self, blocks: Value, parts: int) -> list[list[Value]]:
        """Write the sums of all parts in one loop; returns float32[outputs] per part and row."""
        code = self.code
        sums = [[code.variable(code.real(0.0, self.dots.outputs)) for _ in self.inputs] for _ in range(parts)]
        with code.count(0, blocks) as block:
            self._add(block, [code.whole(part) for part in range(parts)], sums, 0, 64)
        return [[total.now for total in some] for some in sums]

    def in_turn(self, blocks: Value, parts: int) -> Place:
        """Write the sums, a part after the other for each few groups: so memory gives weights all the time.

        Returns float32[parts, rows, outputs]."""
        code, step = self.code, max(1, _GROUPS_IN_TURN // self.form.groups)
        totals = code.room(F32, parts * len(self.inputs) * self.dots.outputs)
        nothing = [code.real(0.0, self.dots.outputs)] * len(self.inputs)
        with code.count(0, parts) as part:
            self._write(totals, part, nothing)
        with code.count(0, blocks, step) as first, code.count(0, parts) as part:
            sums = [code.variable(total) for total in self.read(totals, part)]
            with code.count(first, (first + step).least(blocks)) as block:
                self._add(block, [part], [sums], part * 64, 64 * parts)
            self._write(totals, part, [total.now for total in sums])
        return totals

    def _row(self, totals: Place, part: Value, row: int) -> Array:
        size = 4 * self.dots.outputs
        return (totals + part * (size * len(self.inputs)) + size * row).array("f32", self.dots.outputs)

    def read(self, totals: Place, part: Value) -> list[Value]:
        """Return the sums of a part that `in_turn` has found, float32[outputs] per row."""
        return [self._row(totals, part, row)[0] for row in range(len(self.inputs))]

    def _write(self, totals: Place, part: Value, sums: Sequence[Value]) -> None:
        for row, total in enumerate(sums):
            self._row(totals, part, row)[0] = total

    def _add(
        self, block: Value, parts: list[Value], sums: list[list[Variable]], line: int | Value, lines: int
    ) -> None:  # fmt: skip
        """Write the addition of a block to sums of some parts; a line of ``lines`` bytes is fetched ahead."""
        code, form, dots = self.code, self.form, self.dots
        share = form.block_bytes // form.groups  # bytes of a block per group, scales included
        place = self.start + block * form.block_bytes
        scales = [Scales(form, place, part, dots.outputs) for part in parts]
        with code.count(0, form.groups) as group:
            number = block * form.groups + group
            records = [row + number * GROUP_RECORD for row in self.inputs]
            codes = place + (group * form.group_bytes + form.head_bytes)
            if dots.fetches_ahead(len(self.inputs)):
                _prefetch(place + group * share + line, share, lines)
            for part, scale, totals in zip(parts, scales, sums, strict=True):
                steps = unpacked(form, dots, codes + part * (4 * dots.outputs))
                ready = [dots.prepared(form, step) for step in steps]
                factors = scale.of_group(group)
                for total, record in zip(totals, records, strict=True):
                    total.now = _added(form, dots, ready, factors, record, total.now)


def _prefetch(codes: Place, size: int, step: int = 64) -> None:
    """Prefetch weights of later groups: the processor's own prefetching stops at the end of a small page."""
    for line in range(0, size, step):
        (codes + (_FAR + line)).prefetch(second=True)
        (codes + (_NEAR + line)).prefetch()


def _added(
    form: Format, dots: Dots, steps: list[Any], factors: list[tuple[Value, Value | None]], record: Place,
    total: Value,
) -> Value:  # fmt: skip
    """Write the addition of one group to one row's sums."""
    each = 8 // len(factors)
    step = (record + STEP).f32[0].splat(dots.outputs)
    for half, (scale, least) in enumerate(factors):
        which = half if len(factors) == 2 else 2  # which sum: of the first half, of the second, of both
        whole = dots.total(form, steps[each * half : each * (half + 1)], record, each * half)
        if form.offset and not dots.applies_offset(form):
            whole = whole - (record + SUMS).i32[which] * form.offset
        total = total.plus_product(whole.real(), scale * step)
        if least is not None:
            total = total.plus_product((record + MINUS).f32[which].splat(dots.outputs), least)
    return total


FLOAT_ROWS = {16: (8, 4, 2, 1), 8: (3, 2, 1), 4: (3, 2, 1)}
"""By the lanes of a processor's vectors: numbers of rows whose sums, with the weights, fit its registers."""


def write_float_product(module: ir.Module, name: str, kind: str, instructions: Instructions) -> None:
    """Write the product for weights ``F32``, ``F16`` or ``BF16`` [tiles, inputs, 16] with rows of float32.

    A function of type `CORE`, in which ``blocks`` is the number of inputs. Two sums per output, of even and of odd
    inputs, are added at the end. `FLOAT_ROWS` rows read the weights together, which changes no sum.
    """
    code, arguments = function(module, name, CORE, instructions)
    core = _Core(*arguments)
    with code.count(core.low, core.high) as tile:
        start = core.weights + tile * core.tile_bytes
        shift = core.bias + tile * (4 * TILE)
        for count, row in code.runs(core.rows, FLOAT_ROWS[instructions.dots.outputs]):
            sums = _float_sums(code, kind, start, core.blocks, core.inputs(row, count))
            core.store(code, sums, core.outputs(row, count, tile), shift)
    code.ret_void()


def _float_sums(code: Code, kind: str, start: Place, inputs: Value, rows: list[Place]) -> list[Value]:
    """Write the sums of a tile for a few rows; returns float32[16] per row."""
    sums = [[code.variable(code.real(0.0, TILE)) for _ in range(2)] for _ in rows]
    step = TILE * (4 if kind == "F32" else 2)

    def add(k: Value, which: int) -> None:
        weight = float_weights(kind, start + k * step)
        for row, totals in zip(rows, sums, strict=True):
            total: Variable = totals[which]
            total.now = total.now.plus_product(weight, row.f32[k].splat())

    whole = inputs & -4
    with code.count(0, whole, 4) as k:
        _prefetch(start + k * step, 4 * step)
        for i in range(4):
            add(k + i, i % 2)
    for i in range(3):
        rest = whole + i
        with code.when(rest < inputs):
            add(rest, i % 2)
    return [even.now + odd.now for even, odd in sums]


class MatrixView(NamedTuple):
    """A packed matrix in the code of a kernel."""

    code: Code
    core: Value
    weights: Place
    blocks: Value
    tile_bytes: Value
    tiles: Value
    expert_bytes: Value

    def product(
        self, x: RowsView, y: RowsView, rows: Value, tiles: tuple[Value, Value], *, expert: Value | None = None,
        adds: Value | None = None, scale: Value | None = None, bias: Place | None = None,
    ) -> None:  # fmt: skip
        """Write the call of the product for so many rows and these tiles, first and end.

        ``expert`` is the number of an expert's matrix; without ``adds``, ``scale`` and ``bias`` nothing is added,
        scaled or shifted.
        """
        weights = self.weights if expert is None else self.weights + expert * self.expert_bytes
        nothing = self.code.whole(0)
        self.code.call_at(
            self.core, CORE, weights, self.blocks, self.tile_bytes, x.start, x.stride, y.start, y.stride, rows,
            *tiles, nothing if adds is None else adds, self.code.real(1.0) if scale is None else scale,
            nothing.place() if bias is None else bias,
        )  # fmt: skip


class MatrixField(Field):
    """A `draftwood.engines.cpu.packing.Matrix` that is multiplied with rows."""

    slots = 6

    def written(self, given: Any) -> tuple[int, ...]:
        return (
            given.product, given.packed.ctypes.data, given.blocks, given.tile_bytes, given.tiles,
            given.expert_bytes,
        )  # fmt: skip

    def read(self, record: Place, at: int) -> MatrixView:
        core, weights, *sizes = (record.i64[at + i] for i in range(self.slots))
        return MatrixView(record.builder, core, weights.place(), *sizes)


MATRIX = MatrixField()


def tiles_of(per: Value, piece: Value, tiles: Value) -> tuple[Value, Value]:
    """Return the first tile of a piece of ``per`` tiles, and the one after its last."""
    low = piece * per
    return low, (low + per).least(tiles)
