"""What the server says of itself, and what it tells the planner of the queue."""

from __future__ import annotations

import re
import time

import httpx2 as httpx

from draftwood.api.setup import Setup
from draftwood.serve.worker import Worker
from tests.serve.conftest import running

ASKED = {"messages": [{"role": "user", "content": "hello hello hello"}], "max_tokens": 8, "temperature": 0}


def test_the_cost_curve_that_the_planner_believes_is_told(tiny_folder):
    with running(Setup(str(tiny_folder), None, "ngram", "goodput")) as server:
        httpx.post(f"{server.url}/v1/chat/completions", json=ASKED, timeout=60)
        text = httpx.get(f"{server.url}/metrics").text
    pattern = r'draftwood:pass_seconds{model_name="tiny",texts="1",tokens="(\d+)"} (\S+)'
    found = {int(tokens): float(seconds) for tokens, seconds in re.findall(pattern, text)}
    assert list(found) == [1, 2, 4, 8, 16, 32, 64]
    assert min(found.values()) > 0


def test_the_load_policy_hears_of_the_queue(tiny_folder):
    setup = Setup(str(tiny_folder), None, "ngram", "fixed:4+load:full=4")
    worker = Worker(setup, 2, 8)
    (policy,) = setup.planner.policies
    assert policy._wait() == 0
    worker.inbox._jobs.extend([object()] * 3)
    assert policy._wait() == 3


def test_a_warm_up_is_in_no_metric(tiny_folder):
    with running(Setup(str(tiny_folder), None, "ngram", "fixed:4"), warms_up=True) as server:
        found = httpx.post(f"{server.url}/v1/chat/completions", json=ASKED, timeout=60).json()
        deadline = time.monotonic() + 30
        while httpx.get(f"{server.url}/health").json()["running"] and time.monotonic() < deadline:
            time.sleep(0.01)
        text = httpx.get(f"{server.url}/metrics").text
    assert f'vllm:generation_tokens_total{{model_name="tiny"}} {found["usage"]["completion_tokens"]}.0' in text
