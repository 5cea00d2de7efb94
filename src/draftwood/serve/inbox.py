"""Texts that clients wait for, and where they wait until the model has room: bounded, in the order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Condition
from time import perf_counter

from draftwood.decoding.request import Emission, Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError


class QueueFullError(DraftwoodError):
    """As many requests wait as are allowed to."""


@dataclass(eq=False)
class Job:
    """One text, from its request to its last token; made by a client's request, written by the worker.

    ``deliver`` is called by the worker's thread with each emission; the last one has a ``finish``. Times are by
    `time.perf_counter`, None before they come.
    """

    request: Request
    deliver: Callable[[Emission], None]
    namespace: str = ""  # whose text it is: nothing of it is of use to others
    arrived: float = field(default_factory=perf_counter)
    begun: float | None = None  # when the worker took it up
    first: float | None = None  # when its first token came
    ended: float | None = None
    is_cancelled: bool = False  # its client has gone
    cached: int = 0  # tokens of the prompt that the model had read before
    written: int = 0
    passes: int = 0  # after the prompt
    drafted: int = 0  # draft nodes that these passes scored
    accepted: int = 0
    trace_headers: Mapping[str, str] = field(default_factory=dict, repr=False)  # which trace the request is of
    sequence: ActiveSequence | None = field(default=None, repr=False)  # the text, once the worker has taken it up
    leave: Callable[[Job], None] | None = field(
        default=None, repr=False
    )  # called if its client goes while it waits
    watchers: Sequence[Callable[[Job, Emission], None]] = field(
        default=(), repr=False
    )  # told before the client is

    def cancel(self) -> None:
        """Let the text end before the next pass; any thread may call it."""
        self.is_cancelled = True
        if self.sequence is not None:
            self.sequence.cancel()
        elif self.leave is not None:
            self.leave(self)

    def end(self, finish: str, error: Exception | None = None) -> None:
        """Tell the client that nothing more comes, and why."""
        if self.ended is None:
            self.tell(Emission(0, (), (), None, finish, error))

    def tell(self, emission: Emission) -> None:
        """Hand on what was written, or why nothing more comes."""
        if emission.tokens and self.first is None:
            self.first = perf_counter()
        self.written += len(emission.tokens)
        if (step := emission.step) is not None:
            self.passes, self.drafted = self.passes + 1, self.drafted + step.drafted
            self.accepted += step.accepted
        if emission.finish is not None:
            self.ended = perf_counter()
        for watcher in self.watchers:
            watcher(self, emission)
        self.deliver(emission)


class Inbox:
    """Hands jobs to a running `decode_sequences` as its `Arrivals`; any thread may put jobs in.

    ``begin`` makes a sequence of a job, in the thread that fetches; None for a job that has ended instead.
    """

    def __init__(
        self, most_waiting: int, most_running: int, begin: Callable[[Job], ActiveSequence | None]
    ) -> None:
        self._most_waiting, self._most_running, self._begin = most_waiting, most_running, begin
        self._jobs: deque[Job] = deque()
        self._changed = Condition()
        self._is_open = True
        self.running = 0  # jobs that are read and written

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return len(self._jobs)

    def put(self, jobs: Sequence[Job]) -> None:
        """Let all of these wait, or none: raises `QueueFullError` where there is no room for them."""
        with self._changed:
            if not self._is_open:
                raise QueueFullError("this server is being stopped: ask another one")
            if len(self._jobs) + len(jobs) > self._most_waiting + self._most_running - self.running:
                raise QueueFullError(
                    f"{self.running} requests are being answered and {len(self._jobs)} wait: try again later"
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
            self.running -= 1

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
            while self._jobs and self.running < self._most_running:
                jobs.append(self._jobs.popleft())
                self.running += 1
            return jobs, not self._is_open and not jobs and not self._jobs
