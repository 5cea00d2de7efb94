"""Reads packed weights in the code of kernels: codes, scales and floats, as `draftwood.engines.files.formats` lays
them out.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from draftwood.engines.cpu.code.emit import function
from draftwood.engines.cpu.code.instructions import Dots, Instructions
from draftwood.engines.cpu.code.records import Field
from draftwood.engines.cpu.code.values import F32, I8, I32, I64, POINTER, VOID, Place, Value
from draftwood.engines.files.formats import EIGHT_BIT_POWER, GROUP, STEPS, TILE, Format


def unpacked(form: Format, dots: Dots, codes: Place) -> list[Value]:
    """Write code that unpacks a group's eight steps, uint8[4 * outputs] each, of one part of a tile."""
    steps: list[Any] = [None] * STEPS
    below = 0  # bits of the planes before
    for bits in form.planes:
        mask = (1 << bits) - 1
        for v in range(bits):
            whole = (codes + 64 * (below + v)).array("i8", 4 * dots.outputs)[0]
            for field in range(8 // bits):
                code = whole >> bits * field if field else whole
                if field < 8 // bits - 1:
                    code = code & mask
                if below:
                    code = code << below
                at = v + bits * field
                steps[at] = code if steps[at] is None else steps[at] | code
        below += bits
    if form.codebook:
        return [dots.looked_up(step, form.codebook) for step in steps]
    return steps


class Scales:
    """What multiplies the codes of one part of a tile in a block: float32[outputs] scales, and leasts if there are
    any.
    """

    def __init__(self, form: Format, block: Place, part: Value, outputs: int) -> None:
        self._form, self._outputs = form, outputs
        size = form.scale_bytes
        self._factors = block + (part * outputs + size * TILE * (1 + form.least))
        heads = block + part * (size * outputs)
        found = [self._read_scale(heads + size * TILE * i) for i in range(1 + form.least)]
        self._scale, self._least = found[0], found[1] if form.least else None
        if form.power:
            self._scale = self._scale * 2.0**form.power

    def of_group(self, group: Value) -> list[tuple[Value, Value | None]]:
        """Return what multiplies the sums of a group, or of each of its halves: scales and leasts."""
        form = self._form
        if not form.factors:
            return [(self._scale, self._least)]
        first = self._factors + group * (TILE * form.factors * (1 + form.least))
        found = []
        for half in range(form.factors):
            scale = self._scale * self._factor(self._read(first + TILE * half))
            least = None
            if self._least is not None:
                least = self._least * self._read(first + TILE * (form.factors + half)).unsigned(I32).real()
            found.append((scale, least))
        return found

    def _read(self, place: Place) -> Value:
        return place.array("i8", self._outputs)[0]

    def _read_scale(self, place: Place) -> Value:
        if self._form.floating:
            return place.array("f32", self._outputs)[0]
        return place.array("i16", self._outputs)[0].from_half()

    def _factor(self, byte: Value) -> Value:
        if self._form.floating:
            return (byte.unsigned(I32) << 20).bits_as(F32) * 2.0**EIGHT_BIT_POWER
        return (byte.signed(I32) if self._form.signed else byte.unsigned(I32)).real()


def float_weights(kind: str, place: Place) -> Value:
    """Return the weights of sixteen outputs for one input, as float32."""
    if kind == "F32":
        return place.f32x16[0]
    bits = place.i16x16[0]
    return bits.from_half() if kind == "F16" else (bits.unsigned(I32) << 16).bits_as(F32)


ROW = ir.FunctionType(VOID, [POINTER, I64, I64, I64, F32, POINTER])
"""Reads one output's weights; takes weights, blocks, tile_bytes, output, factor, out float32[inputs]."""


def write_row_reader(module: ir.Module, name: str, form: Format, instructions: Instructions) -> None:
    """Write the reading of one output's weights from a format's tiles: a function of type `ROW`."""
    code, (weights, blocks, tile_bytes, output, factor, out) = function(module, name, ROW, instructions)
    start, lane = weights + output // TILE * tile_bytes, output % TILE
    codes, dots = code.room(I8, 64 * STEPS), Dots()
    with code.count(0, blocks) as block:
        place = start + block * form.block_bytes
        scales = Scales(form, place, code.whole(0), TILE)
        with code.count(0, form.groups) as group:
            planes = place + (group * form.group_bytes + form.head_bytes)
            for at, step in enumerate(unpacked(form, dots, planes)):
                codes.i8x64[64 * at] = step
            line = out + (block * form.groups + group) * (4 * GROUP)
            factors = scales.of_group(group)
            each = STEPS // len(factors)
            for half, (every, leasts) in enumerate(factors):
                scale, least = every.lane(lane), None if leasts is None else leasts.lane(lane)
                with code.count(each * half, each * (half + 1)) as k:
                    for i in range(4):
                        number = codes.i8[k * 64 + lane * 4 + i].unsigned(I32) - form.offset
                        value = scale * number.real()
                        value = value if least is None else value - least
                        line.f32[k * 4 + i] = value * factor
    code.ret_void()


def write_float_row_reader(module: ir.Module, name: str, kind: str, instructions: Instructions) -> None:
    """Write a reader for ``F32``, ``F16`` or ``BF16`` [tiles, inputs, 16]; ``blocks`` is the number of inputs."""
    code, (weights, inputs, tile_bytes, output, factor, out) = function(module, name, ROW, instructions)
    start, lane = weights + output // TILE * tile_bytes, output % TILE
    size = 4 if kind == "F32" else 2
    with code.count(0, inputs) as k:
        values = float_weights(kind, start + k * (size * TILE))
        out.f32[k] = values.lane(lane) * factor
    code.ret_void()


class TableView:
    """A packed matrix in the code of a kernel that reads single outputs of it."""

    def __init__(self, slots: list[Value]) -> None:
        self._core, weights, *self._sizes = slots
        self._weights = weights.place()

    def read(self, output: Value, factor: Value, out: Place) -> None:
        """Write the reading of one output's weights, times ``factor``, to ``out``."""
        self._core.builder.call_at(self._core, ROW, self._weights, *self._sizes, output, factor, out)


class TableField(Field):
    """A `draftwood.engines.cpu.packing.Matrix` of which single outputs are read."""

    slots = 4

    def written(self, given: Any) -> tuple[int, ...]:
        return given.reader, given.packed.ctypes.data, given.blocks, given.tile_bytes

    def read(self, record: Place, at: int) -> TableView:
        return TableView([record.i64[at + i] for i in range(self.slots)])


TABLE = TableField()
