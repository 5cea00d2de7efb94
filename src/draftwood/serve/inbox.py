"""Texts that clients ask for, and their queue until the model has room: bounded, first come first served."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition
from time import perf_counter

from draftwood.decoding.request import Emission, Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError


class QueueFullError(DraftwoodError):
    """The queue is full, or the server is being stopped."""


@dataclass(eq=False)
class ServedText:
    """One text, from its request to its last token; made by a client's request, written by the worker.

    ``deliver`` is called with each emission, after the ``watchers``; the last one has a ``finish``. The worker's
    thread calls them; for a text that is cancelled in the queue, the thread that cancels. Times: `perf_counter`.
    """

    request: Request
    deliver: Callable[[Emission], None]
    namespace: str = ""  # whose text it is: what is kept of it is not used for others
    arrived: float = field(default_factory=perf_counter)
    begun: float | None = None  # when the worker took it up
    has_ended: bool = False
    is_cancelled: bool = False  # its client has gone
    cached: int = 0  # tokens of the prompt that the model had read before
    sequence: ActiveSequence | None = field(default=None, repr=False)  # once the worker has taken it up
    leave: Callable[[ServedText], None] | None = field(default=None, repr=False)  # takes it out of the queue
    watchers: Sequence[Callable[[ServedText, Emission], None]] = field(default=(), repr=False)

    def cancel(self) -> None:
        """Let the text end before the next pass; any thread may call it."""
        self.is_cancelled = True
        if self.sequence is not None:
            self.sequence.cancel()
        elif self.leave is not None:
            self.leave(self)

    def end(self, finish: str, error: Exception | None = None) -> None:
        """Tell the client that nothing more comes, and why."""
        if not self.has_ended:
            self.tell(Emission(0, (), (), None, finish, error))

    def tell(self, emission: Emission) -> None:
        """Pass an emission to the watchers and the client."""
        self.has_ended = self.has_ended or emission.finish is not None
        for watcher in self.watchers:
            watcher(self, emission)
        self.deliver(emission)


class Inbox:
    """The queue of texts that a running `decode_sequences` fetches as its `Arrivals`; any thread may put some in.

    ``begin`` makes a sequence of a text, in the thread that fetches; None where it has ended the text instead.
    """

    def __init__(
        self, most_waiting: int, most_running: int, begin: Callable[[ServedText], ActiveSequence | None]
    ) -> None:
        self._most_waiting, self._most_running, self._begin = most_waiting, most_running, begin
        self._texts, self._changed, self._is_open = deque[ServedText](), Condition(), True
        self.running = 0  # texts that were fetched and have not ended

    @property
    def waiting(self) -> int:
        return len(self._texts)

    def put(self, texts: Sequence[ServedText]) -> None:
        """Queue all of these, or none: raises `QueueFullError` where there is no room for all."""
        with self._changed:
            if not self._is_open:
                raise QueueFullError("this server is being stopped: ask another one")
            if len(self._texts) + len(texts) > self._most_waiting + self._most_running - self.running:
                raise QueueFullError(
                    f"{self.running} requests are being answered and {len(self._texts)} wait: try again later"
                )
            self._texts.extend(texts)
            for text in texts:
                text.leave = self._drop
            self._changed.notify()

    def _drop(self, text: ServedText) -> None:
        """Take a text out of the queue whose client has gone."""
        with self._changed:
            if text not in self._texts:
                return
            self._texts.remove(text)
        text.end("cancelled")

    def left(self) -> None:
        """Note that a running text has ended."""
        with self._changed:
            self.running -= 1

    def stop(self) -> None:
        """Take no more requests; those in the queue are still served."""
        with self._changed:
            self._is_open = False
            self._changed.notify()

    def fetch(self, *, idle: bool) -> Sequence[ActiveSequence] | None:
        """As `draftwood.decoding.arrivals.Arrivals.fetch`."""
        while True:
            texts: list[ServedText] = []
            with self._changed:
                while idle and not self._texts and self._is_open:
                    self._changed.wait()
                while self._texts and self.running < self._most_running:
                    texts.append(self._texts.popleft())
                    self.running += 1
                if not self._is_open and not texts and not self._texts:
                    return None
            found = []
            for text in texts:
                if (sequence := self._begin(text)) is None:
                    self.left()
                else:
                    found.append(sequence)
            if found or not idle:
                return found
