"""Which drafters an answer is written with (the field ``draftwood``), and what a prediction saves."""

import httpx2 as httpx
import pytest

from draftwood.api.setup import Setup
from tests.serve.conftest import running

BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello hello"}], "max_tokens": 48},
    "/v1/completions": {"prompt": "hello hello", "max_tokens": 48},
    "/v1/responses": {"input": "hello hello", "max_output_tokens": 48},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello hello"}], "max_tokens": 48},
}


@pytest.fixture(scope="module")
def url(tiny_folder):
    with running(Setup(str(tiny_folder), None, ["ngram", "lookup"], "fixed:6")) as server:
        yield server.url


def asked(url, path, field, **more):
    body = BODIES[path] | {"temperature": 0, "draftwood": field} | more
    return httpx.post(f"{url}{path}", json=body, timeout=60)


def text_of(answer):
    return answer.get("content") or answer.get("choices") or answer["output"][0]["content"]


ALL = {"ngram", "lookup", "prediction", "grammar"}
CHOICES = [
    (None, ALL), ({}, ALL), ({"draft": True}, ALL), ({"draft": "none"}, set()), ({"draft": []}, set()),
    ({"draft": "ngram"}, {"ngram"}), ({"draft": "ngram + prediction"}, {"ngram", "prediction"}),
    ({"draft": ["ngram"]}, {"ngram"}),
]  # fmt: skip


@pytest.mark.parametrize("path", BODIES)
def test_a_request_chooses_its_drafters(url, path):
    plain = asked(url, path, {"draft": False}).json()
    counts = {"passes": 47, "draft_tokens": 0, "accepted_tokens": 0, "cached_on_disk_tokens": 0}
    assert plain["usage"]["draftwood"] == {"drafters": [], **counts}
    for field, drafters in CHOICES:
        found = asked(url, path, field).json()
        used = found["usage"]["draftwood"]
        assert set(used["drafters"]) == drafters, field
        assert bool(used["draft_tokens"]) == bool(drafters), field
        assert used["draft_tokens"] >= used["accepted_tokens"]
        assert text_of(found) == text_of(plain)


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


def test_a_stream_tells_its_drafters_with_its_usage(url):
    more = {"stream": True, "stream_options": {"include_usage": True}}
    found = asked(url, "/v1/chat/completions", {"draft": False}, **more).text
    assert '"draftwood":{"drafters":[],"passes":47,"draft_tokens":0,"accepted_tokens":0,' in found
