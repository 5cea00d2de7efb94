"""By which names a model is served, and what lists of models say."""

from __future__ import annotations

import httpx2 as httpx
import pytest
from openai import NotFoundError, OpenAI

from tests.serve.conftest import running
from tests.serve.session import toy
from tests.serve.test_drafting import BODIES


@pytest.mark.parametrize("path", BODIES)
def test_any_name_is_served_and_answered_by(url, path):
    for given, name in (({"model": "claude-x"}, "claude-x"), ({}, "tiny"), ({"model": None}, "tiny")):
        found = httpx.post(f"{url}{path}", json=BODIES[path] | given, timeout=60).json()
        assert found["model"] == name
    long = httpx.post(f"{url}{path}", json=BODIES[path] | {"model": "x" * 600})
    assert long.status_code == 400
    assert "model: " in long.json()["error"]["message"]


def test_a_strict_server_knows_its_names_alone():
    with running(toy(), aliases=["claude-x", "claude-x", "tiny"], strict_model=True, former="/a/b.gguf") as server:
        for path, body in BODIES.items():
            for name, status in (("tiny", 200), ("claude-x", 200), ("/a/b.gguf", 200), ("other", 404)):
                found = httpx.post(f"{server.url}{path}", json=body | {"model": name}, timeout=60)
                assert found.status_code == status
            assert found.json()["error"]["type"] == "not_found_error"
            assert "no model 'other' is served here: ask for 'tiny' or 'claude-x'" in found.text
        with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:
            assert [one.id for one in client.models.list()] == ["tiny", "claude-x"]
            assert client.models.retrieve("claude-x").id == "claude-x"
            with pytest.raises(NotFoundError, match="no model 'other'"):
                client.models.retrieve("other")


def test_lists_say_what_each_client_reads(url):
    found = httpx.get(f"{url}/v1/models").json()
    assert found == httpx.get(f"{url}/v1/models/").json()
    assert httpx.get(f"{url}/v1/models/some/name").json()["id"] == "some/name"
    (one,), (codex,) = found["data"], found["models"]
    assert one == httpx.get(f"{url}/v1/models/tiny").json()
    assert (one["object"], one["type"], one["max_model_len"]) == ("model", "model", 2048)
    assert (codex["slug"], codex["context_window"], codex["visibility"]) == ("tiny", 2048, "list")
