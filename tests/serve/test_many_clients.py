"""Many clients at once, some of which go away, are refused, or fail; nobody else notices."""

import time
from concurrent.futures import ThreadPoolExecutor
from queue import Queue
from threading import Event

import httpx2 as httpx
import pytest

import draftwood
from draftwood.api.prompts import render
from draftwood.serve.asking import ChoiceMaker, Wishes
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import CompletionRequest
from draftwood.serve.inbox import QueueFullError, ServedText
from draftwood.serve.worker import Worker
from tests.serve.conftest import running
from tests.serve.session import tokenizer_of_bytes, toy

CHAT = "/v1/chat/completions"


def asked(number=0, **more):
    messages = [{"role": "user", "content": f"hello {number}"}]
    return {"messages": messages, "max_tokens": 24, "temperature": 0.7 * (number % 2), "seed": number} | more


def post(server, body, path=CHAT, **more):
    return httpx.post(f"{server.url}{path}", json=body, **{"timeout": 60} | more)


def wait(url, **wanted):
    """Wait until as many texts run and wait; returns how many texts have ended in which way."""
    for _ in range(6000):
        health = httpx.get(f"{url}/health", timeout=60).json()
        if all(health[name] == count for name, count in wanted.items()):
            lines = httpx.get(f"{url}/metrics", timeout=60).text.splitlines()
            found = [line for line in lines if line.startswith("vllm:request_success_total")]
            return {line.split('finished_reason="')[1].split('"')[0]: float(line.split()[-1]) for line in found}
        time.sleep(0.005)
    raise AssertionError(f"not {wanted}: {health}")


@pytest.fixture
def gated():
    """A set-up whose passes wait for an event."""
    setup, gate = toy(), Event()
    score = setup.target.score
    setup.target.score = lambda requests: (gate.wait(60), score(requests))[1]
    yield setup, gate
    gate.set()


def test_seventeen_at_once_get_what_each_would_get_alone():
    setup = toy()
    with running(setup) as server, ThreadPoolExecutor(17) as pool:
        found = list(pool.map(lambda number: post(server, asked(number), timeout=120).json(), range(17)))
    for number, one in enumerate(found):
        body = asked(number)
        alone = draftwood.generate(
            setup.target, body["messages"], tokenizer=tokenizer_of_bytes(), drafters="none",
            temperature=body["temperature"], seed=number, max_new_tokens=24,
        )  # fmt: skip
        assert one["choices"][0]["message"]["content"] == alone.text


def test_clients_that_go_away_free_their_place(gated):
    setup, gate = gated
    with running(setup, most_running=2) as server:
        for stream in (True, False):
            gate.clear()
            with pytest.raises(httpx.TimeoutException):
                post(server, asked(stream=stream, max_tokens=15_000), timeout=1)
            gate.set()
        with httpx.stream("POST", f"{server.url}{CHAT}", json=asked(stream=True, max_tokens=15_000)) as answer:
            next(answer.iter_lines())
        assert wait(server.url, running=0, waiting=0) == {"abort": 3}
        assert post(server, asked()).status_code == 200


def test_one_too_many_is_told_when_to_come_again(gated):
    setup, gate = gated
    with running(setup, most_running=1, most_waiting=1) as server, ThreadPoolExecutor(2) as pool:
        first = [pool.submit(post, server, asked(n)) for n in range(2)]
        wait(server.url, running=1, waiting=1)
        refused = post(server, asked())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert "try again later" in refused.json()["error"]["message"]
        gate.set()
        assert [one.result().status_code for one in first] == [200, 200]
        many = post(server, asked(n=3))
        assert many.status_code == 400
        assert "takes 2" in many.json()["error"]["message"]


@pytest.mark.parametrize("more", [{"stream": True}, {}, {"n": 3}, {"n": 3, "stream": True}])
def test_clients_that_leave_while_they_wait_give_up_their_places(gated, more):
    setup, gate = gated
    with running(setup, most_running=1, most_waiting=3) as server, ThreadPoolExecutor(2) as pool:
        first = pool.submit(post, server, asked())
        wait(server.url, running=1)
        for _ in range(2):
            with pytest.raises(httpx.TimeoutException):
                post(server, asked(**more), timeout=1)
            wait(server.url, waiting=0)
        last = pool.submit(post, server, asked(n=3))
        wait(server.url, waiting=3)  # all places
        gate.set()
        assert (first.result().status_code, last.result().status_code) == (200, 200)
        assert wait(server.url, running=0, waiting=0) == {"abort": 2.0 * more.get("n", 1), "length": 4.0}


@pytest.fixture
def reading(monkeypatch):
    """What the requests say that were read, of which long ones wait for an event."""
    read, gate = [], Event()

    def slow(messages, tokenizer, **more):
        read.append(messages[0]["content"])
        assert "long" not in read[-1] or gate.wait(60)
        return render(messages, tokenizer, **more)

    monkeypatch.setattr("draftwood.serve.asking.render", slow)
    yield read, gate
    gate.set()


def long(number):
    return asked(zzz="x" * 70_000, messages=[{"role": "user", "content": f"long {number}"}])


def test_requests_that_are_read_wait_for_nobody_who_has_left_and_hold_nobody_up(reading):
    read, gate = reading
    with running(toy(), most_running=1, most_waiting=3) as server, ThreadPoolExecutor(4) as pool:
        staying = [pool.submit(post, server, long(0))]
        wait(server.url, running=0, waiting=1)
        for number in range(6):  # and leave before they are read
            with pytest.raises(httpx.TimeoutException):
                post(server, long(number), timeout=0.5)
            wait(server.url, running=0, waiting=1)
        staying += [pool.submit(post, server, long(n)) for n in range(6, 9)]
        wait(server.url, running=0, waiting=4)
        refused = post(server, asked())
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        gate.set()
        assert [one.result().status_code for one in staying] == [200] * 4  # each had its place
        wait(server.url, running=0, waiting=0)
    assert sorted(read) == [f"long {number}" for number in (0, 6, 7, 8)]


def test_prompts_of_who_has_left_are_not_tokenized():
    maker = ChoiceMaker(toy(), None, Wishes())
    maker.left.set()
    with pytest.raises(ApiError, match="has gone"):
        maker.completions(CompletionRequest(prompt=["a", "b"]))


def test_a_short_request_and_the_server_s_health_are_answered_while_a_long_one_is_read(reading):
    _, gate = reading
    with running(toy()) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, server, long(0))
        wait(server.url, running=0, waiting=1)
        assert post(server, asked()).status_code == 200
        assert post(server, {"prompt": "hi"}, "/tokenize").status_code == 200
        assert not first.done()
        gate.set()
        assert first.result().status_code == 200


STREAMS = [
    (CHAT, asked()), (CHAT, asked(n=2)), ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi", "max_output_tokens": 24}),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("path", "body"), STREAMS)
@pytest.mark.parametrize("who", ["model", "processor"])
def test_what_fails_in_mid_text_is_an_error_object_and_the_next_text_is_written(path, body, stream, who, caplog):
    setup, left = toy(), [4]
    original, score = setup.request, setup.target.score

    def failing(*given):
        left[0] -= 1
        if left[0] == 0:
            raise ZeroDivisionError("out of memory")
        return score(*given) if who == "model" else given[1]

    if who == "model":
        setup.target.score = failing
    else:
        setup.request = lambda *given, **more: original(*given, logits_processor=[failing], **more)
    with running(setup) as server:
        found = post(server, body | {"stream": stream}, path)
        assert found.status_code == (200 if stream else 500)
        if stream:
            *_, told = found.text.removesuffix("data: [DONE]\n\n").split("data: ")
            assert found.text.endswith("[DONE]\n\n") == (path != "/v1/responses")
            assert ('event: error\ndata: {"type":"error"' in found.text) == (path == "/v1/responses")
        else:
            told = found.json()["error"]["message"]
            assert found.json()["error"]["type"] == "server_error"
        assert "ask again" in told
        assert not any(word in found.text for word in ("ZeroDivisionError", "out of memory"))
        assert "out of memory" in caplog.text
        left[0] = -1  # nothing fails any more
        assert post(server, body, path).status_code == 200
        assert wait(server.url, running=0, waiting=0)["error"] >= 1


def test_keys_and_bodies():
    with running(toy("none", "goodput"), keys=("sesame", "second"), most_bytes=10_000) as server:
        for headers in ({}, {"authorization": "Bearer nonsense"}, {"authorization": "sesame"}):
            for refused in (
                httpx.get(f"{server.url}/v1/models", headers=headers),
                post(server, asked(), headers=headers),
            ):
                assert refused.status_code == 401
                assert refused.json()["error"]["code"] == "invalid_api_key"
        assert httpx.get(f"{server.url}/health").status_code == 200
        known = {"authorization": "Bearer second"}
        prediction = {"type": "content", "content": "x"}  # without drafters it is of no use, and does no harm
        found = post(server, asked(prediction=prediction), headers=known)
        assert found.status_code == 200
        large = post(server, asked(user="x" * 20_000), headers=known)
        parts = (b"x" * 6_000 for _ in range(9))  # says no length
        endless = httpx.post(f"{server.url}{CHAT}", content=parts, headers=known)
        for refused in (large, endless):
            assert (refused.status_code, refused.json()["error"]["type"]) == (413, "invalid_request_error")


# The worker alone: what no client can time.


@pytest.fixture
def worker():
    workers = []

    def start(setup, **settings):
        workers.append(Worker(setup, **{"most_running": 4, "most_waiting": 8} | settings))
        workers[-1].start()
        return workers[-1]

    yield start
    for one in workers:
        one.stop(10)


def submitted(worker, setup, tokens=24, **settings):
    """A job that was submitted, and a function that waits for its end and returns why it ended."""
    told = Queue()
    job = ServedText(setup.request([1, 2], max_new_tokens=tokens, **settings), told.put)
    worker.submit([job])
    return job, lambda: next(one.finish for one in iter(lambda: told.get(timeout=60), None) if one.finish)


def test_a_client_that_goes_while_its_text_is_begun_is_noticed_before_the_next_pass(worker):
    setup = toy()
    running = worker(setup)
    told = Queue()
    job = ServedText(setup.request([1, 2], max_new_tokens=1000), told.put)
    running._prefixes.begin = lambda *_: job.cancel()  # when it waits no more, and is no text yet
    running.submit([job])
    assert next(one.finish for one in iter(lambda: told.get(timeout=60), None) if one.finish) == "cancelled"


def test_stopping_serves_those_that_wait_and_refuses_others(worker):
    setup = toy()
    running = worker(setup, most_running=1)
    ends = [submitted(running, setup)[1] for _ in range(4)]
    running.stop(60)
    assert [end() for end in ends] == ["length"] * 4
    with pytest.raises(QueueFullError, match="being stopped"):
        submitted(running, setup)


def test_the_load_policy_hears_of_the_queue():
    setup = toy("ngram", "fixed:4+load:full=4")
    worker = Worker(setup, 2, 8)
    (policy,) = setup.planner.policies
    assert policy.queue() == 0
    worker.inbox._texts.extend([object()] * 3)
    assert policy.queue() == 3


def test_a_warm_up_is_in_no_metric_and_no_memory():
    setup = toy("ngram+memory")
    with running(setup, warms_up=True) as server:
        found = post(server, asked()).json()
        wait(server.url, running=0)
        text = httpx.get(f"{server.url}/metrics").text
    assert f'vllm:generation_tokens_total{{model_name="tiny"}} {found["usage"]["completion_tokens"]}.0' in text
    assert len(setup.drafters[1]._memory.answers()) == 1
