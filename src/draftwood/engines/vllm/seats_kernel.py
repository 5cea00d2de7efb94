"""Finds what each row of a batch goes on with, and records what was read. Importing this loads kernels."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.ngram.chains_kernel import BEGIN, END, OWN, ROOM, ROW, SEAT, SHARED
from draftwood.index.compiling import TABLE, compiled, inner

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

_LONGS = "Array(int64, 1, 'C', readonly=True)"


@inner
def _continues(ids: Ints, row: int, end: int, seat: int, lengths: Longs, known: tuple[Ints, Ints]) -> bool:
    """Whether a row, with a text of ``end`` tokens, continues the text of a seat."""
    heads, tails = known
    size = heads.shape[1]
    same, first = 0 < lengths[seat] < end, lengths[seat] - size
    if same:
        for i in range(size):
            same &= tails[seat, i] < 0 or ids[row, max(0, first + i)] == tails[seat, i]
            same &= heads[seat, i] < 0 or ids[row, i] == heads[seat, i]
    return same


@compiled(f"i8({TABLE}, i8, i8, {_LONGS}, UniTuple({TABLE}, 2), {_LONGS})")
def search(ids: Ints, row: int, end: int, lengths: Longs, known: tuple[Ints, Ints], claimed: Longs) -> int:
    """Return the seat of the longest text that a row continues, -1 if there is none; the first of equals.

    ``claimed`` int64[rows] are seats that other rows have; the other arguments are those of `match`.
    """
    best = -1
    for seat in range(len(lengths)):
        if best >= 0 and lengths[seat] <= lengths[best]:
            continue
        if _continues(ids, row, end, seat, lengths, known) and not (claimed == seat).any():
            best = seat
    return best


@compiled(
    f"UniTuple(i8, 3)({TABLE}, {_LONGS}, {_LONGS}, UniTuple(i8, 2), {_LONGS}, {_LONGS}, UniTuple({TABLE}, 2), "
    "i8[::1], i8[:,::1])"
)
def match(
    ids: Ints, ends: Longs, new: Longs, bounds: tuple[int, int], lengths: Longs, addresses: Longs,
    known: tuple[Ints, Ints], seats: Longs, work: Longs,
) -> tuple[int, int, int]:  # fmt: skip
    """Keep the seats of rows that continue their texts, and write what to do for them.

    Parameters
    ----------
    ids : int32[.., ..], ends : int64[rows]
        The texts, and how long they are.
    new : int64[rows]
        Tokens that were written in this step; rows with none get no seat.
    bounds
        Most tokens of a draft, and of a text.
    lengths, addresses : int64[seats]
        How much of each seat's text is known, 0 for a free seat; where its index is.
    known : int32[seats, n], int32[seats, n]
        First and last tokens of it, -1 where it is shorter.
    seats : int64[rows]
        A seat per row, or a negative number; -1 is written where the row does not continue the seat's text.
    work : int64[rows, 7]
        Written: what to do, see `draftwood.drafters.ngram.chains.Chains.grow`.

    Returns
    -------
    int, int, int
        Lines of ``work``, written rows without a seat, and rows of which more is unread than was written.
    """
    made, lost, jumped = 0, 0, 0
    for row in range(len(seats)):
        seat, end = seats[row], ends[row]
        if not (new[row] > 0 and seat >= 0 and _continues(ids, row, end, seat, lengths, known)):
            seats[row] = -1
            lost += new[row] > 0
            continue
        jumped += end - lengths[seat] != new[row]
        work[made, OWN], work[made, SHARED] = addresses[seat], 0
        work[made, ROW], work[made, SEAT] = row, seat
        work[made, BEGIN], work[made, END] = lengths[seat], end
        work[made, ROOM] = min(bounds[0], bounds[1] - 1 - end)
        made += 1
    return made, lost, jumped


@compiled(f"void({TABLE}, i8[:,::1], i8, i8[::1], i8[::1], UniTuple(i4[:,::1], 2))")
def record(ids: Ints, work: Longs, step: int, lengths: Longs, seen: Longs, known: tuple[Ints, Ints]) -> None:
    """Write what is known of the texts in ``work``, up to its column `END`; and the step in which it was seen."""
    heads, tails = known
    size = heads.shape[1]
    for i in range(len(work)):
        seat, row, end = work[i, SEAT], work[i, ROW], work[i, END]
        for k in range(size):
            at = end - size + k
            tails[seat, k] = ids[row, at] if at >= 0 else -1
            if lengths[seat] == 0:
                heads[seat, k] = ids[row, k] if k < end else -1
        lengths[seat], seen[seat] = end, step
