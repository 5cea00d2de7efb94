"""Streams as clients and proxies see them: lines that stay whole, and signs of life."""

import asyncio
import json
import signal
from concurrent.futures import ThreadPoolExecutor

import httpx2 as httpx
import pytest

from draftwood.serve import streaming
from draftwood.serve.shapes import event
from draftwood.serve.streaming import kept_alive
from tests.serve.conftest import running
from tests.serve.session import toy
from tests.serve.test_many_clients import STREAMS, asked, gated, wait  # noqa: F401 - a fixture

ODD = "a\u2028b\u2029c\x85d\x0b\x0c\x1c\x1d\x1e\r\n\x00\ud800\u00e9\U0001f333"


def test_an_event_is_one_line_for_every_client():
    lines = event({"text": ODD}, "some").decode().splitlines()
    assert lines[0] == "event: some"
    assert lines[2:] == [""]
    assert json.loads(lines[1].removeprefix("data: "))["text"] == ODD
    assert "\u00e9\U0001f333" in lines[1]


def test_streams_have_no_odd_line_ends(url):
    body = {"input": "hi", "instructions": "a\u2028b\x85c", "stream": True, "max_output_tokens": 2}
    found = httpx.post(f"{url}/v1/responses", json=body, timeout=60)
    for line in found.content.decode().splitlines():
        assert line == "" or line.startswith((":", "event: ", "data: {"))
    assert json.loads(found.text.split("data: ")[1].split("\n")[0])["response"]["instructions"] == "a\u2028b\x85c"


def test_silence_is_filled_with_comments_and_nothing_is_lost():
    async def slow():
        for number in range(3):
            await asyncio.sleep(0.2)
            yield b"%d" % number

    async def read():
        return [some async for some in kept_alive(slow(), 0.01)]

    found = asyncio.run(read())
    assert [some for some in found if not some.startswith(b":")] == [b"0", b"1", b"2"]
    assert len(found) > 6
    assert all(some.endswith(b"\n\n") for some in found if some.startswith(b":"))


def test_a_stream_that_is_left_ends_its_source():
    ended = []

    async def endless():
        try:
            await asyncio.sleep(60)
            yield b""
        finally:
            ended.append(True)

    async def leave():
        stream = kept_alive(endless(), 0.01)
        assert (await anext(stream)).startswith(b":")
        await stream.aclose()
        await asyncio.sleep(0)

    asyncio.run(leave())
    assert ended == [True]


def test_an_error_of_the_source_is_raised():
    async def failing():
        yield b"a"
        raise ValueError("broken")

    async def read():
        return [some async for some in kept_alive(failing(), 1)]

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(read())


@pytest.mark.parametrize(("path", "body"), STREAMS)
def test_who_waits_in_the_queue_hears_that_the_server_lives(gated, path, body, monkeypatch):  # noqa: F811
    setup, gate = gated
    monkeypatch.setattr(streaming, "SILENCE", 0.02)
    first, lines = asked(stream=True), []
    with (
        running(setup, most_running=1) as server,
        httpx.stream("POST", f"{server.url}/v1/chat/completions", json=first, timeout=60),
        httpx.stream("POST", f"{server.url}{path}", json=body | {"stream": True}, timeout=60) as found,
    ):
        for line in found.iter_lines():
            lines.append(line)
            if sum(line.startswith(":") for line in lines) == 3:
                gate.set()
    assert found.headers["x-accel-buffering"] == "no"
    assert any(line.startswith("data: ") for line in lines)
    assert not any('"error":{' in line for line in lines)


@pytest.mark.parametrize(("path", "body"), STREAMS)
@pytest.mark.parametrize("times", [1, 2])  # that Ctrl-C is pressed: with a short time to end, and a long one
def test_when_the_server_is_stopped_each_stream_ends_with_its_last_event(path, body, times, caplog):
    def ended(n):
        with httpx.stream("POST", f"{server.url}{path}", json=body | more, timeout=60) as found:
            return [line for line in found.iter_lines() if line.startswith("data: ")]

    more = {"stream": True, "max_tokens": 30_000, "max_output_tokens": 30_000}
    texts = body.get("n", 1)
    with (
        running(toy(), most_running=texts, stop_seconds=0.1 if times == 1 else 60.0) as server,
        ThreadPoolExecutor(2) as pool,
    ):
        first = pool.submit(ended, 1)
        wait(server.url, running=texts)
        second = pool.submit(ended, 2)
        wait(server.url, running=texts, waiting=texts)
        for _ in range(times):
            server.handle_exit(signal.SIGINT, None)
        written, waited = first.result(), second.result()
    if path == "/v1/responses":
        assert '"type":"response.incomplete"' in written[-1]
        assert '"type":"error"' in waited[-2]
        assert '"type":"response.failed"' in waited[-1]
        assert '"error":{"message":"the text was ended before its time' in waited[-1]
    else:
        assert written.pop() == waited.pop() == "data: [DONE]"
        assert sum('"finish_reason":"length"' in line for line in written) == texts
        assert "ended before its time" in waited[-1]
    assert [one.partition(":")[0] for one in server.said] == ["stopping", "stopping at once"][:times]
    assert caplog.text == ""
