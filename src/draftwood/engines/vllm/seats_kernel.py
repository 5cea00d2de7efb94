"""Compares rows of a batch with the texts of their seats, and records what was read. Loads kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.index.compiling import TABLE, compiled

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LONGS = "Array(int64, 1, 'C', readonly=True)"
_BOOLS = "Array(bool, 1, 'C', readonly=True)"


@compiled(f"i8({TABLE}, {_LONGS}, {_BOOLS}, {_LONGS}, {_BOOLS}, {TABLE}, {TABLE}, i8[::1])")
def keep_continued(
    ids: Ints, ends: Longs, active: Bools, lengths: Longs, taken: Bools, heads: Ints, tails: Ints, seats: Longs
) -> int:
    """Set the seat of rows that do not continue its text to -1; returns how many active rows have none.

    Parameters
    ----------
    ids : int32[.., ..], ends : int64[rows]
        The texts, and how long they are.
    active : bool[rows]
        Rows in which something was written; others get no seat.
    lengths : int64[seats], taken : bool[seats]
        How much of each seat's text is known; whether it has one.
    heads, tails : int32[seats, n]
        First and last tokens of it, -1 where it is shorter.
    seats : int64[rows]
        A seat per row, or a negative number.
    """
    size, lost = heads.shape[1], 0
    for row in range(len(seats)):
        seat = seats[row]
        same = active[row] and seat >= 0 and taken[seat] and lengths[seat] < ends[row]
        if same:
            first = lengths[seat] - size
            for i in range(size):
                same &= tails[seat, i] < 0 or ids[row, max(0, first + i)] == tails[seat, i]
                same &= heads[seat, i] < 0 or ids[row, i] == heads[seat, i]
        if not same:
            seats[row] = -1
            lost += active[row]
    return lost


@compiled(f"void({TABLE}, {_LONGS}, {_LONGS}, {_LONGS}, i8[::1], i4[:,::1], i4[:,::1])")
def record(ids: Ints, seats: Longs, rows: Longs, ends: Longs, lengths: Longs, heads: Ints, tails: Ints) -> None:
    """Write ``lengths``, ``heads`` and ``tails`` of these seats, whose texts stand in these rows of ``ids``."""
    size = heads.shape[1]
    for i in range(len(seats)):
        seat, row, end = seats[i], rows[i], ends[i]
        for k in range(size):
            at = end - size + k
            tails[seat, k] = ids[row, at] if at >= 0 else -1
            if lengths[seat] == 0:
                heads[seat, k] = ids[row, k] if k < end else -1
        lengths[seat] = end
