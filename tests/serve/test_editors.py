"""What editors and their pages send that is no chat: other paths, pages of other sites, compressed bodies."""

from __future__ import annotations

import http.client
import json
from contextlib import closing

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.errors import UsageError
from draftwood.serve.cors import usable_origin
from tests.serve.conftest import running
from tests.serve.session import toy
from tests.serve.test_drafting import BODIES

PAGE = "https://editor.example"
ASKS = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": "authorization"}


@pytest.mark.parametrize("path", BODIES)
def test_routes_have_no_need_of_v1(url, path):
    body = BODIES[path] | {"max_output_tokens" if "input" in BODIES[path] else "max_tokens": 3, "temperature": 0}
    whole, short = (httpx.post(f"{url}{at}", json=body, timeout=60) for at in (path, path.removeprefix("/v1")))
    assert whole.json().keys() == short.json().keys()
    wrong = [httpx.post(f"{url}{at}", json={}) for at in (path, path.removeprefix("/v1"))]
    assert wrong[0].json()["error"] == wrong[1].json()["error"]


def test_lists_of_models_have_no_need_of_v1(url):
    for path in ("/models", "/models/", "/models/tiny"):
        assert httpx.get(f"{url}{path}").json() == httpx.get(f"{url}/v1{path}").json()


@pytest.mark.parametrize(("host", "status"), [("127.0.0.1:8000", 200), ("localhost", 200), ("evil.example", 403)])
def test_targets_may_be_absolute_and_their_host_is_checked(url, host, status):
    with closing(http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)) as connection:
        connection.request("GET", f"http://{host}/v1/models?x=1", headers={"Host": "127.0.0.1"})
        found = connection.getresponse()
        assert found.status == status
        assert ("data" in json.loads(found.read())) == (status == 200)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/api/chat"])
def test_compressed_bodies_are_refused(url, path):
    found = httpx.post(f"{url}{path}", content=b"\x1f\x8b", headers={"content-encoding": "gzip"})
    assert found.status_code == 415
    assert "compressed ('gzip')" in str(found.json()["error"])
    plain = {"content-encoding": "identity", "content-type": "application/json"}
    assert httpx.post(f"{url}/tokenize", content=b'{"prompt": "a"}', headers=plain).status_code == 200


@pytest.fixture(scope="module")
def open_to_a_page():
    with running(toy(), origins=[PAGE + "/"], keys=["key"]) as server:
        yield server.url


def test_no_page_of_another_site_may_ask(url):
    assert "access-control-allow-origin" not in httpx.get(f"{url}/v1/models", headers={"origin": PAGE}).headers
    assert httpx.request("OPTIONS", f"{url}/v1/models", headers=ASKS).status_code == 405


def test_a_page_that_may_ask_needs_no_key_for_its_first_question(open_to_a_page):
    first = httpx.request("OPTIONS", f"{open_to_a_page}/v1/models", headers=ASKS)
    assert (first.status_code, first.headers["access-control-allow-origin"]) == (204, PAGE)
    assert (first.headers["vary"], first.headers["access-control-allow-headers"]) == ("origin", "authorization")
    for headers, status in (({}, 401), ({"authorization": "Bearer key"}, 200)):
        found = httpx.get(f"{open_to_a_page}/v1/models", headers={"origin": PAGE, **headers})
        assert (found.status_code, found.headers["access-control-allow-origin"]) == (status, PAGE)
    other = httpx.request("OPTIONS", f"{open_to_a_page}/v1/models", headers=ASKS | {"origin": "https://evil"})
    assert (other.status_code, "access-control-allow-origin" in other.headers) == (403, False)
    assert httpx.get(f"{open_to_a_page}/health").headers["vary"] == "origin"


@pytest.mark.parametrize("given", ["", "example.org", "https://a/b", "https://", "a b"])
def test_what_is_no_origin_is_refused(given):
    with pytest.raises(UsageError, match="is no origin"):
        usable_origin(given)
    assert usable_origin(" vscode-webview://ABC/ ") == "vscode-webview://abc"


def test_the_text_of_a_chat_is_read_as_the_chat(url):
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    text = httpx.post(f"{url}/apply-template", json={"messages": messages}).json()["prompt"]
    ids = [
        httpx.post(f"{url}/tokenize", json=body).json()["tokens"]
        for body in ({"prompt": text}, {"messages": messages})
    ]
    assert ids[0] == ids[1]
    assert httpx.post(f"{url}/apply-template", json={"messages": 3}).status_code == 400


def test_what_the_server_is(url):
    told = httpx.get(f"{url}/props").json()
    assert (told["default_generation_settings"]["n_ctx"], told["model_alias"]) == (2048, "tiny")
    assert told["chat_template"]
    assert told["eos_token"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_chunks_have_no_usage_but_the_last_where_it_is_asked_for(url, path):
    body = BODIES[path] | {"max_tokens": 3, "stream": True}
    for options, expected in (({"include_usage": True}, True), (None, False)):
        found = httpx.post(f"{url}{path}", json=body | {"stream_options": options}, timeout=60).text
        told = [json.loads(line[6:]) for line in found.split("\n") if line.startswith("data: {")]
        *others, last = told
        assert all(("usage" in one) == expected and one.get("usage") is None for one in others)
        assert (last.get("usage") is not None) == expected
