"""Log-probabilities, bytes that are no text, special tokens and stop strings, on each engine's tokenizers."""

from __future__ import annotations

import json
from dataclasses import replace

import httpx2 as httpx
import numpy as np
import pytest
import torch

from draftwood.api.setup import Setup
from draftwood.contracts import Sampling
from draftwood.decoding.loop import decode
from draftwood.serve.asking import Biases, Penalties
from draftwood.serve.logprobs import LogprobRecorder
from draftwood.testing import ToyTarget
from draftwood.verify.sampling import distribution
from tests.serve.conftest import running
from tests.serve.scripted import KINDS, make, scripted, spell

TREE, WOOD = "\U0001f333".encode(), "\u6728".encode()


@pytest.fixture(scope="module", params=KINDS)
def server(request, tmp_path_factory):
    """A server whose ``says`` makes it write given bytes and special tokens."""
    ids: list[int] = []
    setup = scripted(make(request.param, tmp_path_factory.mktemp("scripted")), ids)
    with running(setup) as found:
        found.setup, found.kind = setup, request.param

        def says(*parts):
            ids[:] = spell(setup.tokenizer, *parts)
            return len(ids)

        found.says = says
        yield found


def ask(server, path, **more):
    """The text of an answer, its log-probabilities, its finish and its usage; whole, or joined of a stream."""
    given = {"temperature": 0} | more
    if path == "/v1/chat/completions":
        given = {"messages": [{"role": "user", "content": "hi"}]} | given
    elif path == "/v1/responses":
        given["max_output_tokens"], given["top_logprobs"] = given.pop("max_tokens"), given.pop("top_logprobs", 2)
        given.pop("logprobs", None)
        given = {"input": "hi"} | given
    else:
        most = {"logprobs": given["top_logprobs"]} if "top_logprobs" in given else {}
        given = {"prompt": "hi", **given} | most
        given.pop("top_logprobs", None)
    found = httpx.post(f"{server.url}{path}", json=given, timeout=60)
    assert found.status_code == 200, found.text
    if not given.get("stream"):
        return read_whole(path, found.json())
    bodies = [json.loads(line[6:]) for line in found.text.split("\n") if line.startswith("data: {")]
    return read_stream(path, bodies)


def read_whole(path, body):
    if path == "/v1/responses":
        part = body["output"][0]["content"][0]
        return part["text"], part["logprobs"], body["status"]
    choice = body["choices"][0]
    text = choice["message"]["content"] if "message" in choice else choice["text"]
    told = choice["logprobs"]
    return text, told["content"] if told and "content" in told else told, choice["finish_reason"]


def read_stream(path, bodies):
    if path == "/v1/responses":
        deltas = [body for body in bodies if body["type"] == "response.output_text.delta"]
        last = bodies[-1]["response"]
        text, told = "".join(one["delta"] for one in deltas), [x for one in deltas for x in one["logprobs"]]
        assert read_whole(path, last)[:1] == (text,)
        return text, told, last["status"]
    choices = [body["choices"][0] for body in bodies if body["choices"]]
    if path == "/v1/completions":
        text, told = "".join(one["text"] for one in choices), {}
        for one in choices:
            for name, values in (one["logprobs"] or {}).items():
                told[name] = told.get(name, []) + (values or [])
    else:
        text = "".join(one["delta"].get("content") or "" for one in choices)
        told = [entry for one in choices for entry in (one["logprobs"] or {"content": []})["content"]]
    return text, told, choices[-1]["finish_reason"]


TURNS = (("<|user|>", "<|user|>", "<|assistant|>"), ("<turn>", "<user>", "<assistant>"))
"""What ends and begins turns: of the tiny GGUF file, and of the tiny model of transformers."""
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
ODD = [
    (b"a", WOOD, b"b"),
    (b"\xff\xff\xff\xff\xffa",),
    (WOOD[:2], TREE[:3], b"x", TREE),
    (b"\x98" * 40, TREE[:2]),
    (TREE[:1], b"a", WOOD, b"\xc3"),
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("parts", ODD)
def test_the_bytes_of_tokens_are_those_of_the_text(server, path, parts):
    count, spelled = server.says(*parts), b"".join(parts)
    for stream in (False, True):
        more = {"logprobs": True} if path == PATHS[0] else {}
        text, told, _ = ask(server, path, max_tokens=count, top_logprobs=3, stream=stream, **more)
        assert text == spelled.decode(errors="replace")
        if path == "/v1/completions":
            assert len(told["tokens"]) == count
            assert all(len(best) in (3, 4) for best in told["top_logprobs"])
            assert told["text_offset"] == sorted(told["text_offset"])
            continue
        joined = b"".join(bytes(one["bytes"]) for one in told)
        assert (len(told) <= count) if path == "/v1/responses" else (len(told) == count)
        if path != "/v1/responses" or not stream:
            assert joined == text.encode()
        assert all(len(one["top_logprobs"]) == 3 for one in told)


def test_characters_across_tokens_have_their_own_bytes(server):
    count = server.says(b"a", WOOD)
    _, told, _ = ask(server, PATHS[0], max_tokens=count, logprobs=True)
    assert [one["bytes"] for one in told] == [[ord("a")], *([byte] for byte in WOOD)]
    assert [one["token"] for one in told] == ["a", *(f"bytes:\\x{byte:02x}" for byte in WOOD)]
    assert all(one["top_logprobs"] == [] for one in told)  # nobody asked for them
    _, told, _ = ask(server, PATHS[1], max_tokens=count, logprobs=0)
    assert told["top_logprobs"] is None


def test_a_stream_shows_what_no_byte_can_complete(server):
    count = server.says(b"\xff" * 30)
    found = httpx.post(
        f"{server.url}{PATHS[1]}", json={"prompt": "hi", "max_tokens": count, "stream": True, "temperature": 0}
    )
    texts = [json.loads(line[6:])["choices"][0]["text"] for line in found.text.split("\n") if '"text":' in line]
    assert "".join(texts) == "\ufffd" * 30
    assert sum(map(bool, texts)) > 5


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("stream", [False, True])
def test_the_token_that_ends_a_turn_of_the_template_ends_a_chat(server, path, stream):
    end, user, bot = TURNS[server.kind == "transformers"]
    count = server.says(b"ab", end, b"cd")
    text, _, finish = ask(server, path, max_tokens=count, stream=stream)
    is_chat = path != PATHS[1]
    assert text == ("ab" if is_chat else "abcd")
    assert finish == ("stop" if path == PATHS[0] else "completed" if is_chat else "length")
    if not is_chat:  # a chat that the client has rendered
        rendered = ask(server, path, prompt=f"{user}hi{end}{bot}", max_tokens=count, stream=stream)
        assert rendered[::2] == ("ab", "stop")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("limit", [0, 3])
def test_an_echo_has_the_scores_of_the_prompt(server, stream, limit):
    server.says(b"xyz")
    prompt = "ab \u6728 a" + "b" * 300  # read in several pieces
    settings = {"prompt": prompt, "echo": True, "top_logprobs": 2, "max_tokens": limit, "stream": stream}
    text, told, finish = ask(server, PATHS[1], **settings)
    assert (text, finish) == (prompt + "xyz"[:limit], "length")
    ids = server.setup.tokenizer(prompt)["input_ids"]
    assert len(told["tokens"]) == len(ids) + limit
    assert {len(values) for values in told.values()} == {len(ids) + limit}
    assert told["token_logprobs"][0] is told["top_logprobs"][0] is None
    assert told["text_offset"][len(ids) :] == [len(prompt) + place for place in range(limit)]
    assert told["text_offset"] == sorted(told["text_offset"])
    near = 0.3 if server.kind == "llama.cpp" else 1e-3  # which rounds otherwise where much is read at once
    for place in (1, 5, len(ids) - 1):
        ((session, scores),) = server.setup.target.open([ids[:place]])
        expected = np.log(distribution(scores.numpy(scores.raw(0)), Sampling(temperature=1.0)))
        session.close()
        assert told["token_logprobs"][place] == pytest.approx(expected[ids[place]], abs=near)
        assert max(told["top_logprobs"][place].values()) == pytest.approx(expected.max(), abs=near)
    again = ask(server, PATHS[1], **settings)  # what was read before is read again
    assert again[1]["token_logprobs"] == pytest.approx(told["token_logprobs"], abs=1e-3, nan_ok=True)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_penalties_and_biases_of_both_kinds_of_rows(kind):
    row = kind(np.zeros(6, dtype=np.float32))
    penalised = Penalties(0.5, 0.25, 2)(np.array([5, 5, 1, 1, 3, 1]), row)
    assert penalised.tolist() == [0, -1.25, 0, -0.75, 0, 0]
    row = kind(np.zeros(4, dtype=np.float32))
    assert Biases({1: -100, 3: 2, 2: 2})(np.array([0]), row).tolist() == [0, -100, 2, 2]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, top_p=0.9, seed=3)])
@pytest.mark.parametrize("drafters", ["none", "ngram"])
def test_log_probabilities_are_those_that_tokens_are_drawn_from(sampling, drafters):
    target, prompt = ToyTarget(vocab_size=16, order=2), [1, 2, 3]
    setup = Setup(target, None, drafters, "fixed:6")
    recorder = LogprobRecorder(sampling, 3)
    request = replace(setup.request(prompt, max_new_tokens=40), sampling=sampling, processors=[recorder])
    ids = [t for e in decode(target, setup.drafters, setup.planner, setup.rule, [request]) for t in e.tokens]
    told = recorder.between(ids, 0, len(ids))
    assert [one.token for one in told] == ids
    for place, one in enumerate(told):
        ((session, scores),) = target.open([prompt + ids[:place]])
        session.close()
        expected = distribution(scores.raw(0), Sampling(1.0) if sampling.greedy else sampling)
        assert one.logprob == pytest.approx(np.log(expected[one.token]))
        best = np.sort(expected)[::-1][:3]
        assert [np.exp(logprob) for _, logprob in one.top] == pytest.approx(best.tolist())
