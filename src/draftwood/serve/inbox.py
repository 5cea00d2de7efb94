"""Where jobs wait until the model has room for them; bounded, and in the order of their arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition

from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError
from draftwood.serve.job import Job


class QueueFullError(DraftwoodError):
    """As many requests wait as are allowed to."""


class Inbox:
    """Hands jobs to a running `decode_sequences` as its `Arrivals`; any thread may put jobs in.

    Parameters
    ----------
    most_waiting
        Jobs that may wait, besides those for which there is room at once.
    most_running
        Jobs that may be read and written at a time.
    begin
        Makes a sequence of a job, in the thread that fetches; None for a job that has ended instead.
    """

    def __init__(
        self, most_waiting: int, most_running: int, begin: Callable[[Job], ActiveSequence | None]
    ) -> None:
        self._most_waiting, self._most_running, self._begin = most_waiting, most_running, begin
        self._jobs: deque[Job] = deque()
        self._changed = Condition()
        self._running = 0
        self._is_open = True

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._jobs)

    @property
    def running(self) -> int:
        """Jobs that are read and written."""
        return self._running

    def put(self, jobs: Sequence[Job]) -> None:
        """Let all of these wait, or none: raises `QueueFullError` where there is no room for them."""
        with self._changed:
            if not self._is_open:
                raise QueueFullError("this server is being stopped: ask another one")
            room = self._most_waiting + self._most_running - self._running
            if len(self._jobs) + len(jobs) > room:
                raise QueueFullError(
                    f"{self._running} requests are being answered and {len(self._jobs)} wait: try again later"
                )
            self._jobs.extend(jobs)
            for job in jobs:
                job.leave = self._drop
            self._changed.notify()

    def _drop(self, job: Job) -> None:
        """Give up the place of a job whose client has gone while it waited."""
        with self._changed:
            waits = job in self._jobs
            if waits:
                self._jobs.remove(job)
        if waits:
            job.end("cancelled")

    def left(self) -> None:
        """Note that a running job has ended."""
        with self._changed:
            self._running -= 1

    def stop(self) -> None:
        """Let nobody in any more; those that wait are still served."""
        with self._changed:
            self._is_open = False
            self._changed.notify()

    def fetch(self, *, idle: bool) -> Sequence[ActiveSequence] | None:
        """As `draftwood.decoding.arrivals.Arrivals.fetch`."""
        while True:
            jobs, is_over = self._next(idle)
            if is_over:
                return None
            found = []
            for job in jobs:
                sequence = self._begin(job)
                if sequence is None:
                    self.left()
                else:
                    found.append(sequence)
            if found or not idle:
                return found

    def _next(self, idle: bool) -> tuple[list[Job], bool]:
        """Return jobs for which there is room, and whether none will ever come; waits for some where ``idle``."""
        with self._changed:
            while idle and not self._jobs and self._is_open:
                self._changed.wait()
            jobs: list[Job] = []
            while self._jobs and self._running < self._most_running:
                jobs.append(self._jobs.popleft())
                self._running += 1
            return jobs, not self._is_open and not jobs and not self._jobs
