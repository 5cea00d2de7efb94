"""Many clients at once, some of which go away, are refused, or have no key; nobody else notices."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import httpx2 as httpx
import pytest

from draftwood.api.setup import Setup
from tests.serve.conftest import running

CHAT = "/v1/chat/completions"


def asked(number=0, **more):
    messages = [{"role": "user", "content": f"hello {number}"}]
    return {"messages": messages, "max_tokens": 24, "temperature": 0.7 * (number % 2), "seed": number} | more


def settled(url):
    """Wait until nothing runs; returns how many texts ended in which way."""
    for _ in range(600):
        health = httpx.get(f"{url}/health").json()
        if health["running"] == health["waiting"] == 0:
            lines = httpx.get(f"{url}/metrics").text.splitlines()
            found = [line for line in lines if line.startswith("vllm:request_success_total")]
            return {line.split('finished_reason="')[1].split('"')[0]: float(line.split()[-1]) for line in found}
        time.sleep(0.05)
    raise AssertionError(f"still at work: {health}")


@pytest.fixture
def gated(tiny_folder):
    """A set-up whose passes wait for an event."""
    setup, gate = Setup(str(tiny_folder), None, "ngram", "fixed:6"), Event()
    setup.refresh()
    score = setup.target.score
    setup.target.score = lambda requests: (gate.wait(60), score(requests))[1]
    yield setup, gate
    gate.set()


def test_seventeen_at_once_get_what_each_would_get_alone(url, alone):
    with ThreadPoolExecutor(17) as pool:
        found = list(pool.map(lambda n: httpx.post(f"{url}{CHAT}", json=asked(n), timeout=120).json(), range(17)))
    for number, one in enumerate(found):
        body = asked(number)
        theirs = alone(body["messages"], temperature=body["temperature"], seed=number)
        assert one["choices"][0]["message"]["content"] == theirs.text


def test_clients_that_go_away_free_their_place(gated):
    setup, gate = gated
    with running(setup, most_running=2) as server:
        for stream in (True, False):
            gate.clear()
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"{server.url}{CHAT}", json=asked(stream=stream, max_tokens=1500), timeout=0.7)
            gate.set()
        with httpx.stream("POST", f"{server.url}{CHAT}", json=asked(stream=True, max_tokens=1500)) as answer:
            next(answer.iter_lines())
        assert settled(server.url) == {"cancelled": 3}
        assert httpx.post(f"{server.url}{CHAT}", json=asked(), timeout=60).status_code == 200


def test_one_too_many_is_told_when_to_come_again(gated):
    setup, gate = gated
    with running(setup, most_running=1, most_waiting=1) as server, ThreadPoolExecutor(2) as pool:
        first = [pool.submit(httpx.post, f"{server.url}{CHAT}", json=asked(n), timeout=60) for n in range(2)]
        while sum(httpx.get(f"{server.url}/health").json()[what] for what in ("running", "waiting")) < 2:
            time.sleep(0.01)
        refused = httpx.post(f"{server.url}{CHAT}", json=asked())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        gate.set()
        assert [one.result().status_code for one in first] == [200, 200]
        many = httpx.post(f"{server.url}{CHAT}", json=asked(n=3))
        assert many.status_code == 400
        assert "takes 2" in many.json()["error"]["message"]


@pytest.mark.parametrize("more", [{"stream": True}, {}, {"n": 3}, {"n": 3, "stream": True}])
def test_clients_that_leave_while_they_wait_give_up_their_places(gated, more):
    setup, gate = gated
    with running(setup, most_running=1, most_waiting=3) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(httpx.post, f"{server.url}{CHAT}", json=asked(), timeout=60)
        while httpx.get(f"{server.url}/health").json()["running"] < 1:
            time.sleep(0.01)
        for _ in range(4):
            with pytest.raises(httpx.TimeoutException):
                httpx.post(f"{server.url}{CHAT}", json=asked(**more), timeout=0.3)
            while httpx.get(f"{server.url}/health").json()["waiting"]:
                time.sleep(0.01)
        last = pool.submit(httpx.post, f"{server.url}{CHAT}", json=asked(n=3), timeout=60)
        while httpx.get(f"{server.url}/health").json()["waiting"] < 3:
            assert not last.done()
            time.sleep(0.01)
        gate.set()
        assert (first.result().status_code, last.result().status_code) == (200, 200)
        assert settled(server.url) == {"cancelled": 4.0 * more.get("n", 1), "length": 4.0}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_model_that_fails_in_mid_text_is_an_error_object_and_the_next_text_is_written(tiny_folder):
    setup, broken = Setup(str(tiny_folder), None, "ngram", "fixed:6"), Event()
    setup.refresh()
    score, left = setup.target.score, [4]

    def failing(requests):
        left[0] -= 1
        if left[0] == 0:
            raise RuntimeError("out of memory")
        return score(requests)

    setup.target.score = failing
    with running(setup) as server:
        found = httpx.post(f"{server.url}{CHAT}", json=asked(stream=True), timeout=60)
        assert found.status_code == 200
        assert '"error"' in found.text
        assert "ask again" in found.text
        assert httpx.post(f"{server.url}{CHAT}", json=asked(), timeout=60).status_code == 200
        left[0] = 4
        whole = httpx.post(f"{server.url}{CHAT}", json=asked(), timeout=60)
        assert (whole.status_code, whole.json()["error"]["type"]) == (500, "server_error")
        assert settled(server.url) == {"error": 2, "length": 1}
    assert not broken.is_set()


def test_keys_and_bodies(tiny_folder):
    setup = Setup(str(tiny_folder), None, "none", "goodput")
    with running(setup, keys=("sesame", "second"), most_bytes=10_000) as server:
        for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": "sesame"}):
            for refused in (
                httpx.get(f"{server.url}/v1/models", headers=headers),
                httpx.post(f"{server.url}{CHAT}", json=asked(), headers=headers),
            ):
                assert refused.status_code == 401
                assert refused.json()["error"]["code"] == "invalid_api_key"
        assert httpx.get(f"{server.url}/health").status_code == 200
        known = {"authorization": "Bearer second"}
        prediction = {"type": "content", "content": "x"}  # without drafters it is of no use, and does no harm
        found = httpx.post(f"{server.url}{CHAT}", json=asked(prediction=prediction), headers=known, timeout=60)
        assert found.status_code == 200
        large = httpx.post(f"{server.url}{CHAT}", json=asked(user="x" * 20_000), headers=known)
        parts = (b"x" * 6_000 for _ in range(9))  # says no length
        endless = httpx.post(f"{server.url}{CHAT}", content=parts, headers=known)
        for refused in (large, endless):
            assert (refused.status_code, refused.json()["error"]["type"]) == (413, "invalid_request_error")


def test_stopping_finishes_what_is_being_written(tiny_folder, alone):
    setup = Setup(str(tiny_folder), None, "ngram", "fixed:6")
    with ThreadPoolExecutor(3) as pool:
        with running(setup, most_running=1) as server:
            some = [pool.submit(httpx.post, f"{server.url}{CHAT}", json=asked(n), timeout=60) for n in range(3)]
            while sum(httpx.get(f"{server.url}/health").json()[what] for what in ("running", "waiting")) < 1:
                time.sleep(0.01)
        found = [one.result() for one in some if one.exception() is None]
    assert found
    assert all(one.json()["usage"]["completion_tokens"] == 24 for one in found if one.status_code == 200)
    assert {one.status_code for one in found} <= {200, 429}
