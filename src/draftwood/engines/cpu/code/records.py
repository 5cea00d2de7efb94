"""The records that compiled code reads: one of a pass, and one of each of its phases, in slots of 64 bits.

A pass is a list of phases; each is one kernel, divided into pieces that threads take. A `PhaseKernel` declares the
fields that it reads. Python fills them (`PhaseKernel.slots`, which refuses a field that is missing or unknown),
and the code reads them by name from a `View`: ``phase.x[row]``, ``phase.epsilon``.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from llvmlite import ir

from draftwood.engines.cpu.code.emit import Code, function
from draftwood.engines.cpu.code.instructions import Instructions
from draftwood.engines.cpu.code.values import I64, POINTER, VOID, Place, Value

PIECE = ir.FunctionType(VOID, [POINTER, POINTER, I64])
"""What threads call: ``kernel(pass, phase, piece)``, two records and the number of a piece of work."""
QUERIES = ir.FunctionType(VOID, [POINTER, POINTER, POINTER, I64, I64])
"""What computes several queries of attention together: takes pass, phase, unit, key head, first query."""
SLOTS = 40
"""Slots of the record of a phase. The first has the kernel's address, the second its rows or tiles per piece."""
_HEAD = 2
UNIT_ROWS, WIDEST = 16, 256
"""Most rows of a unit of attention, and of a pass."""
CHUNK = 512
"""Positions of a path whose softmax is computed together; a longer path is joined from several chunks."""
PART_HEAD = 16
"""Float32 numbers of a part of attention before its sum of values: largest score, sum of weights, the factor with
which it is joined, 13 unused."""
BEFORE = 3
"""Most tokens before a row that a convolution reads."""
BEST = 16
"""Bytes of the record of a piece's best token: float32 score, int32 token, int32 not 0 if a score is NaN, 4 unused
bytes."""


class Field(ABC):
    """A field of a record: how Python writes it, and what it is in the code."""

    slots = 1

    @abstractmethod
    def written(self, given: Any) -> tuple[int, ...]:
        """Return the slots for a value that Python gives."""

    @abstractmethod
    def read(self, record: Place, at: int) -> Any:
        """Write code that reads it; ``at`` is its first slot."""


class NumberField(Field):
    """An integer."""

    def written(self, given: Any) -> tuple[int, ...]:
        return (int(given),)

    def read(self, record: Place, at: int) -> Value:
        return record.i64[at]


class RealField(Field):
    """A float32."""

    def written(self, given: Any) -> tuple[int, ...]:
        return (int.from_bytes(struct.pack("<f", given), "little"),)

    def read(self, record: Place, at: int) -> Value:
        return (record + 8 * at).f32[0]


class AddressField(Field):
    """The address of an array, or of what is placed `Later`; ``optional``: None is the address 0."""

    def __init__(self, *, optional: bool = False) -> None:
        self._optional = optional

    def written(self, given: Any) -> tuple[int, ...]:
        if given is None and self._optional:
            return (0,)
        return (0,) if isinstance(given, Later) else (int(given.ctypes.data),)

    def read(self, record: Place, at: int) -> Place:
        return record.i64[at].place()


@dataclass(frozen=True, slots=True)
class RowsView:
    """Rows in the code; ``rows[i]`` is the address of one."""

    start: Place
    stride: Value

    def __getitem__(self, row: Value) -> Place:
        return self.start + row * self.stride

    def since(self, row: Value) -> RowsView:
        """Return the rows from this one on."""
        return RowsView(self[row], self.stride)


class RowsField(Field):
    """Rows of numbers: a two-dimensional array whose rows are `stride` bytes apart; ``optional``: None is 0."""

    slots = 2

    def __init__(self, *, optional: bool = False) -> None:
        self._optional = optional

    def written(self, given: Any) -> tuple[int, ...]:
        if given is None and self._optional:
            return (0, 0)
        return (0, 0) if isinstance(given, Later) else (int(given.ctypes.data), int(given.strides[0]))

    def read(self, record: Place, at: int) -> RowsView:
        return RowsView(record.i64[at].place(), record.i64[at + 1])


class Later:
    """An array that a program allocates, or replaces by a larger one, after its phases are made."""


NUMBER, REAL, ADDRESS, ROWS = NumberField(), RealField(), AddressField(), RowsField()
OPTIONAL, OPTIONAL_ROWS = AddressField(optional=True), RowsField(optional=True)


class Layout:
    """Names of the fields of a record, and where each begins."""

    def __init__(self, first: int = 0, **fields: Field) -> None:
        self.fields, self._at, end = fields, dict[str, int](), first
        for name, one in fields.items():
            self._at[name] = end
            end += one.slots
        self.slots = end

    def __getitem__(self, name: str) -> int:
        return self._at[name]


PASS = Layout(
    phases=ADDRESS, count=NUMBER,  # the phases' records, and how many there are
    limits=ADDRESS,  # int64[count, 3], as `draftwood.engines.cpu.phases.Division.limits` returns it
    rows=NUMBER, scored_rows=NUMBER,
    tokens=ADDRESS, positions=ADDRESS,  # int32[rows]: ids, and places in the rotary table
    texts=ADDRESS,  # int64[rows]: the address of the addresses of the text's pages
    # Cells of a row's path: position p below its base is cell p; the others are listed in its tail (int32, its own
    # cell last). int64[rows]: bases; addresses of tails.
    bases=ADDRESS, tails=ADDRESS,
    cells=ADDRESS, lengths=ADDRESS,  # int64[rows]: the row's own cell; tokens of its path, itself included
    # int64[units, 4]: first row, rows, chunk, end of the cells that they see. Rows of a unit are of one text and
    # base.
    units=ADDRESS,
    # int64[rows, 2]. A row has one part (result of attention) per chunk, side by side: the first one's number, and
    # how many.
    folds=ADDRESS,
    scored=ADDRESS, scores=ADDRESS,  # int64[scored_rows], numbers of rows; float32[scored_rows, vocabulary]
    best=ADDRESS,  # `BEST` records [pieces of the scores, scored rows]
    choices=ADDRESS,  # int64[scored_rows]: best tokens
    # int64[rows, BEFORE, 2]: where the inputs one, two and three tokens before a row lie: address in the first
    # layer, bytes to the next layer. int64[rows]: where the row's own inputs are kept; 0: nowhere.
    before=ADDRESS, kept=ADDRESS,
    # int64[texts, 4]: addresses of the states that a text has, and of those that it gets; address and number of
    # the steps over its rows, int64[steps, 4]: see `draftwood.engines.cpu.walk`.
    walks=ADDRESS,
)  # fmt: skip
"""The record of a pass."""


class View:
    """A record in the code: its fields by name, each read once, where the function begins."""

    def __init__(self, code: Code, record: Place, layout: Layout) -> None:
        self._code, self.record, self._layout = code, record, layout
        self._read: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._read:
            with self._code.at_entry():
                self._read[name] = self._layout.fields[name].read(self.record, self._layout[name])
        return self._read[name]


class Per(IntEnum):
    """What the number of a phase's pieces depends on.

    ROWS, SCORED: rows, scored rows; TILES: of a matrix; UNITS: of attention; ONE: once; EXPERTS: chosen ones;
    WALKS: texts with states.
    """

    ROWS, SCORED, TILES, UNITS, ONE, EXPERTS, WALKS = range(7)


class PieceCode(NamedTuple):
    """What a kernel's code is written with: the function, the records of pass and phase, the piece's number."""

    code: Code
    whole: View
    phase: View
    number: Value

    @property
    def per(self) -> Value:
        """Rows or tiles of a piece."""
        return self.phase.record.i64[1]

    @contextmanager
    def rows(self, among: str = "rows") -> Iterator[Value]:
        """Write a loop over the rows of a piece; ``among`` is the field that says how many rows there are."""
        first = self.number * self.per
        with self.code.count(first, (first + self.per).least(getattr(self.whole, among))) as row:
            yield row


def inputs_before(piece: PieceCode, row: Value) -> list[Place]:
    """Return where the inputs of the `BEFORE` tokens before a row lie in the phase's ``layer``, last one first."""
    before, layer = piece.whole.before + row * (16 * BEFORE), piece.phase.layer
    return [(before.i64[2 * i] + before.i64[2 * i + 1] * layer).place() for i in range(BEFORE)]


Write = Callable[[PieceCode], None]


@dataclass(frozen=True, eq=False)
class PhaseKernel:
    """A function of a pass: its name, what its pieces depend on, and the fields that it reads."""

    name: str
    module: KernelModule
    per: Per
    layout: Layout

    def slots(self, given: Mapping[str, Any]) -> list[int]:
        """Return the slots of a phase after the first two; raises `TypeError` unless each field is given once."""
        fields = self.layout.fields
        if given.keys() != fields.keys():
            wrong = sorted(given.keys() ^ fields.keys())
            raise TypeError(f"the kernel {self.name} reads {sorted(fields)}: {wrong} are missing or unknown")
        return [slot for name, one in fields.items() for slot in one.written(given[name])]


Writer = Callable[[ir.Module, Instructions], None]
"""Writes functions into a module, for an instruction set."""


@dataclass(frozen=True, eq=False)
class KernelModule:
    """Functions that are compiled together, named ``cpu-NAME`` on disk."""

    name: str
    writers: list[Writer] = field(default_factory=list)

    def kernel(self, name: str, per: Per, write: Write, **fields: Field) -> PhaseKernel:
        """Return a new kernel of this module, whose code is written by ``write``."""
        made = PhaseKernel(name, self, per, Layout(_HEAD, **fields))
        assert made.layout.slots <= SLOTS

        def writer(module: ir.Module, instructions: Instructions) -> None:
            code, (whole, phase, number) = function(module, name, PIECE, instructions)
            write(PieceCode(code, View(code, whole, PASS), View(code, phase, made.layout), number))
            code.ret_void()

        self.writers.append(writer)
        return made

    def also(self, *writers: Writer) -> None:
        """Compile these in the same module; kernels that are added after them may call them."""
        self.writers.extend(writers)
