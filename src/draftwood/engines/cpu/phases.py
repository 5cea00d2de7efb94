"""One phase of a pass while its program is made, and what passes may be asked for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

Asked = tuple[Hashable, ...]
ROWS, SCORED, TILES, UNITS, ONE, EXPERTS = range(6)
"""What the number of a phase's pieces depends on."""


class Phase(NamedTuple):
    """One phase while a program is made."""

    slots: dict[str, int]
    pieces: int  # `ROWS` and so on
    per: int  # rows of a piece, or how many pieces there are, for each unit or expert
    joined: bool = False  # it may begin with the phase before it
    ends: bool = False  # it belongs to the scores, which not every pass computes
    only: Hashable = None  # it runs in passes alone that are asked for this; None: in all
    layer: int | None = None  # it belongs to this layer, and does not run in passes `Without` it


class Without(NamedTuple):
    """Asks a pass to leave a layer out."""

    layer: int
