"""The one thread that runs a model: it takes texts from the inbox and writes them, many in each pass."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from itertools import count
from threading import Thread
from time import perf_counter

from draftwood.api.setup import Setup
from draftwood.decoding.arrivals import check_request
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Emission
from draftwood.decoding.sequence import ActiveSequence
from draftwood.drafters.memory.memory import Memory
from draftwood.planning.base import TreePlanner
from draftwood.planning.policies.backoff_and_load import LoadLimit
from draftwood.serve.errors import failure
from draftwood.serve.inbox import Inbox, ServedText
from draftwood.serve.prefixes import Prefixes
from draftwood.serve.stored_prefixes import StoredPrefixes

_WHOLE = ("eos", "stop", "length", "cancelled")
"""Finish reasons after which the model's cache of the text is intact."""

_LAST = 3.0
"""Seconds for the pass after which the texts end when a server is stopped."""

_FLUSH = 10.0
"""Seconds in which what was read of the last texts is written to disk."""

log = logging.getLogger("draftwood")


class Worker:
    """Writes texts with one model; ``prefix_bytes`` is memory for what was read of ended texts, ``stored`` keeps
    it on disk, too.

    The ``watchers`` are called by the worker's thread with each text and emission, before its client gets it;
    they must be quick and not fail.
    """

    def __init__(
        self, setup: Setup, most_running: int, most_waiting: int, prefix_bytes: int = 0,
        stored: StoredPrefixes | None = None,
    ) -> None:  # fmt: skip
        self._setup, self._numbers, self.stored = setup, count(), stored
        self._prefixes, self._prefix_bytes = Prefixes(setup.target, prefix_bytes), prefix_bytes
        self.watchers: list[Callable[[ServedText, Emission], None]] = []
        self._texts: dict[int, ServedText] = {}  # by the number of their sequence
        self._is_cut = False
        self.inbox = Inbox(most_waiting, most_running, self._begin)
        for policy in setup.planner.policies if isinstance(setup.planner, TreePlanner) else ():
            if isinstance(policy, LoadLimit):
                policy.queue = lambda: self.inbox.waiting
        self._thread = Thread(target=self._run, name="draftwood-worker", daemon=True)

    def start(self) -> None:
        self._prefixes = Prefixes(self._setup.target, self._prefix_bytes)  # of the model as it is now
        if self.stored is not None:
            self.stored.start()
        self._thread.start()

    def warm_up(self) -> None:
        """Write a few tokens without a request, so that no client waits until kernels are loaded.

        They are in no metric and no memory; the prompt repeats itself, so that drafters find something.
        """
        ids = [token % self._setup.target.capabilities.vocab_size for token in (5, 6, 7, 8)] * 4
        own = [drafter.detached(lambda _: Memory()) for drafter in self._setup.drafters]  # no file learns from it
        request = self._setup.request(ids, max_new_tokens=6, temperature=0.7, stop=[], drafters=own)
        self.inbox.put([ServedText(request, lambda _: None, secrets.token_hex())])

    def submit(self, texts: Sequence[ServedText]) -> None:
        """Queue texts to be written; any thread may call it.

        Raises `QueueFullError` where there is no room for all of them, and `PromptError`, `UsageError` or
        `CapabilityError` for a request that this model cannot serve.
        """
        for text in texts:
            text.watchers = self.watchers
            check_request(text.request, self._setup.target)
        self.inbox.put(texts)

    def fetch(self, texts: Sequence[ServedText]) -> None:
        """Read from disk what is stored of the prompts of texts that will be submitted; any thread may call it."""
        if self.stored is None:
            return
        gained = dict[int, int]()  # by the prompt's object, which choices of a request share
        for text in texts:
            request = text.request
            if request.shown is None:
                if id(request.prompt) not in gained:
                    found = self.stored.fetch(text.namespace, request.prompt, self._prefixes)
                    gained[id(request.prompt)] = found
                text.stored = gained[id(request.prompt)]

    def stop(self, seconds: float) -> None:
        """Take no more requests; what is not finished within so many seconds ends then, as `cut` says."""
        self.inbox.stop()
        self._thread.join(0 if self._is_cut else seconds)
        if self._thread.is_alive():
            self.cut()
            self._thread.join(_LAST)
        if self.stored is not None:
            self.stored.stop(_FLUSH)

    def cut(self) -> None:
        """End all texts before the next pass: as a time limit does, or with an error if they have no token."""
        self.inbox.stop()
        self._is_cut = True
        for text in list(self._texts.values()):
            text.cancel("length")

    def _begin(self, text: ServedText) -> ActiveSequence | None:
        if text.is_cancelled:
            text.end("cancelled")
            return None
        text.begun, number, setup, request = perf_counter(), next(self._numbers), self._setup, text.request
        try:
            text.sequence = ActiveSequence(number, request, setup.target, setup.drafters, setup.rule)
            if request.shown is None:  # else all of the prompt is read
                known = self._prefixes.begin(text.namespace, request.prompt, request.limit)
                if known is not None:
                    text.sequence.resume(*known)
                    text.cached = known[0].length
            text.stored = min(text.stored, text.cached)
        except Exception as error:  # whatever a drafter or a processor raises: this text fails, and no other
            text.end("error", error)
            return None
        self._texts[number] = text
        if text.is_cancelled or self._is_cut:  # meanwhile: `cancel` had no sequence to cancel
            text.sequence.cancel()
        return text.sequence

    def _run(self) -> None:
        """Write until the inbox is closed and empty; if the model fails, only the texts under way are lost."""
        while True:
            try:
                for emission in decode_sequences(self._setup.target, self._setup.planner, self.inbox):
                    if emission.finish is None:
                        self._texts[emission.row].tell(emission)
                    else:
                        self._close(emission.row, emission)
                return
            except Exception as error:
                said = failure(error, "the model failed in the middle of this text")
                for number, text in list(self._texts.items()):
                    text.end("error", said)
                    self._close(number)
                self._prefixes.clear()

    def _close(self, number: int, last: Emission | None = None) -> None:
        """Forget a text and pass on its ``last`` emission; of an intact one keep what the model has read."""
        text = self._texts.pop(number)
        self.inbox.left()  # before the client knows, so that there is room if it asks again at once
        try:
            if last is not None:
                text.tell(last)
            if last and last.finish in _WHOLE and not text.is_passing:
                self._keep(text)
        finally:
            if text.sequence is not None:
                text.sequence.close()

    def _keep(self, text: ServedText) -> None:
        """Keep what the model has read of a text; where that fails, nothing of any."""
        try:
            if text.sequence is not None and text.sequence.is_open:
                prefix = self._prefixes.keep(text.namespace, text.sequence)
                if prefix is not None and self.stored is not None:
                    self.stored.put(text.namespace, prefix)
        except Exception:
            log.exception("what was read of a text could not be kept: long prompts are read again")
            self._prefixes.clear()
