"""Embeddings: what the vectors are made of, the forms in which they are sent, and what is refused."""

from __future__ import annotations

import base64
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import sleep

import httpx2 as httpx  # comes with the openai package
import numpy as np
import pytest
from openai import BadRequestError, OpenAI

import draftwood
from draftwood.api.setup import Setup
from draftwood.serve.embeddings import StatePool
from draftwood.serve.meanings import EMBEDDINGS
from draftwood.testing import ToyTarget
from tests.engines.tiny_gguf import write_gguf
from tests.serve.conftest import running
from tests.serve.scripted import GGUF_TEMPLATE
from tests.serve.session import tokenizer_of_bytes, toy
from tests.serve.test_ollama import ODD

TEXTS = ["hello hello", "a", "def f(x):\n    return x\n" * 20]


def post(server, path=EMBEDDINGS, **more):
    return httpx.post(f"{server.url}{path}", json=more, timeout=60)


def asked(server, given, **more):
    found = post(server, input=given, **more)
    assert found.status_code == 200, found.text
    return [one["embedding"] for one in found.json()["data"]]


@pytest.fixture(scope="module")
def tiny(tiny_folder):
    with running(Setup(str(tiny_folder), None, "ngram", "fixed:6")) as server:
        yield server


@pytest.fixture(scope="module", params=["mean", "last"])
def cpu(request, tmp_path_factory):
    """A server of our own engine that has room for fewer texts than one request has."""
    pytest.importorskip("llvmlite")
    path = write_gguf(tmp_path_factory.mktemp("embeds") / "tiny.gguf", kind="Q8_0", template=GGUF_TEMPLATE)
    model, tokenizer = draftwood.load(str(path), engine="cpu")
    setup = Setup(model, tokenizer, "ngram", "fixed:4")
    with running(setup, pooling=request.param, most_running=3, most_waiting=3) as server:
        yield server


@pytest.fixture(scope="module")
def plain():
    """A server of a toy, whose states are the ids of its tokens."""
    with running(toy(positions=64), strict_model=True) as server:
        yield server


def normal(vector):
    return vector / np.linalg.norm(vector)


def test_vectors_are_the_mean_of_the_states_that_transformers_has(tiny, tiny_folder):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(tiny_folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    for text, found in zip(TEXTS, asked(tiny, TEXTS), strict=True):
        with torch.no_grad():
            told = model(tokenizer(text, return_tensors="pt")["input_ids"], output_hidden_states=True)
        assert np.allclose(found, normal(told.hidden_states[-1][0].mean(0).numpy()), atol=1e-5)


def test_the_openai_package_reads_them(tiny):
    ids = [post(tiny, "/tokenize", prompt=text).json()["tokens"] for text in TEXTS]
    with OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
        packed = client.embeddings.create(model="any", input=TEXTS)  # as base64
        told = client.embeddings.create(model="any", input=ids, encoding_format="float")
        assert [one.embedding for one in packed.data] == [one.embedding for one in told.data]
        assert [one.index for one in packed.data] == [0, 1, 2]
        assert packed.usage.prompt_tokens == packed.usage.total_tokens == sum(map(len, ids))
        assert (packed.model, packed.object, packed.data[0].object) == ("any", "list", "embedding")
        (few,) = client.embeddings.create(model="any", input=ids[0], dimensions=4).data
        assert np.allclose(few.embedding, normal(np.array(told.data[0].embedding)[:4]), atol=1e-6)
        with pytest.raises(BadRequestError, match=r"dimensions is 5,000, and this model's vectors have \d+"):
            client.embeddings.create(model="any", input="a", dimensions=5000)


def test_they_have_the_same_bits_whatever_else_is_done(cpu):
    texts = [*TEXTS, *("b" * n + text for n, text in enumerate(TEXTS * 3))]
    alone = asked(cpu, texts, encoding_format="base64")
    write = {"prompt": "hello " * 30, "max_tokens": 60, "temperature": 0}
    with ThreadPoolExecutor(2) as threads:
        others = [threads.submit(post, cpu, "/v1/completions", **write) for _ in range(2)]
        among = asked(cpu, texts, encoding_format="base64")
        assert [one.result().status_code for one in others] == [200, 200]
    assert among == alone
    assert [asked(cpu, text, encoding_format="base64")[0] for text in texts[:3]] == alone[:3]
    assert np.allclose(np.linalg.norm(np.frombuffer(base64.b64decode(alone[2]), "<f4")), 1, atol=1e-6)


def test_nothing_is_kept_of_texts_that_no_other_will_begin_like(cpu):
    text = "this is a text of more than thirty-two tokens, which a prefix cache would keep"
    asked(cpu, text)
    found = post(cpu, "/v1/completions", prompt=text, max_tokens=1).json()
    assert found["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_vector_is_the_same_however_the_text_is_cut(pooling):
    states = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)
    wanted = normal(states[-1] if pooling == "last" else states.astype(np.float64).mean(0))
    found = set()
    for cuts in ([], [1], [7, 8, 30], range(1, 50)):
        pool = StatePool(pooling)
        for some in np.split(states, cuts):
            pool.see(some)
        found.add(pool.vector(None).tobytes())
        assert np.allclose(pool.vector(None), wanted, atol=1e-6)
    assert len(found) == 1


def test_names_of_control_tokens_are_text(plain):
    post(plain, input="<turn>")
    count = post(plain, input=["<turn>", "<user>"]).json()["usage"]["prompt_tokens"]
    assert count == len("<turn><user>") > len(tokenizer_of_bytes()("<turn><user>")["input_ids"])


LONG = "a" * 64
WITHOUT = "this engine shows no states of texts, of which vectors are made: serve with --engine cpu"


@pytest.mark.parametrize(
    ("given", "param", "said"),
    [
        ({"input": ""}, "input", "empty"), ({"input": []}, "input", "empty"),
        ({"input": ["a", ""]}, "input.1", "empty"), ({"input": [[1], []]}, "input.1", "empty"),
        ({"input": [1, 99999]}, "input", "outside the vocabulary"), ({"input": [[1], [-1]]}, "input.1", "outside"),
        ({"input": ["a", LONG]}, "input.1", "maximum context length"), ({}, "input", "required"),
        ({"input": LONG * 99999}, "input", "shorten"), ({"input": ["a"] * 4097}, "input", "at most 4,096"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "base64"),
        ({"input": "a", "dimensions": 2}, "dimensions", "have 1"),
        ({"input": "a", "dimensions": 0}, "dimensions", "greater"), ({"input": {"a": 1}}, "input", "valid"),
    ],
)  # fmt: skip
def test_what_has_no_vector_is_refused_in_a_sentence(plain, given, param, said):
    found = post(plain, **given)
    error = found.json()["error"]
    assert (found.status_code, error["param"]) == (400, param)
    assert said in error["message"]
    assert (error["code"] == "context_length_exceeded") == (said in ("maximum context length", "shorten"))


def test_an_engine_without_states_says_so(monkeypatch):
    setup, can = toy(), ToyTarget.capabilities.fget
    monkeypatch.setattr(ToyTarget, "capabilities", property(lambda target: replace(can(target), hidden=())))
    with running(setup) as server:
        found = post(server, input="a")
        assert (found.status_code, found.json()["error"]["message"]) == (400, WITHOUT)


def test_ollama_has_them_in_its_own_form(plain):
    for path in ("embed", "embeddings"):
        assert post(plain, f"/api/{path}", model="other").json()["error"].startswith("no model 'other'")
    found = post(plain, "/api/embed", model="tiny:latest", input=["a", LONG * 3], options={"num_ctx": 9})
    told = found.json()
    assert (told["embeddings"], told["model"], told["prompt_eval_count"]) == ([[1.0], [1.0]], "tiny", 64)
    assert found.headers["x-draftwood-ignored"] == "options"
    assert post(plain, "/api/embed", input=LONG, truncate=False).json()["error"].startswith("this model's maximum")
    assert post(plain, "/api/embed", model="tiny").json()["embeddings"] == []  # by which clients load a model
    assert post(plain, "/api/embeddings", prompt="a").json() == {"embedding": [1.0]}
    assert post(plain, "/api/embeddings", prompt="").json() == {"embedding": []}


@pytest.mark.parametrize("path", [EMBEDDINGS, "/api/embed", "/api/embeddings"])
def test_odd_bodies_are_no_error_of_the_server(plain, path):
    drawn = random.Random(9)
    for _ in range(60):
        names = ("input", "prompt", "dimensions", "encoding_format", "truncate", "model", "user", "keep_alive")
        body = {name: drawn.choice([*ODD, [1, "a"], [["a"]], [True]]) for name in drawn.sample(names, 3)}
        found = post(plain, path, **body)
        assert found.status_code in (200, 400, 404), (body, found.text)


def test_a_request_ends_where_its_client_has_gone(plain):
    with pytest.raises(httpx.TimeoutException):
        httpx.post(f"{plain.url}{EMBEDDINGS}", json={"input": ["a b c"] * 4000}, timeout=0.1)
    assert post(plain, input="a").status_code == 200
    while httpx.get(f"{plain.url}/health").json()["running"]:  # else the test never ends
        sleep(0.01)
