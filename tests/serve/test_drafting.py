"""Which drafters an answer is written with (the field ``draftwood``), and what a prediction saves."""

from __future__ import annotations

import httpx2 as httpx
import pytest

from draftwood.api.setup import Setup
from tests.serve.conftest import running

BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello hello"}], "max_tokens": 48},
    "/v1/completions": {"prompt": "hello hello", "max_tokens": 48},
    "/v1/responses": {"input": "hello hello", "max_output_tokens": 48},
}


@pytest.fixture(scope="module")
def url(tiny_folder):
    with running(Setup(str(tiny_folder), None, ["ngram", "suffix"], "fixed:6")) as server:
        yield server.url


def asked(url, path, field, **more):
    body = BODIES[path] | {"temperature": 0, "draftwood": field} | more
    return httpx.post(f"{url}{path}", json=body, timeout=60)


def text_of(answer):
    return answer["output"][0]["content"] if "output" in answer else answer["choices"]


ALL = {"ngram", "suffix", "prediction", "grammar"}
CHOICES = [
    (None, ALL), ({}, ALL), ({"draft": True}, ALL), ({"draft": "none"}, set()), ({"draft": []}, set()),
    ({"draft": "suffix"}, {"suffix"}), ({"draft": "ngram + prediction"}, {"ngram", "prediction"}),
    ({"draft": ["ngram"]}, {"ngram"}),
]  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
def test_a_request_chooses_its_drafters(url, path):
    plain = asked(url, path, {"draft": False}).json()
    counts = {"passes": 47, "draft_tokens": 0, "accepted_tokens": 0}
    assert plain["usage"]["draftwood"] == {"drafters": [], **counts}
    for field, drafters in CHOICES:
        found = asked(url, path, field).json()
        used = found["usage"]["draftwood"]
        assert set(used["drafters"]) == drafters, field
        assert bool(used["draft_tokens"]) == bool(drafters), field
        assert used["draft_tokens"] >= used["accepted_tokens"]
        assert text_of(found) == text_of(plain)


def test_only_those_that_are_chosen_draft(url):
    headers = {"x-draftwood": "trace"}
    for name in ("ngram", "suffix"):
        body = BODIES["/v1/completions"] | {"temperature": 0, "draftwood": {"draft": name}}
        found = httpx.post(f"{url}/v1/completions", json=body, headers=headers, timeout=60).json()
        assert set(found["draftwood"][0]["sources"]) == {"model", name}


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("field", "said"),
    [
        ({"draft": "ngrams"}, "did you mean 'ngram'"),
        ({"draft": 3}, "draft"),
        ({"drft": False}, "drft"),
        (3, "draftwood"),
    ],
)
def test_what_is_no_choice_is_refused(url, path, field, said):
    found = asked(url, path, field)
    assert found.status_code == 400
    assert said in found.json()["error"]["message"]


def test_a_stream_tells_it_with_its_usage(url):
    more = {"stream": True, "stream_options": {"include_usage": True}}
    found = asked(url, "/v1/chat/completions", {"draft": False}, **more).text
    assert '"draftwood":{"drafters":[],"passes":47,"draft_tokens":0,"accepted_tokens":0}' in found


CODE = '''```python
def mean_and_spread(values):
    """Return the mean of some numbers, and the mean square of how far they are from it."""
    total = 0
    for x in values:
        total = total + x
    mean = total / len(values)
    total = 0
    for x in values:
        total = total + (x - mean) ** 2
    return mean, total / len(values)
```'''
ASKED = (
    "Edit this Python function: rename the variable `total` to `amount`. "
    "Return the whole function and nothing else."
)


@pytest.mark.smollm2
def test_an_edit_takes_a_quarter_of_the_passes_and_is_the_same_text():
    from openai import OpenAI

    from draftwood.models.load import load

    model, tokenizer = load("smollm2", engine="transformers")
    setup = Setup(model, tokenizer, "ngram", "goodput")
    asked = {
        "model": "tiny", "messages": [{"role": "user", "content": f"{ASKED}\n\n{CODE}"}], "temperature": 0,
        "max_tokens": 120, "prediction": {"type": "content", "content": CODE},
    }  # fmt: skip
    with running(setup) as server, OpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
        found, plain = (
            client.chat.completions.create(**asked, extra_headers={"x-draftwood": said})
            for said in ("trace", "trace, plain")
        )
    assert found.choices[0].message.content == plain.choices[0].message.content
    tokens, passes = found.usage.completion_tokens, found.draftwood[0]["passes"]
    assert plain.draftwood[0]["passes"] == tokens - 1 > 60
    assert tokens > 4 * passes
    counted = found.usage.completion_tokens_details
    assert counted.accepted_prediction_tokens > tokens / 2
    assert counted.accepted_prediction_tokens + counted.rejected_prediction_tokens <= sum(
        step.get("drafted", 0) for step in found.draftwood[0]["steps"]
    )
