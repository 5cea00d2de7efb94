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


def limits(
    phases: Sequence[Phase],
    experts: int,
    used: int,
    rows: int,
    scored: int,
    units: int,
    asked: Asked = (),
    walks: int = 0,
) -> NDArray[np.int64]:
    """Return of each phase its first piece, its pieces, and how many must be done before it: int64[phases, 3].

    ``asked``: `Phase.only` of optional phases to run, and `Without` for each layer to leave out.
    """
    times = {
        Per.ROWS: rows, Per.SCORED: scored, Per.UNITS: units, Per.EXPERTS: min(experts, rows * used),
        Per.WALKS: walks,
    }  # fmt: skip
    found, first, opens = [], 0, 0
    for phase in phases:
        if phase.ends and not scored:
            break
        left_out = phase.layer is not None and Without(phase.layer) in asked
        if left_out or (phase.only is not None and phase.only not in asked):
            pieces = 0
        elif phase.per in (Per.ROWS, Per.SCORED):
            pieces = -(-times[phase.per] // phase.number)
        else:
            pieces = times.get(phase.per, 1) * phase.number
        opens = opens if phase.joined else first
        found.append((first, pieces, opens))
        first += pieces
    return np.array(found, dtype=np.int64)
