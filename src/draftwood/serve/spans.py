"""OpenTelemetry traces: one span per text, under the client's own trace where it sends one.

Attributes have the names of OpenTelemetry's conventions for generative AI, and vLLM's where these have none.
"""

from __future__ import annotations

from time import perf_counter, time_ns
from typing import Any

from draftwood.decoding.request import Emission
from draftwood.errors import UsageError
from draftwood.serve.job import Job

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Environment variables, one of which switches traces on; the exporter reads them, and all others of its own."""


class Spans:
    """Tells a tracer of each text that has ended; called by the worker's thread.

    Parameters
    ----------
    model
        Its name.
    provider
        Of OpenTelemetry; None: one that sends to the address in the environment. Raises `UsageError` then where
        the packages are missing.
    """

    def __init__(self, model: str, provider: Any = None) -> None:
        self._model, self._provider = model, provider if provider is not None else _exporting()
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
