"""Slots of a mixture: a row and one of the experts it chose is the slot ``row * used + rank``.

Slots are ordered by expert, and the inputs are copied into that order, so that a product takes the slots of an
expert as its rows and reads its weights once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from draftwood.engines.cpu.code.records import ADDRESS, NUMBER, ROWS, KernelModule, Per, PhaseKernel, PieceCode
from draftwood.engines.cpu.packing import Matrix
from draftwood.engines.cpu.program import Buffer, Inputs, Program

_LINE = 64


def _grouped(piece: PieceCode) -> None:
    """Write the slots ordered by expert, those of one expert by row."""
    code, phase = piece.code, piece.phase
    slots, counts = piece.whole.rows * phase.used, phase.counts.i64
    with code.count(0, slots) as slot:
        expert = phase.chosen.i64[slot]
        counts[expert] = counts[expert] + 1
    number, first = code.variable(code.whole(0)), code.variable(code.whole(0))
    with code.count(0, phase.experts) as expert:
        count, start = counts[expert], first.now
        with code.when(count > 0):
            group = (number.now + 1) * 3
            for at, value in enumerate((expert, start, count)):
                phase.groups.i64[group + at] = value
            counts[expert] = start
            number.now = number.now + 1
            first.now = start + count
    phase.groups.i64[0] = number.now
    with code.count(0, slots) as slot:
        expert = phase.chosen.i64[slot]
        place = counts[expert]
        phase.places.i64[slot] = place
        counts[expert] = place + 1
    with code.count(0, slots) as slot:
        counts[phase.chosen.i64[slot]] = code.whole(0)


def _gathered(piece: PieceCode) -> None:
    phase = piece.phase
    with piece.rows() as row, piece.code.count(0, phase.used) as rank:
        target = phase.out[phase.places.i64[row * phase.used + rank]]
        with piece.code.count(0, phase.out.stride, _LINE) as at:
            (target + at).i32x16[0] = (phase.x[row] + at).i32x16[0]


MODULE = KernelModule("slots")
_GROUPED = MODULE.kernel(
    "experts_grouped", Per.ONE, _grouped, chosen=ADDRESS, used=NUMBER, experts=NUMBER, places=ADDRESS,
    groups=ADDRESS, counts=ADDRESS,
)  # fmt: skip
"""``places`` int64[slots]: each slot's place in the order by expert. ``groups`` int64[1 + experts, 3]: first the
number of groups; then of each its expert, first place, places. ``counts`` int64[experts]: zeros
before and after the kernel."""
_GATHERED = MODULE.kernel("experts_gathered", Per.ROWS, _gathered, x=ROWS, out=ROWS, places=ADDRESS, used=NUMBER)
"""Rows of x to the places of their slots in out."""


class Slots(NamedTuple):
    """The ``fields`` that several phases of a mixture read; all layers share the arrays."""

    fields: dict[str, Any]

    def of(self, kernel: PhaseKernel) -> dict[str, Any]:
        """Return those of the fields that a kernel reads."""
        return {name: value for name, value in self.fields.items() if name in kernel.layout.fields}

    def add_order(self, program: Program, inputs: Inputs, readers: Sequence[Matrix]) -> Inputs:
        """Add phases that order the slots, and copy what the readers read of rows; return the copies."""
        program.add(_GROUPED, **self.of(_GROUPED))
        width = program.shape.expert_width
        ordered = program.shared_inputs("slots", width, program.slot_rows)
        # Readers may read different inputs, rounded or not; each kind is gathered once.
        kinds = {matrix.is_rounded: matrix for matrix in readers}
        for is_rounded in sorted(kinds):
            matrix = kinds[is_rounded]
            program.add(
                _GATHERED, row=width, x=inputs.of(matrix), out=ordered.of(matrix), **self.of(_GATHERED),
                joined=is_rounded and len(kinds) > 1,
            )  # fmt: skip
        return ordered


def slots_of(program: Program) -> Slots:
    """Return the slots of a program."""
    shape, slots = program.shape, program.slot_rows
    return Slots(
        {
            "experts": shape.experts, "used": shape.used, "chosen": program.shared("chosen", 1, slots, _whole),
            "places": program.shared("places", 1, slots, _whole), "shares": program.shared("shares", slots, 1),
            "groups": program.shared("groups", 3, 1 + shape.experts, _whole),
            "counts": program.shared("counts", 1, shape.experts, _whole),
        }
    )  # fmt: skip


def _whole(width: int, rows: int) -> Buffer:
    """Return zeros int64[rows, width]."""
    return np.zeros((rows, width), dtype=np.int64)
