"""Names, predictions and namespaces of requests: the patch of vLLM's runner, and the ASGI middleware."""

import asyncio
import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from draftwood.engines.vllm import Proposer
from draftwood.engines.vllm.middleware import Prediction
from draftwood.engines.vllm.requests import NAMESPACE, PREDICTION, Requests
from draftwood.errors import CapabilityError
from tests.engines.vllm.fake_runner import FakeRunner, config, copying_model, plain


class Tokenizer:
    def __call__(self, text, add_special_tokens=False):
        return {"input_ids": [ord(letter) % 60 for letter in text]}


@pytest.fixture
def vllm(monkeypatch):
    """A module with a runner like vLLM's."""

    class GPUModelRunner(FakeRunner):
        def propose_draft_token_ids(self, sampled):
            return self.drafter.propose(sampled, self.lengths, self.ids)

    module = ModuleType("vllm.v1.worker.gpu_model_runner")
    module.GPUModelRunner = GPUModelRunner
    monkeypatch.setitem(sys.modules, "vllm.v1.worker.gpu_model_runner", module)
    monkeypatch.setattr("draftwood.engines.vllm.proposer.installed", lambda: "0.32.0")
    monkeypatch.setattr("draftwood.engines.vllm.configuration._tokenizer", lambda _: Tokenizer())
    return GPUModelRunner


def asking(runner_class, options, arguments, model, rows=4):
    """A fake runner that goes through the runner's own method, as vLLM does."""
    proposer = Proposer(config(options={"planner": "fixed:8", "requests": True, **options}, rows=rows))
    runner = runner_class(SimpleNamespace(), model, rows=rows)
    runner.drafter = proposer
    runner.requests = {}
    runner.proposer.propose = lambda sampled, *_, **__: _asked(runner, arguments, sampled)
    return runner


def _asked(runner, arguments, sampled):
    names = [request.name for request in runner.batch]
    runner.input_batch = SimpleNamespace(req_ids=names)
    runner.requests = {
        name: SimpleNamespace(sampling_params=SimpleNamespace(extra_args=arguments.get(name))) for name in names
    }
    return runner.propose_draft_token_ids(sampled)


def test_a_prediction_comes_in_blocks(vllm):
    model = copying_model(period=500)
    expected = plain(model, [1, 2, 3], 100)[3:]
    accepted = {}
    for given in ({}, {"0": {PREDICTION: expected}}):
        runner = asking(vllm, {}, given, model)
        request = runner.add("0", [1, 2, 3], 90)
        runner.run()
        assert request.ids == plain(model, [1, 2, 3], 90)
        accepted[len(given)] = runner.accepted
    assert accepted[1] > 70 > 30 > accepted[0]


def test_a_prediction_that_cannot_be_read_costs_nothing_but_itself(vllm):
    for wrong in ([1.5, 2], [99], "", {"a": 1}, [[]], 7):
        runner = asking(vllm, {}, {"0": {PREDICTION: wrong}}, copying_model())
        request = runner.add("0", [1, 2, 3], 60)
        runner.run()
        assert request.ids == plain(runner.model, [1, 2, 3], 60)
        assert not runner.drafter._drafting.counts.errors
        assert runner.accepted


def test_nobody_drafts_from_another_namespaces_answers(vllm):
    model, passes = copying_model(period=500), {}
    for spaces in (["a", "a"], ["a", "b"], ["", ""]):
        arguments = {str(i): {NAMESPACE: space} for i, space in enumerate(spaces)}
        runner = asking(vllm, {"drafters": "ngram+memory"}, arguments, model)
        for name in ("0", "1"):
            runner.add(name, [1, 2, 3], 90)
            runner.run()
        passes[tuple(spaces)] = runner.passes
    assert passes["a", "a"] < 0.8 * passes["a", "b"]
    assert passes["a", "a"] == passes["", ""]


def test_with_names_equal_prompts_are_told_apart(vllm):
    runner = asking(vllm, {}, {}, copying_model())
    requests = [runner.add(str(i), [1, 2, 3, 4], 50 + i) for i in range(9)]
    runner.run()
    for request in requests:
        assert request.ids == plain(runner.model, [1, 2, 3, 4], request.most)
    assert len(runner.drafter._drafting.following.by_seat) == 9


def test_the_runner_is_patched_once_and_only_for_our_proposer(vllm):
    asking(vllm, {}, {}, copying_model())
    once = vllm.propose_draft_token_ids
    asking(vllm, {}, {}, copying_model())
    assert vllm.propose_draft_token_ids is once
    runner = vllm(SimpleNamespace(), None)
    runner.drafter = SimpleNamespace(propose=lambda *_: "theirs")
    assert runner.propose_draft_token_ids([]) == "theirs"


def test_requests_need_a_version_whose_runner_is_known(vllm, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_VLLM_ANY_VERSION", "1")
    monkeypatch.setattr("draftwood.engines.vllm.proposer.installed", lambda: "0.34.0")
    with pytest.raises(CapabilityError, match="leave it out"):
        Proposer(config(options={"requests": True}))
    Proposer(config())


def test_requests_that_are_gone_are_forgotten():
    known = Requests(Tokenizer(), 60)
    first = known.of(["a", "b"], [{PREDICTION: "abc"}, None])
    assert first[0].prediction[0] == tuple(ord(letter) % 60 for letter in "abc")
    assert known.of(["b"], [None]) == [first[1]]
    assert set(known._known) == {"b"}


def served(body, path="/v1/chat/completions", pieces=1):
    """What the application behind the middleware is sent."""
    seen = {}

    async def app(scope, receive, send):
        got = b""
        while True:
            message = await receive()
            got += message.get("body", b"")
            if not message.get("more_body"):
                break
        seen.update(body=got, headers=dict(scope["headers"]))

    size = max(1, -(-len(body) // pieces))
    parts = [body[i : i + size] for i in range(0, len(body), size)] or [b""]
    messages = [
        {"type": "http.request", "body": part, "more_body": number + 1 < len(parts)}
        for number, part in enumerate(parts)
    ]

    async def receive():
        return messages.pop(0)

    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [(b"content-length", str(len(body)).encode())],
    }
    asyncio.run(Prediction(app)(scope, receive, None))
    assert int(seen["headers"][b"content-length"]) == len(seen["body"])
    return seen["body"]


@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("content", ["old text", [{"type": "text", "text": "old text"}]])
def test_the_middleware_brings_the_prediction_among_the_extra_arguments(content, pieces):
    body = {"model": "m", "prediction": {"type": "content", "content": content}, "vllm_xargs": {"x": 1}}
    found = json.loads(served(json.dumps(body).encode(), pieces=pieces))
    assert found == {"model": "m", "vllm_xargs": {"x": 1, PREDICTION: ["old text"]}}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no json, prediction or not",
        b'{"model": "m"}',
        b'{"a": "prediction"}',
        b'["prediction"]',
        b'{"prediction": null}',
        b'{"prediction": {"content": 7}}',
        b'{"prediction": {"content": [{"text": 7}]}}',
        b'{"prediction": "x", ',
        b'{"other": {"prediction": {"content": "x"}}}',
    ],
)
def test_the_middleware_leaves_other_bodies_alone(body):
    assert served(body) == body


def test_the_middleware_leaves_other_paths_alone():
    body = b'{"prediction": {"type": "content", "content": "x"}}'
    assert served(body, path="/v1/embeddings") == body


def test_ids_of_the_callers_type_are_read(vllm):
    proposer = Proposer(config(options={"planner": "fixed:8"}))
    ids = np.tile(np.arange(16, dtype=np.int64), (8, 32))
    assert len(proposer.propose([[3]], np.full(8, 100), ids)) == 1
    assert not proposer._drafting.counts.errors
