"""What the server says of itself: numbers, and a span per text with what it cost, and nothing of its content."""

from __future__ import annotations

import re

import httpx2 as httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from draftwood.serve import metrics
from draftwood.serve.worker import Worker
from tests.serve.conftest import running
from tests.serve.session import toy
from tests.serve.test_many_clients import wait

TRACE = "0af7651916cd43dd8448eb211c80319c"
SECRET = "a secret of mine"
ASKED = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 8, "temperature": 0}


def test_the_cost_curve_that_the_planner_believes_is_told():
    with running(toy("ngram", "goodput")) as server:
        httpx.post(f"{server.url}/v1/chat/completions", json=ASKED, timeout=60)
        text = httpx.get(f"{server.url}/metrics").text
    pattern = r'draftwood:pass_seconds{model_name="tiny",texts="1",tokens="(\d+)"} (\S+)'
    found = {int(tokens): float(seconds) for tokens, seconds in re.findall(pattern, text)}
    assert list(found) == [1, 2, 4, 8, 16, 32, 64]
    assert min(found.values()) > 0


def test_the_load_policy_hears_of_the_queue():
    setup = toy("ngram", "fixed:4+load:full=4")
    worker = Worker(setup, 2, 8)
    (policy,) = setup.planner.policies
    assert policy.queue() == 0
    worker.inbox._jobs.extend([object()] * 3)
    assert policy.queue() == 3


def test_a_warm_up_is_in_no_metric(monkeypatch):
    monkeypatch.setattr(metrics, "_exporting", lambda: pytest.fail("nobody has asked for traces"))
    with running(toy(), warms_up=True) as server:
        found = httpx.post(f"{server.url}/v1/chat/completions", json=ASKED, timeout=60).json()
        wait(server.url, running=0)
        text = httpx.get(f"{server.url}/metrics").text
    assert f'vllm:generation_tokens_total{{model_name="tiny"}} {found["usage"]["completion_tokens"]}.0' in text


def test_each_text_is_a_span_of_its_clients_trace(monkeypatch):
    exported, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exported))
    monkeypatch.setattr(metrics, "_exporting", lambda: provider)
    with running(toy(), traced=True) as server:
        url, headers = f"{server.url}/v1/chat/completions", {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
        found = httpx.post(url, json=ASKED | {"n": 2}, headers=headers).json()
        httpx.post(url, json=ASKED | {"max_tokens": 3})
    ended = exported.get_finished_spans()
    assert len(ended) == 3
    mine = [span.attributes for span in ended if f"{span.context.trace_id:032x}" == TRACE]
    assert len(mine) == 2
    assert sum(one["gen_ai.usage.output_tokens"] for one in mine) == found["usage"]["completion_tokens"]
    for span in ended:
        assert span.status.status_code is StatusCode.UNSET
        assert span.attributes["gen_ai.request.model"] == "tiny"
        assert span.attributes["gen_ai.latency.time_in_queue"] >= 0
        assert span.attributes["gen_ai.latency.time_to_first_token"] * 1e9 <= span.end_time - span.start_time + 1e6
        assert span.attributes["draftwood.accepted_tokens"] <= span.attributes["draftwood.draft_tokens"]
        assert SECRET not in span.to_json()
