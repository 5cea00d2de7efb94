"""One text that a client waits for: from its request to its last token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from draftwood.decoding.request import Emission, Request
from draftwood.decoding.sequence import ActiveSequence

Deliver = Callable[[Emission], None]
"""Called by the worker's thread with each emission of a job; the last one has a ``finish``."""


@dataclass(eq=False)
class Job:
    """One text; made by a client's request, written by the worker.

    Attributes
    ----------
    request
        What to write.
    deliver
        Gets what is written.
    namespace
        Whose text it is: nothing of it is of use to others.
    arrived, begun, ended
        When it was made, when the worker took it up, and when it ended, by `time.perf_counter`; None before that.
    is_cancelled
        Whether its client has gone.
    first
        When its first token came.
    cached
        Tokens of the prompt that the model had read before.
    written, passes, drafted, accepted
        Tokens so far, passes behind the prompt, draft nodes that these scored, and how many were accepted.
    trace_headers
        Of the client's request, those that say to which trace it belongs.
    sequence
        The text itself, once the worker has taken it up.
    leave
        Called where its client goes while it waits.
    watchers
        Told of each emission before the client is.
    """

    request: Request
    deliver: Deliver
    namespace: str = ""
    arrived: float = field(default_factory=perf_counter)
    begun: float | None = None
    ended: float | None = None
    first: float | None = None
    is_cancelled: bool = False
    cached: int = 0
    written: int = 0
    passes: int = 0
    drafted: int = 0
    accepted: int = 0
    trace_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    sequence: ActiveSequence | None = field(default=None, repr=False)
    leave: Callable[[Job], None] | None = field(default=None, repr=False)
    watchers: Sequence[Callable[[Job, Emission], None]] = field(default=(), repr=False)

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
