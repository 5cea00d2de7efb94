"""The phases that a program is made of, and which of them a pass runs."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.cpu.code.records import Per

Asked = tuple[Hashable, ...]


class Phase(NamedTuple):
    """How a phase is divided, and in which passes it runs."""

    per: Per
    number: int  # rows of a piece; of other kinds pieces in all, or per unit, expert or walk
    joined: bool = False  # it need not wait for the phase before it
    ends: bool = False  # it belongs to the scores, which not every pass computes
    only: Hashable = None  # it runs only in passes that are asked for this; None: in all
    layer: int | None = None  # it belongs to this layer, and does not run in passes `Without` it


class Without(NamedTuple):
    """Asks a pass to leave a layer out."""

    layer: int


class Division:
    """The phases of a program, in order; ``experts`` and ``used``: how many a layer has, and a row takes.

    Columns of numbers: a pass of a new size comes in most steps of a short answer, and a loop over 400 phases
    takes as long as a third of a small model's pass.
    """

    def __init__(self, phases: Sequence[Phase], experts: int, used: int) -> None:
        self._experts, self._used = experts, used
        self._kinds = np.array([phase.per for phase in phases])
        self._numbers = np.array([phase.number for phase in phases], dtype=np.int64)
        self._divides = np.isin(self._kinds, (Per.ROWS, Per.SCORED))
        self._waits = np.array([not phase.joined for phase in phases])
        self._layers = np.array([-1 if phase.layer is None else phase.layer for phase in phases])
        self._unscored = next((i for i, phase in enumerate(phases) if phase.ends), len(phases))
        self._only: dict[Hashable, list[int]] = {}  # the places of optional phases
        for i, phase in enumerate(phases):
            if phase.only is not None:
                self._only.setdefault(phase.only, []).append(i)

    def limits(self, rows: int, scored: int, units: int, asked: Asked = (), walks: int = 0) -> NDArray[np.int64]:
        """Return of each phase its first piece, its pieces, and how many must be done before it: int64[phases, 3].

        ``asked``: `Phase.only` of optional phases to run, and `Without` for each layer to leave out.
        """
        times = np.ones(len(Per), dtype=np.int64)
        times[Per.ROWS], times[Per.SCORED], times[Per.UNITS], times[Per.WALKS] = rows, scored, units, walks
        times[Per.EXPERTS] = min(self._experts, rows * self._used)
        each = times[self._kinds]
        pieces = np.where(self._divides, -(-each // self._numbers), each * self._numbers)
        for only, places in self._only.items():
            if only not in asked:
                pieces[places] = 0
        for one in asked:
            if isinstance(one, Without):
                pieces[self._layers == one.layer] = 0
        count = len(pieces) if scored else self._unscored
        found = np.empty((count, 3), dtype=np.int64)
        found[:, 1] = pieces[:count]
        found[:, 0] = np.cumsum(found[:, 1]) - found[:, 1]
        found[:, 2] = np.maximum.accumulate(np.where(self._waits[:count], found[:, 0], 0))
        return found
