"""Which request each row of vLLM's batch belongs to. vLLM does not say: requests are told apart by tokens.

Each request that we follow has a *seat*. Rows move between two steps, requests leave and come back, and steps may
pass without our being asked. A row continues the request of a seat if the seat's text is shorter, and its first
and last tokens stand at the same places in the row. A wrong match would cost acceptance, never the text: vLLM
checks each draft.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints, Positions

FINGERPRINT = 8  # tokens that are compared, at the beginning of a text and at its end
NOBODY, LATER = -1, -2  # instead of a seat: the request is new; it will be looked for in a later step
_SEARCHES = 8  # rows of one step for which all seats are looked through
_PLACES = np.arange(FINGERPRINT)


class Seats:
    """Seats for so many requests, and which seat each of so many rows has.

    ``lengths`` int64[seats] are the tokens read of each text, 0 for a free seat; ``taken`` bool[seats] says
    whether a request has the seat; ``of_row`` int64[rows] is the seat of each row in the last step, or negative.
    """

    def __init__(self, seats: int, rows: int) -> None:
        self.lengths = np.zeros(seats, dtype=np.int64)
        self.taken = np.zeros(seats, dtype=np.bool_)
        self.of_row = np.full(rows, NOBODY, dtype=np.int64)
        self._seen = np.zeros(seats, dtype=np.int64)  # the step in which its request was last in the batch
        self._heads = np.full((seats, FINGERPRINT), -1, dtype=np.int32)  # first tokens, -1 where it is shorter
        self._tails = self._heads.copy()  # last ones
        self._names: dict[str, int] = {}  # seats of requests whose names are known

    def match(
        self, ids: Ints, ends: Positions, new: Positions, step: int, names: Sequence[str] | None = None
    ) -> Positions:
        """Return the seat of each row, or `NOBODY` or `LATER`.

        ``ids`` int32[.., ..] are the texts, ``ends`` int64[rows] their lengths, ``new`` int64[rows] the tokens
        that were written in this step; rows with none get no seat. ``step`` is its number: of many rows that are
        not where they were only some are looked for in each. ``names`` are those of the requests by row, where
        they are known; then no text is searched for.
        """
        rows = np.arange(len(ends))
        seats = self.of_row[: len(rows)].copy()
        if names is not None:
            seats[:] = [self._names.get(name, NOBODY) for name in names]
        seats[~((new > 0) & (seats >= 0) & self._continues(ids, rows, ends, seats))] = NOBODY
        if names is None:
            lost = np.flatnonzero((new > 0) & (seats < 0)).tolist()
            first = step % max(1, len(lost))  # not always the same ones, where some never get a seat
            for number, row in enumerate(lost[first:] + lost[:first]):
                seats[row] = self._search(ids, row, int(ends[row]), seats) if number < _SEARCHES else LATER
        self.of_row[:] = NOBODY
        self.of_row[: len(seats)] = seats
        return seats

    def _continues(self, ids: Ints, rows: Positions, ends: Positions, seats: Positions) -> NDArray[np.bool_]:
        """Return whether each row, with a text of so many tokens, continues the text of a seat, bool[n]."""
        lengths, heads, tails = self.lengths[seats], self._heads[seats], self._tails[seats]
        places = (lengths[:, None] - FINGERPRINT + _PLACES).clip(0, ids.shape[1] - 1)
        same = ((ids[rows[:, None], places] == tails) | (tails < 0)).all(axis=1)
        same &= ((ids[rows, :FINGERPRINT] == heads[:, : ids.shape[1]]) | (heads[:, : ids.shape[1]] < 0)).all(
            axis=1
        )
        found: NDArray[np.bool_] = same & (lengths > 0) & (lengths < ends)
        return found

    def _search(self, ids: Ints, row: int, end: int, claimed: Positions) -> int:
        """Return the seat of the longest text that a row continues and no other has; `NOBODY` if there is none."""
        free = self.taken.copy()
        free[claimed[claimed >= 0]] = False
        seats = np.flatnonzero(free)
        rows, ends = np.full(len(seats), row), np.full(len(seats), end)
        seats = seats[self._continues(ids, rows, ends, seats)]
        return int(seats[self.lengths[seats].argmax()]) if len(seats) else NOBODY

    def take(self, row: int, name: str = "") -> int:
        """Give a free seat to the new request in this row; `NOBODY` if there is none."""
        free = np.flatnonzero(~self.taken)
        if not len(free):
            return NOBODY
        seat = int(free[0])
        self.taken[seat], self.lengths[seat], self.of_row[row] = True, 0, seat
        if name:
            self._names[name] = seat
        return seat

    def settle(self, rows: Positions, seats: Positions, ends: Positions, ids: Ints, step: int) -> None:
        """Record that the texts in these rows were read to their ends."""
        places = ends[:, None] - FINGERPRINT + _PLACES
        self._tails[seats] = np.where(places >= 0, ids[rows[:, None], places.clip(0)], -1)
        fresh = self.lengths[seats] == 0
        rows, ends, first = rows[fresh], ends[fresh], _PLACES[: ids.shape[1]]
        self._heads[seats[fresh]] = -1
        self._heads[seats[fresh, None], first] = np.where(first < ends[:, None], ids[rows[:, None], first], -1)
        self.lengths[seats], self._seen[seats] = places[:, -1] + 1, step

    def free(self, seat: int) -> None:
        """Take the seat from its request."""
        self.taken[seat], self.lengths[seat] = False, 0
        self.of_row[self.of_row == seat] = NOBODY
        self._names = {name: its for name, its in self._names.items() if its != seat}

    def parked(self, step: int) -> list[int]:
        """Return the taken seats whose requests were not in the batch in this step, those away longest first."""
        away = np.flatnonzero(self.taken & (self._seen < step))
        found: list[int] = away[self._seen[away].argsort(kind="stable")].tolist()
        return found
