"""The phases of a model's pass, as the records that compiled code reads, and the buffers that they use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.cells import PAGE, TOKENS
from draftwood.engines.cpu.code.kernels import Kernels
from draftwood.engines.cpu.code.records import CHUNK, PART_HEAD, SLOTS, UNIT_ROWS, WIDEST, Later, Per, PhaseKernel
from draftwood.engines.cpu.code.rounding import GROUP_RECORD
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.phases import Division, Phase
from draftwood.engines.files.formats import GROUP, padded
from draftwood.engines.files.rotary import query_growth, rotary_table
from draftwood.engines.files.shapes import Shape

Vector = NDArray[np.float32]
Buffer = NDArray[Any]
"""Rows: float32, padded to a multiple of 32, or uint8 records of rounded inputs."""

_PARTS_BYTES = 64 << 20  # most of the parts of attention while a prompt is read
_ROW_NUMBERS = 1024  # numbers that a piece of rows reads


def floats(width: int, rows: int = WIDEST) -> Buffer:
    """Return zeros for rows of so many numbers, each row padded to a multiple of 32."""
    return np.zeros((rows, padded(width)), dtype=np.float32)


def records(width: int, rows: int = WIDEST) -> Buffer:
    """Return room for rows of so many rounded numbers."""
    return np.zeros((rows, padded(width) // GROUP * GROUP_RECORD), dtype=np.uint8)


class Inputs(NamedTuple):
    """What matrices read: rows of float32, and the same rounded."""

    plain: Buffer
    rounded: Buffer

    def of(self, matrix: Matrix) -> Buffer:
        """Return those that the products of a matrix take."""
        return self.rounded if matrix.is_rounded else self.plain

    def records_for(self, matrix: Matrix) -> Buffer | None:
        """Return the rounded rows if the products of a matrix take them."""
        return self.rounded if matrix.is_rounded else None


class Program:
    """A model's phases, and the buffers that they use; one pass at a time runs on it, of at most `WIDEST` rows.

    Blocks add phases by `add`; `finish` makes the ``record`` int64[phases, SLOTS] that compiled code reads. ``x``
    are the rows that blocks add to, ``plain`` and ``rounded`` their norms, which matrices read. ``factors`` divide
    the frequencies of rotary positions; a row of scores has ``score_width`` numbers, the vocabulary padded to
    whole tiles; ``pieces`` are those of the scores, and ``vocabulary`` the tokens that may be read.
    """

    def __init__(self, shape: Shape, kernels: Kernels, factors: Vector | None, score_width: int) -> None:
        self.shape, self._kernels, self._factors, self.score_width = shape, kernels, factors, score_width
        self.pieces = self.vocabulary = 0
        self._cells = dict[int, int]()  # where the keys of a layer of attention lie in a page
        self.cell_bytes = 0  # of a page: the cells of the layers that have taken theirs so far
        self.runs = list[list[int]]()  # of layers with cells of one size: see `code.cells`
        self._part_numbers = max(one.heads * (one.head_room + PART_HEAD) for one in shape.sizes)
        self.convolutions = 0  # layers that have added theirs so far
        self.x, self.plain, self.rounded = floats(shape.width), floats(shape.width), records(shape.width)
        self.slot_rows = WIDEST * max(1, shape.used)  # rows of a gated unit: one per row and chosen expert
        self._buffers: dict[tuple[str, int], Buffer] = {}
        self._phases: list[Phase] = []
        self._slots: list[list[int]] = []
        self._layer: int | None = None  # the layer to which phases are being added
        self._given: list[dict[str, Any]] = []  # keeps what phases have the addresses of
        # Of each array that comes later: the phases that read it, the slot of its address, and how many slots.
        self._later: dict[Later, list[tuple[int, int, int]]] = {}
        self._states: dict[int, Later] = {}
        self.parts, self._part_size = Later(), 0
        self.tables = {local: Later() for local in (False, True)}  # of rotary positions: see `reserve`
        self.growth = Later()  # of queries, by position
        self.positions = 0
        self._alive: dict[Later, Buffer] = {}
        self.fetch: Callable[[NDArray[np.int32]], None] | None = None  # called before a pass, with its tokens

    # --- while it is made ----------------------------------------------------------------------------------------

    def shared(
        self, name: str, width: int, rows: int = WIDEST, make: Callable[[int, int], Buffer] = floats
    ) -> Buffer:
        """Return the buffer that all blocks share which name it so; ``make`` is `floats` or `records`."""
        key = name, width
        if key not in self._buffers:
            self._buffers[key] = make(width, rows)
        return self._buffers[key]

    def shared_inputs(self, name: str, width: int, rows: int = WIDEST) -> Inputs:
        """Return a buffer of float32 and one of their records, as `shared`."""
        return Inputs(self.shared(name, width, rows), self.shared(f"{name} rounded", width, rows, records))

    @contextmanager
    def layer(self, number: int) -> Iterator[None]:
        """Add the phases of a layer, which passes may leave out."""
        self._layer = number
        yield
        self._layer = None

    def add(
        self, kernel: PhaseKernel, *, row: int = 0, pieces: int = 1, per_piece: int = 0, joined: bool = False,
        ends: bool = False, only: Hashable = None, **fields: Any,
    ) -> None:  # fmt: skip
        """Add a phase: a kernel, and all ``fields`` that it reads.

        ``row``: numbers of a row, for kernels per row. Other kernels have ``pieces``, per unit or expert if they
        depend on these. ``per_piece`` is how many tiles a piece takes. The rest is as of `Phase`.
        """
        if kernel.per in (Per.ROWS, Per.SCORED):
            pieces = per_piece = max(1, _ROW_NUMBERS // row)
        layout = kernel.layout
        for name, value in fields.items():
            if isinstance(value, Later):
                slots = layout[name], layout.fields[name].slots
                self._later.setdefault(value, []).append((len(self._phases), *slots))
        self._given.append(fields)
        self._slots.append([self._kernels[kernel], per_piece, *kernel.slots(fields)])
        self._phases.append(Phase(kernel.per, pieces, joined, ends, only, self._layer))

    def take_cells(self, layer: int) -> int:
        """Return where the keys that a layer of attention reads lie in a page, in bytes from its beginning."""
        sizes = self.shape.sizes[layer]
        if sizes.source not in self._cells:
            self._cells[sizes.source] = self.cell_bytes
            if not self.runs or self.runs[-1][2] != sizes.head_room:
                self.runs.append([self.cell_bytes, 0, sizes.head_room])
            self.runs[-1][1] += sizes.kv_heads
            self.cell_bytes += sizes.cell_bytes * PAGE
        return self._cells[sizes.source]

    def take_inputs(self) -> int:
        """Return the number of a layer among those with a convolution."""
        self.convolutions += 1
        return self.convolutions - 1

    @property
    def inputs(self) -> Buffer:
        """The inputs of a layer's convolution, a row per row of the pass."""
        return self.shared("inputs of convolutions", self.shape.convolved)

    @property
    def page_bytes(self) -> int:
        """Bytes of a page: the cells of all layers of attention, then what `recent` keeps at its end."""
        ends = 0 if self.shape.states.heads else 4 * TOKENS * self.convolutions * self.shape.width
        return self.cell_bytes + ends

    def finish(self) -> None:
        """Make the records of all phases."""
        self.record = np.zeros((len(self._slots), SLOTS), dtype=np.int64)
        for place, slots in zip(self.record, self._slots, strict=True):
            place[: len(slots)] = slots
        shape = self.shape
        self.limits = lru_cache(256)(partial(_limits, Division(self._phases, shape.experts, shape.used)))
        self.reserve(parts=256, positions=2048)

    # --- while it runs -------------------------------------------------------------------------------------------

    def most_rows(self, positions: int) -> int:
        """Return how many rows of a prompt a pass reads, so that its parts of attention take little memory."""
        row = 4 * self._part_numbers * -(-positions // CHUNK)
        return max(UNIT_ROWS, min(WIDEST, _PARTS_BYTES // row))

    def _place(self, later: Later, array: Buffer) -> None:
        """Let the phases read this array."""
        address_and_stride = array.ctypes.data, array.strides[0]
        for phase, slot, slots in self._later.get(later, ()):
            self.record[phase, slot : slot + slots] = address_and_stride[:slots]
        self._alive[later] = array

    def reserve(self, parts: int, positions: int) -> None:
        """Make room for so many parts of attention, and for rotary positions up to so many."""
        size = parts * self._part_numbers
        # An interrupt may come between any two lines: sizes are set last, and are 0 while anything is written.
        if self._part_size < size:
            self._part_size = 0
            self._place(self.parts, np.zeros(size + size // 2, dtype=np.float32))
            self._part_size = size + size // 2
        if self.positions < positions:
            count = max(positions, min(2 * self.positions, self.shape.max_positions))
            tables = {
                self.tables[local]: rotary_table(self.shape, self._factors, local, count) for local in self.tables
            }
            tables[self.growth] = query_growth(self.shape, count)
            self.positions = 0
            for later, table in tables.items():
                self._place(later, table)
            self.positions = count

    def states_of(self, layer: int) -> Later:
        """Return the place where passes asked for this layer leave its input."""
        self._states[layer] = Later()
        return self._states[layer]

    def states(self, layer: int) -> NDArray[np.float32]:
        """Return what the last pass that was asked for this layer left there: float32[WIDEST, width]."""
        later = self._states[layer]
        if later not in self._alive:
            self._place(later, floats(self.shape.width))
        return self._alive[later][:, : self.shape.width]


def _limits(division: Division, *size: Any) -> tuple[NDArray[np.int64], int]:
    """Return the limits of a pass of this size, and their address."""
    found = division.limits(*size)
    return found, found.ctypes.data
