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

from draftwood.drafters.ngram.chains_kernel import COLUMNS
from draftwood.engines.vllm.seats_kernel import match, record, search

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Bools = NDArray[np.bool_]

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
        goes on. The arguments are those of `draftwood.engines.vllm.seats_kernel.match`, and the names of the
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
