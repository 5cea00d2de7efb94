"""The one thread that runs a model: it takes jobs from the inbox and writes them, many in each pass."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from itertools import count
from threading import Thread
from time import perf_counter

from draftwood.api.setup import Setup
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.opening import check_request
from draftwood.decoding.request import Emission
from draftwood.decoding.sequence import ActiveSequence
from draftwood.errors import DraftwoodError, UsageError
from draftwood.planning.base import TreePlanner
from draftwood.planning.policies.backoff_and_load import LoadLimit
from draftwood.serve.inbox import Inbox, Job
from draftwood.serve.prefixes import Prefixes

_WHOLE = frozenset({"eos", "stop", "length", "cancelled"})
"""Ends of texts after which the model's cache is as it should be."""

log = logging.getLogger("draftwood")


class Worker:
    """Writes jobs with one model; ``prefix_bytes`` is memory for what was read of ended texts.

    The ``watchers`` are called by the worker's thread with each job and emission, before the job's client gets it;
    they must be quick and not fail.
    """

    def __init__(self, setup: Setup, most_running: int, most_waiting: int, prefix_bytes: int = 0) -> None:
        self._setup, self._numbers, self._most = setup, count(), most_running + most_waiting
        self._prefixes, self._prefix_bytes = Prefixes(setup.target, prefix_bytes), prefix_bytes
        self.watchers: list[Callable[[Job, Emission], None]] = []
        self._jobs: dict[int, Job] = {}  # by the number of their sequence
        self.inbox = Inbox(most_waiting, most_running, self._begin)
        for policy in setup.planner.policies if isinstance(setup.planner, TreePlanner) else ():
            if isinstance(policy, LoadLimit):
                policy.queue = lambda: self.inbox.waiting
        self._thread = Thread(target=self._run, name="draftwood-worker", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._prefixes = Prefixes(self._setup.target, self._prefix_bytes)  # of the model as it is now
        self._thread.start()

    def warm_up(self) -> None:
        """Write a few tokens that nobody has asked for, so that no client waits until kernels are loaded.

        They are in no metric and no memory; the prompt repeats itself, so that drafters find something.
        """
        ids = [token % self._setup.target.capabilities.vocab_size for token in (5, 6, 7, 8)] * 4
        request = self._setup.request(ids, max_new_tokens=6, temperature=0.7, stop=[])
        self.inbox.put([Job(request, lambda _: None, secrets.token_hex())])

    def submit(self, jobs: Sequence[Job]) -> None:
        """Let jobs be written; any thread may call it.

        Raises `QueueFullError` where there is no room for all of them, and `PromptError`, `UsageError` or
        `CapabilityError` for a request that cannot be written.
        """
        if len(jobs) > self._most:
            raise UsageError(
                f"{len(jobs)} texts are asked for at once, and this server takes {self._most}: ask for fewer"
            )
        for job in jobs:
            job.watchers = self.watchers
            check_request(job.request, self._setup.target)
        self.inbox.put(jobs)

    def stop(self, seconds: float) -> None:
        """Let nobody in any more; texts that are not written within so many seconds are cancelled."""
        self.inbox.stop()
        self._thread.join(seconds)
        if self._thread.is_alive():
            for job in list(self._jobs.values()):
                job.cancel()
            self._thread.join(seconds)

    def _begin(self, job: Job) -> ActiveSequence | None:
        if job.is_cancelled:
            job.end("cancelled")
            return None
        job.begun, number, setup = perf_counter(), next(self._numbers), self._setup
        try:
            job.sequence = ActiveSequence(number, job.request, setup.target, setup.drafters, setup.rule)
            shown = job.request.shown is not None  # then all of the prompt is read, as its scores are asked for
            prompt, limit = job.request.prompt, job.request.limit
            known = None if shown else self._prefixes.begin(job.namespace, prompt, limit)
            if known is not None:
                job.sequence.resume(known.session, known.drafters)
                job.cached = known.session.length
        except Exception as error:  # whatever a drafter or a processor raises: this text fails, and no other
            job.end("error", error)
            return None
        self._jobs[number] = job
        if job.is_cancelled:  # since it was asked above, when there was no sequence yet
            job.sequence.cancel()
        return job.sequence

    def _run(self) -> None:
        """Write until the inbox is closed; where the model itself fails, only the texts under way are lost."""
        while True:
            try:
                for emission in decode_sequences(self._setup.target, self._setup.planner, self.inbox):
                    self._deliver(emission)
                return
            except Exception as error:
                log.exception("a pass of the model failed: the texts under way are lost")
                said = DraftwoodError(f"the model failed in the middle of this text ({error}): ask again")
                for number, job in list(self._jobs.items()):
                    job.end("error", said)
                    self._close(number)
                self._prefixes.clear()

    def _deliver(self, emission: Emission) -> None:
        job = self._jobs[emission.row]
        job.tell(emission)
        if emission.finish is not None:
            if emission.finish in _WHOLE:
                self._remember(job)
            self._close(emission.row)

    def _remember(self, job: Job) -> None:
        """Keep what the model has read of a text; where that fails, nothing is kept of any."""
        if job.sequence is None or not job.sequence.is_open:
            return
        try:
            self._prefixes.keep(job.namespace, job.sequence)
        except Exception:
            log.exception("what was read of a text could not be kept: long prompts are read again")
            self._prefixes.clear()

    def _close(self, number: int) -> None:
        job = self._jobs.pop(number)
        self.inbox.left()
        if job.sequence is not None:
            job.sequence.close()
