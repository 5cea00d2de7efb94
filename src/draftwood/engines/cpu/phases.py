"""The phases that a program is made of, and which of them a pass runs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.attention import WIDEST
from draftwood.engines.cpu.code.products import GROUP_RECORD
from draftwood.engines.files.formats import GROUP
from draftwood.engines.files.shapes import Shape

Asked = tuple[Hashable, ...]


class Per(IntEnum):
    """What the number of a phase's pieces depends on."""

    ROWS, SCORED, TILES, UNITS, ONE, EXPERTS = range(6)


class Phase(NamedTuple):
    """One phase while a program is made."""

    slots: dict[str, int]
    pieces: Per
    per: int  # rows of a piece; else pieces, in all or of each unit or expert
    joined: bool = False  # it need not wait for the phase before it
    ends: bool = False  # it belongs to the scores, which not every pass computes
    only: Hashable = None  # it runs only in passes that are asked for this; None: in all
    layer: int | None = None  # it belongs to this layer, and does not run in passes `Without` it


class Without(NamedTuple):
    """Asks a pass to leave a layer out."""

    layer: int


def limits(
    phases: Sequence[Phase], experts: int, used: int, rows: int, scored: int, units: int, asked: Asked = ()
) -> NDArray[np.int64]:
    """Return of each phase its first piece, its pieces, and how many must be done before it: int64[phases, 3].

    ``asked`` has the `Phase.only` of phases that run in this pass but not in all, such as layers whose states are
    kept, and `Without` each layer that is left out.
    """
    times = {Per.ROWS: rows, Per.SCORED: scored, Per.UNITS: units, Per.EXPERTS: min(experts, rows * used)}
    found, first, opens = [], 0, 0
    for phase in phases:
        if phase.ends and not scored:
            break
        left_out = phase.layer is not None and Without(phase.layer) in asked
        if left_out or (phase.only is not None and phase.only not in asked):
            pieces = 0
        elif phase.pieces in (Per.ROWS, Per.SCORED):
            pieces = -(-times[phase.pieces] // phase.per)
        else:
            pieces = times.get(phase.pieces, 1) * phase.per
        opens = opens if phase.joined else first
        found.append((first, pieces, opens))
        first += pieces
    return np.array(found, dtype=np.int64)


class Buffer(NamedTuple):
    """Rows of float32, or of records of rounded inputs."""

    array: NDArray[Any]

    @property
    def address(self) -> int:
        return int(self.array.ctypes.data)

    def slots(self, name: str) -> dict[str, int]:
        """Return the slots of a phase that reads it, or writes to it, as ``x``, ``y`` or ``out``."""
        return {name: self.address, f"{name}_stride": self.stride}

    @property
    def stride(self) -> int:
        return int(self.array.strides[0])

    def behind(self, width: int) -> Buffer:
        """Return what follows the first ``width`` numbers of each row; ``width`` is a multiple of 32."""
        return Buffer(self.array[:, width if self.array.itemsize == 4 else width // GROUP * GROUP_RECORD :])


def floats(width: int, rows: int = WIDEST) -> Buffer:
    """Return zeros for rows of so many numbers, each row padded to a multiple of 32."""
    return Buffer(np.zeros((rows, -(-width // GROUP) * GROUP), dtype=np.float32))


def records(width: int, rows: int = WIDEST) -> Buffer:
    """Return room for rows of so many rounded numbers."""
    return Buffer(np.zeros((rows, -(-width // GROUP) * GROUP_RECORD), dtype=np.uint8))


class MixtureBuffers:
    """Buffers of a mixture of experts, which all layers share; its phases read ``slots``.

    ``scores`` has each row's scores of the experts; ``plain`` and ``rounded`` have the inputs of slots, and
    ``outputs`` their results, ordered by expert.
    """

    def __init__(self, shape: Shape) -> None:
        count = WIDEST * shape.used
        self.scores = floats(shape.experts)
        self.plain, self.rounded = floats(shape.width, count), records(shape.width, count)
        self.outputs = floats(shape.width, count)
        self._chosen, self._places = (np.zeros(count, dtype=np.int64) for _ in range(2))
        self._shares = np.zeros(count, dtype=np.float32)
        self._groups = np.zeros((1 + shape.experts, 3), dtype=np.int64)
        self._counts = np.zeros(shape.experts, dtype=np.int64)
        self.slots = {
            "experts": shape.experts, "used": shape.used, "chosen": self._chosen.ctypes.data,
            "shares": self._shares.ctypes.data, "places": self._places.ctypes.data,
            "groups": self._groups.ctypes.data, "counts": self._counts.ctypes.data,
        }  # fmt: skip
