"""Policy ``load``: the more requests are running and waiting, the shorter their drafts."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Limit


class LoadLimit:
    """Limits drafts by the load, the number of requests that share the pass or wait.

    A single request has no limit; from two on the limit falls linearly from about ``most`` draft nodes per request
    to none at ``full`` requests. When the load falls, the higher value counts for ``dwell`` seconds more.
    ``queue`` returns at once how many requests wait and is called after each pass; by default none do.
    `UsageError` if a value is out of range.
    """

    name = "load"

    def __init__(
        self,
        full: int = 16,
        most: int = 8,
        dwell: float = 2.0,
        *,
        queue: Callable[[], int] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        if full < 1:
            raise UsageError(f"load: full is {full}: give the texts that are too many, at least 1")
        if most < 0:
            raise UsageError(f"load: most is {most}: use 0 draft nodes or more")
        if not 0 <= dwell < float("inf"):
            raise UsageError(f"load: dwell is {dwell}: give 0 seconds or more")
        self.full, self.most, self.dwell = full, most, dwell
        self._queue, self._clock = queue, clock
        self._rows = self._waiting = 0
        self._learnt = False  # whether one request of the pass was learnt from; the others tell nothing new
        self._peak, self._since = 0, 0.0

    def watch(self, queue: Callable[[], int]) -> None:
        """Ask this function from now on how many requests wait."""
        self._queue = queue

    def limit(self, state: State, rows: int, nodes: int) -> Limit:  # noqa: ARG002
        self._rows, self._learnt = rows, False
        load = max(self._peak, rows + self._waiting)
        if load <= 1 < self.full:
            return Limit(why=self._why())
        most = 0 if load >= self.full else self.most * (self.full - load) // (self.full - 1)
        return Limit(most, why=self._why())

    def learn(self, state: State) -> None:  # noqa: ARG002
        if self._learnt:
            return
        self._learnt = True
        self._waiting = self._wait()
        load, now = self._rows + self._waiting, self._clock()
        if load >= self._peak or not 0 <= now - self._since < self.dwell:
            self._peak, self._since = load, now

    def _why(self) -> str:
        said = f"{self._rows} running and {self._waiting} waiting"
        before = self._peak > self._rows + self._waiting
        return f"{said}, {self._peak} within the last {self.dwell:g} s" if before else said

    def _wait(self) -> int:
        try:
            return max(0, int(self._queue())) if self._queue is not None else 0
        except Exception:  # an error of the server's function must not end a text: no request waits
            return 0
