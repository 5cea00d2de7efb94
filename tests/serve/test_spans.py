"""A span per text: under the client's trace, with what it cost, and nothing of its content."""

from __future__ import annotations

import httpx2 as httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from draftwood.api.setup import Setup
from draftwood.serve import metrics
from tests.serve.conftest import running

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "a secret of mine"


@pytest.fixture
def exported(monkeypatch):
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr(metrics, "_exporting", lambda: provider)
    return kept


def test_each_text_is_a_span_of_its_clients_trace(tiny_folder, exported):
    body = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 12, "temperature": 0, "n": 2}
    with running(Setup(str(tiny_folder), None, "ngram", "fixed:4"), traced=True) as server:
        url = f"{server.url}/v1/chat/completions"
        found = httpx.post(url, json=body, headers={"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}).json()
        httpx.post(url, json=body | {"n": 1, "max_tokens": 3})
    ended = exported.get_finished_spans()
    assert len(ended) == 3
    mine = [span for span in ended if f"{span.context.trace_id:032x}" == TRACE]
    assert len(mine) == 2
    assert (
        sum(span.attributes["gen_ai.usage.output_tokens"] for span in mine) == found["usage"]["completion_tokens"]
    )
    for span in ended:
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes["gen_ai.request.model"] == "tiny"
        assert span.attributes["gen_ai.latency.time_in_queue"] >= 0
        assert span.attributes["gen_ai.latency.time_to_first_token"] * 1e9 <= span.end_time - span.start_time + 1e6
        assert span.attributes["draftwood.accepted_tokens"] <= span.attributes["draftwood.draft_tokens"]
        assert SECRET not in span.to_json()


def test_without_a_collector_nothing_is_imported_for_it(tiny_folder, monkeypatch):
    monkeypatch.setattr(metrics, "_exporting", lambda: pytest.fail("nobody has asked for traces"))
    with running(Setup(str(tiny_folder), None, "ngram", "fixed:4")) as server:
        assert httpx.get(f"{server.url}/health").status_code == 200
