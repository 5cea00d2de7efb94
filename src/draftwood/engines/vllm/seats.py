"""Which request each row of vLLM's batch belongs to. vLLM does not say: requests are told apart by tokens.

Each request that we follow has a *seat*: a place in the arrays here and in those of its chains. Rows move between
two steps, requests leave and come back, and steps may pass without our being asked. A row continues the request of
a seat if the seat's text is shorter, and stands in the row with its last tokens at the same place. A wrong match
would cost acceptance, never the text: vLLM checks each draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.vllm.seats_kernel import keep_continued, record

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bools = NDArray[np.bool_]

FINGERPRINT = 8  # tokens that are compared, at the beginning of a text and at its end
NOBODY, LATER = -1, -2  # instead of a seat: the request is new; it will be looked for in a later step
_SEARCHES = 8  # rows of one step for which all seats are looked through

_BACK = np.arange(-FINGERPRINT, 0)


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
        self._heads = np.zeros((seats, FINGERPRINT), dtype=np.int32)
        self._tails = np.zeros((seats, FINGERPRINT), dtype=np.int32)  # -1 before the beginning of a short text
        self._of_row = np.full(rows, NOBODY, dtype=np.int64)
        self._names: dict[str, int] = {}  # seats of requests whose names are known

    def find(
        self, ids: Ints, ends: Longs, active: Bools, step: int = 0, names: Sequence[str] | None = None
    ) -> Longs:
        """Return the seat of each row, `NOBODY` for rows of new requests and for those that are not active.

        Of many rows that are not where they were some are looked for in later steps: `LATER`.

        Parameters
        ----------
        ids : int32[.., ..]
            The texts by row.
        ends : int64[rows]
            Their lengths, the new tokens included.
        active : bool[rows]
            Rows in which something was written; the others are still being read.
        names
            Names of the requests by row, where they are known.
        """
        rows = len(ends)
        seats = self._of_row[:rows].copy()
        if names is not None:
            seats[:] = [self._names.get(name, NOBODY) for name in names]
        lost = keep_continued(
            ids, ends, active, self.lengths, self.taken, self._heads, self._tails, seats
        )  # rows without a seat
        if lost and names is None:
            apart = np.flatnonzero(active & (seats < 0)).tolist()
            first = step % len(apart)  # not always the same ones, where some never get a seat
            for number, row in enumerate(apart[first:] + apart[:first]):
                seats[row] = self._search(ids, row, int(ends[row]), seats) if number < _SEARCHES else LATER
        self._of_row[:] = NOBODY
        self._of_row[:rows] = seats
        return seats

    def _continued(self, ids: Ints, rows: Longs, ends: Longs, seats: Longs) -> Bools:
        """Whether each row continues the text of its seat."""
        lengths = self.lengths[seats]
        at, heads = lengths[:, None] + _BACK, self._heads[seats]
        same = (ids[rows[:, None], np.maximum(at, 0)] == self._tails[seats]) | (at < 0)
        alike = (ids[rows, :FINGERPRINT] == heads) | (heads < 0)
        found: Bools = same.all(axis=1) & alike.all(axis=1) & (lengths < ends) & self.taken[seats]
        return found

    def _search(self, ids: Ints, row: int, end: int, claimed: Longs) -> int:
        """Return the seat of the longest text, not claimed by another row, that this row continues."""
        possible = self.taken & (self.lengths < end)
        possible[claimed[claimed >= 0]] = False
        seats = np.flatnonzero(possible)
        seats = seats[self._continued(ids, np.full(len(seats), row), np.full(len(seats), end), seats)]
        return int(seats[self.lengths[seats].argmax()]) if len(seats) else NOBODY

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

    def settle(self, seats: Longs, rows: Longs, lengths: Longs, ids: Ints, step: int) -> None:
        """Record how much of the texts in these rows was read."""
        self.seen[seats] = step
        record(ids, seats, rows, lengths, self.lengths, self._heads, self._tails)

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
