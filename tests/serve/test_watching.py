"""What the server says of itself, in numbers."""

from __future__ import annotations

import httpx2 as httpx

from draftwood.serve.worker import Worker
from tests.serve.conftest import running
from tests.serve.session import toy
from tests.serve.test_many_clients import wait

ASKED = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8, "temperature": 0}


def test_the_load_policy_hears_of_the_queue():
    setup = toy("ngram", "fixed:4+load:full=4")
    worker = Worker(setup, 2, 8)
    (policy,) = setup.planner.policies
    assert policy.queue() == 0
    worker.inbox._texts.extend([object()] * 3)
    assert policy.queue() == 3


def test_a_warm_up_is_in_no_metric():
    with running(toy(), warms_up=True) as server:
        found = httpx.post(f"{server.url}/v1/chat/completions", json=ASKED, timeout=60).json()
        wait(server.url, running=0)
        text = httpx.get(f"{server.url}/metrics").text
    assert f'vllm:generation_tokens_total{{model_name="tiny"}} {found["usage"]["completion_tokens"]}.0' in text
