"""Which request each row of vLLM's batch belongs to. vLLM does not say: requests are told apart by tokens.

Each request that we follow has a *seat*: a place in the arrays here and in those of its chains. Rows move between
two steps, requests leave and come back, and steps may pass without our being asked. A row continues the request of
a seat if the seat's text is shorter, and stands in the row with its last tokens at the same place. A wrong match
would cost acceptance, never the text: vLLM checks each draft. Importing this loads kernels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.vllm.chains_kernel import BEGIN, COLUMNS, END, OWN, ROOM, ROW, SEAT, SHARED
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
        Written: what to do, see `draftwood.engines.vllm.chains.Chains.grow`.

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


FINGERPRINT = 8  # tokens that are compared, at the beginning of a text and at its end
NOBODY, LATER = -1, -2  # instead of a seat: the request is new; it will be looked for in a later step
_SEARCHES = 8  # rows of one step for which all seats are looked through


class Seats:
    """Seats for so many requests, and which seat each of so many rows has.

    Attributes
    ----------
    lengths : int64[seats]
        Tokens of each text that were read.
    taken : bool[seats]
        Whether a request has the seat.
    seen : int64[seats]
        Number of the step in which the request was last in the batch.
    """

    def __init__(self, seats: int, rows: int) -> None:
        self.lengths = np.zeros(seats, dtype=np.int64)
        self.taken = np.zeros(seats, dtype=np.bool_)
        self.seen = np.zeros(seats, dtype=np.int64)
        heads = np.zeros((seats, FINGERPRINT), dtype=np.int32)
        self._known = heads, heads.copy()  # first and last tokens, -1 where a text is shorter
        self._of_row = np.full(rows, NOBODY, dtype=np.int64)
        self._names: dict[str, int] = {}  # seats of requests whose names are known

    def match(
        self, ids: Ints, ends: Longs, new: Longs, bounds: tuple[int, int], addresses: Longs,
        names: Sequence[str] | None = None,
    ) -> tuple[Longs, Longs, bool]:  # fmt: skip
        """Return the seat of each row, what to do for these rows, and whether that is all.

        It is not where rows are not where they were, or more of them is unread than was written: then `search`
        goes on. The arguments are those of `draftwood.engines.vllm.seats.match`, and the names of the
        requests by row, where they are known.
        """
        rows = len(ends)
        seats = self._of_row[:rows].copy()
        if names is not None:
            seats[:] = [self._names.get(name, NOBODY) for name in names]
        work = np.empty((rows, COLUMNS), dtype=np.int64)
        made, lost, jumped = match(ids, ends, new, bounds, self.lengths, addresses, self._known, seats, work)
        self._sit(seats)
        return seats, work[:made], not (lost or jumped)

    def search(self, ids: Ints, ends: Longs, new: Longs, seats: Longs, step: int) -> None:
        """Look for the seats of rows that were written and have none; the arguments are those of `match`.

        ``seats`` is changed. Of many rows some are looked for in later steps: `LATER`.
        """
        lost = np.flatnonzero((new > 0) & (seats < 0)).tolist()
        first = step % max(1, len(lost))  # not always the same ones, where some never get a seat
        for number, row in enumerate(lost[first:] + lost[:first]):
            looked_for = number < _SEARCHES
            seats[row] = search(ids, row, ends[row], self.lengths, self._known, seats) if looked_for else LATER
        self._sit(seats)

    def _sit(self, seats: Longs) -> None:
        self._of_row[:] = NOBODY
        self._of_row[: len(seats)] = seats

    def take(self, row: int, name: str | None = None) -> int:
        """Give a free seat to the new request in this row; `NOBODY` if there is none."""
        free = np.flatnonzero(~self.taken)
        if not len(free):
            return NOBODY
        seat = int(free[0])
        self.taken[seat], self.lengths[seat] = True, 0
        self._of_row[row] = seat
        if name is not None:
            self._names[name] = seat
        return seat

    def settle(self, work: Longs, ids: Ints, step: int) -> None:
        """Record that the texts in ``work`` were read up to its column `END`."""
        record(ids, work, step, self.lengths, self.seen, self._known)

    def free(self, seat: int) -> None:
        """Take the seat from its request."""
        self.taken[seat], self.lengths[seat] = False, 0
        self._of_row[self._of_row == seat] = NOBODY
        for name in [name for name, its in self._names.items() if its == seat]:
            del self._names[name]

    def parked(self, step: int) -> list[int]:
        """Return the taken seats whose requests were not in the batch in this step, those away longest first."""
        away = np.flatnonzero(self.taken & (self.seen < step))
        found: list[int] = away[self.seen[away].argsort(kind="stable")].tolist()
        return found

    def check_integrity(self) -> None:
        """Raise `AssertionError` if two rows share a seat, or a row has one that nobody took."""
        used = self._of_row[self._of_row >= 0]
        assert len(set(used.tolist())) == len(used), "two rows have one seat"
        assert self.taken[used].all(), "a row has a free seat"
