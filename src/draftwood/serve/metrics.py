"""What the server has done: numbers for Prometheus, and a span of each text for OpenTelemetry.

Numbers have vLLM's names where vLLM has one (its documentation, "Production metrics" and "Speculative decoding
metrics"). Attributes of spans have the names of OpenTelemetry's conventions for generative AI, else vLLM's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock
from time import perf_counter, time_ns
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from draftwood.decoding.request import Emission
from draftwood.errors import UsageError
from draftwood.planning.base import TreePlanner
from draftwood.serve.inbox import Inbox, Job
from draftwood.step import MODEL, Step

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables, one of which switches traces on; the exporter reads them, and all others of its own."""
_POSITIONS = 32
"""Deeper draft nodes count for the last position."""
_CONTEXT, _TOKENS = 512, (1, 2, 4, 8, 16, 32, 64)
"""For which contexts and passes costs are told: later tokens are dearer, by attention."""
_FIRST = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120)
_BETWEEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2)
_STAGES = ("draft", "plan", "score", "verify", "keep", "learn")


class Metrics:
    """Counts what a worker writes with these drafters; told of each emission by the worker's thread.

    Every number has the model's name as a label; the planner knows what passes cost.
    """

    def __init__(self, model: str, names: Sequence[str], inbox: Inbox, planner: Any) -> None:
        self._registry, self._model, self._names = CollectorRegistry(), model, names
        self._last: dict[int, float] = {}  # when a running job got its last token, by the object's id
        self._lock = Lock()
        first, between, many = self._histogram(_FIRST), self._histogram(_BETWEEN), self._counter
        self._first_token = first("vllm:time_to_first_token_seconds", "Wait for a first token")
        self._between = between("vllm:inter_token_latency_seconds", "Seconds per later token")
        self._whole = first("vllm:e2e_request_latency_seconds", "Seconds per text")
        self._queued = first("vllm:request_queue_time_seconds", "Wait for room in the batch")
        self._prompt = many("vllm:prompt_tokens", "Tokens of prompts")
        self._queries = many("vllm:prefix_cache_queries", "Tokens of prompts, looked up among texts read before")
        self._hits = many("vllm:prefix_cache_hits", "Tokens of prompts that had been read before")
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
        self._refused = many("draftwood:refused_requests", "Requests refused by status", "status")
        for name, help, read in (
            ("vllm:num_requests_running", "Texts being read or written", lambda: inbox.running),
            ("vllm:num_requests_waiting", "Texts that wait for room", lambda: inbox.waiting),
        ):
            gauge = Gauge(name, help, ["model_name"], registry=self._registry)
            gauge.labels(model).set_function(read)
        self._registry.register(_BelievedCosts(model, planner))

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(name, help, ["model_name", *labels], registry=self._registry)

    def _histogram(self, buckets: Sequence[float]) -> Any:
        def made(name: str, help: str) -> Histogram:
            return Histogram(name, help, ["model_name"], registry=self._registry, buckets=buckets)

        return made

    def note(self, job: Job, emission: Emission) -> None:
        """Count what a job has gained, or that it has ended."""
        now, model = perf_counter(), self._model
        if emission.tokens:
            self._note_tokens(job, emission, now)
        if emission.step is not None:
            self._note_step(emission.step)
        if emission.finish is not None:
            self._last.pop(id(job), None)
            self._whole.labels(model).observe(now - job.arrived)
            self._ended.labels(model, emission.finish).inc()

    def _note_tokens(self, job: Job, emission: Emission, now: float) -> None:
        model, count = self._model, len(emission.tokens)
        last = self._last.get(id(job))
        if last is None:
            self._first_token.labels(model).observe(now - job.arrived)
            self._queued.labels(model).observe((job.begun or now) - job.arrived)
            self._prompt.labels(model).inc(len(job.request.prompt))
            self._queries.labels(model).inc(len(job.request.prompt))
            self._hits.labels(model).inc(job.cached)
        else:
            for _ in emission.tokens:
                self._between.labels(model).observe((now - last) / count)
        self._last[id(job)] = now
        self._written.labels(model).inc(count)
        for source in emission.sources:
            self._by_source.labels(model, "model" if source == MODEL else self._names[source]).inc()

    def _note_step(self, step: Step) -> None:
        model = self._model
        self._passes.labels(model).inc()
        for stage in _STAGES:
            self._seconds.labels(model, stage).inc(getattr(step, f"{stage}_s"))
        if not step.drafted:
            return
        self._drafts.labels(model).inc()
        self._drafted.labels(model).inc(step.drafted)
        self._accepted.labels(model).inc(step.accepted)
        for depth in range(step.accepted):
            self._by_place.labels(model, str(min(depth, _POSITIONS - 1))).inc()
        for name, source in zip(self._names, step.by_source, strict=False):
            if source.kept:
                self._scored_of.labels(model, name).inc(source.kept)

    def refused(self, status: int) -> None:
        """Count a request that was answered with an error."""
        self._refused.labels(self._model, str(status)).inc()

    def text(self) -> bytes:
        """Return all numbers in Prometheus' text format."""
        with self._lock:
            return generate_latest(self._registry)


class _BelievedCosts(Collector):
    """The planner's cost curve, by how many texts share a pass and how many tokens it scores; one that has learnt
    no costs (``fixed``) tells nothing.
    """

    def __init__(self, model: str, planner: Any) -> None:
        self._model = model
        self._learned = planner.learned if isinstance(planner, TreePlanner) else None

    def collect(self) -> Iterable[Metric]:
        """Return one gauge, with a number for each batch size that was seen."""
        said = f"Seconds of a pass at a context of {_CONTEXT} tokens, as the planner expects them"
        found = GaugeMetricFamily("draftwood:pass_seconds", said, labels=["model_name", "texts", "tokens"])
        if self._learned is not None:
            with self._learned.lock:
                for bits, costs in sorted(self._learned.costs.items()):
                    for tokens in _TOKENS:
                        labels = [self._model, str(1 << (bits - 1)), str(tokens)]
                        found.add_metric(labels, costs.seconds(tokens, _CONTEXT))
        return [found]


class RefusalCounter:
    """Counts the responses of an ASGI application that are errors."""

    def __init__(self, app: Any, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] >= 400:
                self._metrics.refused(message["status"])
            await send(message)

        await self._app(scope, receive, watched if scope["type"] == "http" else send)


class Spans:
    """Sends one span per ended text, of the client's own trace where it sends one; called by the worker's thread.

    It goes to the collector that the environment names; raises `UsageError` where the packages are missing.
    """

    def __init__(self, model: str) -> None:
        self._model, self._provider = model, _exporting()
        self._tracer = self._provider.get_tracer("draftwood")

    def note(self, job: Job, emission: Emission) -> None:
        """Send the span of a job that has ended."""
        if emission.finish is None:
            return
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind, Status, StatusCode

        shift = time_ns() - round(perf_counter() * 1e9)  # from our clock to that of the world
        span = self._tracer.start_span(
            "llm_request", context=extract(job.trace_headers), kind=SpanKind.SERVER,
            start_time=shift + round(job.arrived * 1e9), attributes=self._attributes(job, emission.finish),
        )  # fmt: skip
        if emission.error is not None:
            span.set_status(Status(StatusCode.ERROR, str(emission.error)))
        span.end(end_time=shift + round((job.ended or perf_counter()) * 1e9))

    def _attributes(self, job: Job, finish: str) -> dict[str, Any]:
        found: dict[str, Any] = {
            "gen_ai.request.model": self._model,
            "gen_ai.request.max_tokens": job.request.limit,
            "gen_ai.request.temperature": float(job.request.sampling.temperature),
            "gen_ai.usage.input_tokens": len(job.request.prompt),
            "gen_ai.usage.output_tokens": job.written,
            "gen_ai.response.finish_reasons": [finish],
            "draftwood.cached_tokens": job.cached,
            "draftwood.passes": job.passes,
            "draftwood.draft_tokens": job.drafted,
            "draftwood.accepted_tokens": job.accepted,
        }
        if job.begun is not None:
            found["gen_ai.latency.time_in_queue"] = job.begun - job.arrived
        if job.first is not None:
            found["gen_ai.latency.time_to_first_token"] = job.first - job.arrived
        return found

    def close(self) -> None:
        """Send what has not been sent yet."""
        self._provider.shutdown()


def _exporting() -> Any:
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise UsageError(
            f"traces are asked for ({ENDPOINTS[1]}) and need {error.name}: pip install 'draftwood[traces]'"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": "draftwood"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider
