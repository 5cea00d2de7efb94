"""What the server has done, in numbers for Prometheus.

They have vLLM's names where vLLM has one (its documentation, "Production metrics" and "Speculative decoding").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from draftwood.decoding.request import Emission
from draftwood.serve.inbox import Inbox, ServedText
from draftwood.step import MODEL, Step

_POSITIONS = 32
"""Deeper draft nodes count for the last position."""
_FIRST = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)
_BETWEEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
FINISHES = {"eos": "stop", "stop": "stop", "length": "length", "cancelled": "abort"}
"""By how a text has ended, what vLLM calls it; others keep their name."""
_STAGES = ("draft", "plan", "score", "verify", "keep", "learn")


class Metrics:
    """Counts what a worker writes with these drafters; `note` watches each emission, as `Worker.watchers`.

    Every number has the model's name as a label.
    """

    def __init__(self, model: str, names: Sequence[str], inbox: Inbox) -> None:
        self._registry, self._names = CollectorRegistry(), names
        self._last: dict[int, float] = {}  # when a running text got its latest token, by the object's id

        # Each takes the values of its other labels and returns the number to be counted up.
        def many(name: str, help: str, *labels: str) -> Callable[..., Counter]:
            return partial(Counter(name, help, ["model_name", *labels], registry=self._registry).labels, model)

        def spread(name: str, help: str, buckets: Sequence[float] = _FIRST) -> Callable[[], Histogram]:
            found = Histogram(name, help, ["model_name"], registry=self._registry, buckets=buckets)
            return partial(found.labels, model)

        self._first_token = spread("vllm:time_to_first_token_seconds", "Wait for a first token")
        self._between = spread("vllm:inter_token_latency_seconds", "Seconds per later token", _BETWEEN)
        self._whole = spread("vllm:e2e_request_latency_seconds", "Seconds per text")
        self._queued = spread("vllm:request_queue_time_seconds", "Wait for room in the batch")
        self._prompt = many("vllm:prompt_tokens", "Tokens of prompts")
        self._queries = many("vllm:prefix_cache_queries", "Tokens of prompts, looked up among texts read before")
        self._hits = many("vllm:prefix_cache_hits", "Tokens of prompts that had been read before")
        self._from_disk = many("draftwood:prefix_cache_disk_hits", "Those of them that were read from disk")
        self._disk_bytes = many("draftwood:prefix_cache_disk_bytes", "Bytes of pages by what was done", "way")
        self._written = many("vllm:generation_tokens", "Tokens written")
        self._ended = many("vllm:request_success", "Texts by how they ended", "finished_reason")
        self._drafts = many("vllm:spec_decode_num_drafts", "Passes with drafts")
        self._drafted = many("vllm:spec_decode_num_draft_tokens", "Draft nodes that were scored")
        self._accepted = many("vllm:spec_decode_num_accepted_tokens", "Draft nodes accepted")
        by_depth = "vllm:spec_decode_num_accepted_tokens_per_pos"
        self._by_place = many(by_depth, "Draft nodes accepted by depth", "position")
        self._passes = many("draftwood:passes", "Passes, each text of a batch counted")
        self._by_source = many("draftwood:tokens", "Tokens written by who proposed them", "source")
        self._scored_of = many("draftwood:draft_tokens", "Draft nodes scored by drafter", "source")
        self._seconds = many("draftwood:seconds", "Seconds by stage; score is the pass", "stage")
        self._looped = many("draftwood:looped_texts", "Texts that only repeated themselves at their end")
        self._refused = many("draftwood:refused_requests", "Requests refused by status", "status")
        for name, help, read in (
            ("vllm:num_requests_running", "Texts being read or written", lambda: inbox.running),
            ("vllm:num_requests_waiting", "Texts that wait for room", lambda: inbox.waiting),
        ):
            Gauge(name, help, ["model_name"], registry=self._registry).labels(model).set_function(read)

    def note(self, job: ServedText, emission: Emission) -> None:
        now = perf_counter()
        if emission.tokens:
            self._note_tokens(job, emission, now)
        if emission.step is not None:
            self._note_step(emission.step)
        if emission.finish is not None:
            self._last.pop(id(job), None)
            self._whole().observe(now - job.arrived)
            self._ended(FINISHES.get(emission.finish, emission.finish)).inc()

    def _note_tokens(self, job: ServedText, emission: Emission, now: float) -> None:
        count = len(emission.tokens)
        last = self._last.get(id(job))
        if last is None:
            self._first_token().observe(now - job.arrived)
            self._queued().observe((job.begun or now) - job.arrived)
            self._prompt().inc(len(job.request.prompt))
            self._queries().inc(len(job.request.prompt))
            self._hits().inc(job.cached)
            self._from_disk().inc(job.stored)
        else:
            for _ in emission.tokens:
                self._between().observe((now - last) / count)
        self._last[id(job)] = now
        self._written().inc(count)
        for source in emission.sources:
            self._by_source("model" if source == MODEL else self._names[source]).inc()

    def _note_step(self, step: Step) -> None:
        self._passes().inc()
        for stage in _STAGES:
            self._seconds(stage).inc(getattr(step, f"{stage}_s"))
        if not step.drafted:
            return
        self._drafts().inc()
        self._drafted().inc(step.drafted)
        self._accepted().inc(step.accepted)
        for depth in range(step.accepted):
            self._by_place(str(min(depth, _POSITIONS - 1))).inc()
        for name, source in zip(self._names, step.by_source, strict=False):
            if source.kept:
                self._scored_of(name).inc(source.kept)

    def note_disk(self, way: str, size: int) -> None:
        """Count bytes of prefixes that were "read" or "written"."""
        self._disk_bytes(way).inc(size)

    def note_loop(self) -> None:
        """Count a text that only repeated itself at its end."""
        self._looped().inc()

    def refused(self, status: int) -> None:
        self._refused(str(status)).inc()

    def text(self) -> bytes:
        return generate_latest(self._registry)
