"""Requests until they are read, and their texts until the model has room: bounded, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition
from time import perf_counter
from typing import TypeVar

from draftwood.decoding.request import Emission, Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError, UsageError

Result = TypeVar("Result")
_LOOKS = 0.02
"""Seconds after which a request that waits for a place looks again."""


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
    is_passing: bool = False  # no other text will begin like it, so nothing of it is kept
    arrived: float = field(default_factory=perf_counter)
    begun: float | None = None  # when the worker took it up
    has_ended: bool = False
    is_cancelled: bool = False  # its client has gone
    cached: int = 0  # tokens of the prompt that the model had read before
    stored: int = 0  # of these: what was read from disk
    sequence: ActiveSequence | None = field(default=None, repr=False)  # once the worker has taken it up
    leave: Callable[[ServedText], None] | None = field(default=None, repr=False)  # takes it out of the queue
    watchers: Sequence[Callable[[ServedText, Emission], None]] = field(default=(), repr=False)

    def cancel(self, finish: str = "cancelled") -> None:
        """Let the text end before the next pass, with this ``finish`` if it has begun; any thread may call it."""
        self.is_cancelled = True
        if self.sequence is not None:
            self.sequence.cancel(finish)
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
        self._unread = 0  # places of requests that are being read

    @property
    def waiting(self) -> int:
        return len(self._texts) + self._unread

    @contextmanager
    def unread(self, texts: int, *, writes: bool = True) -> Iterator[None]:
        """Keep places for the texts of a request while it is read; one that ``writes`` none needs no place later.

        Raises `QueueFullError` where there is no room, `UsageError` for more texts than there ever is room for.
        """
        with self._changed:
            self._check_room(texts, len(self._texts) + self.running if writes else 0)
            self._unread += texts
        try:
            yield
        finally:
            with self._changed:
                self._unread -= texts

    def _check_room(self, texts: int, taken: int) -> None:
        most = self._most_waiting + self._most_running
        if not self._is_open:
            raise QueueFullError("this server is being stopped: ask another one")
        if texts > most:
            raise UsageError(f"{texts} texts are asked for at once, and this server takes {most}: ask for fewer")
        if taken + self._unread + texts > most:
            raise QueueFullError(
                f"{self.running} requests are being answered and {self.waiting} wait: try again later"
            )

    def put(self, texts: Sequence[ServedText]) -> None:
        """Queue all of these, or none: raises as `unread`."""
        with self._changed:
            self._check_room(len(texts), len(self._texts) + self.running)
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

    async def room(self) -> None:
        """Wait until there is a place in the queue, or the server is being stopped."""
        while self._is_open and self.waiting + self.running >= self._most_waiting + self._most_running:
            await asyncio.sleep(_LOOKS)

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


class Readers:
    """Threads that make texts of requests; these come to their turn one after another, in one event loop.

    A request whose task is cancelled while it waits is never read, and nothing of it is kept.
    """

    def __init__(self, threads: int) -> None:
        self._turns, self._threads = asyncio.Semaphore(threads), ThreadPoolExecutor(threads, "draftwood-reader")

    async def read(self, call: Callable[[], Result]) -> Result:
        """Return what the call returns, in a thread, whose turn lasts until the call ends, whoever has left."""
        await self._turns.acquire()
        loop, reading = asyncio.get_running_loop(), self._threads.submit(call)
        reading.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._turns.release))
        return await asyncio.wrap_future(reading)

    def stop(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
