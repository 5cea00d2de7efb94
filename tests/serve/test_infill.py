"""Text between two others: its prompt, where the model has marks for it, and the routes that ask for it."""

from __future__ import annotations

import json
import random

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.api.setup import Setup
from draftwood.serve.infill import InfillRequest, infill_ids, marks_of
from tests.serve.conftest import running
from tests.serve.scripted import byte_tokenizer, save_bytes, scripted, spell
from tests.serve.test_ollama import ODD

MARKS = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")
MORE = ("<reponame>", "<file_sep>")
BODY = {"input_prefix": "ab", "input_suffix": "yz", "prompt": "c", "n_predict": 40, "temperature": 0}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server whose model writes ``mid``, a mark of another file, and more."""
    setup = Setup(
        str(save_bytes(tmp_path_factory.mktemp("infill") / "bytes", *MARKS, *MORE)), None, "ngram", "fixed:4"
    )
    seen = []

    def write(prompt):
        seen.append(prompt)
        return spell(setup.tokenizer, b"mid\n", "<file_sep>", b"no more")

    with running(scripted(setup, write)) as server:
        server.seen = seen
        yield server


def post(server, path="/infill", **more):
    return httpx.post(f"{server.url}{path}", json=more, timeout=60)


def test_texts_stand_before_and_behind_and_the_middle_is_written(served):
    found = post(served, **BODY).json()
    assert (found["content"], found["stop_type"], found["stop"]) == ("mid\n", "eos", True)
    tokenizer = served_tokenizer()
    assert served.seen[-1] == spell(tokenizer, MARKS[0], b"abc", MARKS[1], b"yz", MARKS[2])
    assert marks_of(tokenizer).ends == frozenset(spell(tokenizer, *MARKS, *MORE))
    assert (found["tokens_evaluated"], found["tokens_predicted"]) == (8, 5)
    plain = post(served, "/v1/completions", prompt="abc", suffix="yz", max_tokens=40, temperature=0).json()
    assert (plain["choices"][0]["text"], served.seen[-1]) == ("mid\n", served.seen[-2])


def served_tokenizer():
    return byte_tokenizer(*MARKS, *MORE)


def test_pieces_of_other_files_come_first_and_no_text_is_a_mark():
    tokenizer = served_tokenizer()
    extra = [{"filename": "a.py", "text": "x<fim_suffix>"}, {"text": "y"}]
    asked = InfillRequest(input_prefix="<end>", input_suffix="s", input_extra=extra).text()
    ids = infill_ids(tokenizer, asked, asked.prompt, special=False)
    first = spell(
        tokenizer, "<reponame>", b"repository\n", "<file_sep>", b"a.py\nx<fim_suffix>", "<file_sep>", b"\ny"
    )
    assert ids == first + spell(
        tokenizer, "<file_sep>", b"filename\n", MARKS[0], b"<end>", MARKS[1], b"s", MARKS[2]
    )
    few = byte_tokenizer(*MARKS)
    snippet = spell(few, b"\n\n--- snippet ---\n\nx", MARKS[1])
    assert infill_ids(few, asked, "p", special=True)[: len(snippet)] == snippet


def test_streams_fields_and_limits(served):
    parts = ["content", "timings/prompt_n", "timings/no", "truncated"]
    found = post(
        served, **BODY, response_fields=parts, t_max_predict_ms=60_000, samplers=["top_k"], cache_prompt=True
    )
    assert found.json().keys() == {"content", "timings/prompt_n", "truncated"}
    assert found.headers["x-draftwood-ignored"] == "cache_prompt, samplers"
    told = [json.loads(line[6:]) for line in post(served, **BODY, stream=True).text.split("\n\n") if line]
    assert "".join(one["content"] for one in told) == "mid\n"
    assert [one["stop"] for one in told] == [False] * (len(told) - 1) + [True]
    warm = post(served, **BODY | {"n_predict": 0, "response_fields": [""]})
    assert (warm.status_code, warm.json()) == (200, {})
    assert post(served, **BODY | {"n_predict": 2}).json()["stop_type"] == "limit"
    assert post(served, **BODY | {"stop": ["d"]}).json()["stopping_word"] == "d"


@pytest.mark.parametrize("path", ["/infill", "/v1/completions"])
def test_models_without_marks_refuse_in_a_sentence(url, path):
    found = httpx.post(f"{url}{path}", json={"prompt": "a", "suffix": "b", "input_suffix": "b"}, timeout=60)
    assert found.status_code == 400
    assert "no tokens for text between" in found.json()["error"]["message"]


def test_odd_bodies_are_no_error_of_the_server(served):
    drawn = random.Random(6)
    for _ in range(100):
        names = drawn.sample(sorted(InfillRequest.model_fields), 3)
        found = post(served, **{name: drawn.choice(ODD) for name in names} | {"n_predict": 2})
        assert found.status_code in (200, 400), (names, found.text)
