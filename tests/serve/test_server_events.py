"""Streams as clients and proxies see them: lines that stay whole, and signs of life."""

from __future__ import annotations

import asyncio
import json
from threading import Timer
from types import SimpleNamespace

import httpx2 as httpx
import pytest

from draftwood.serve import leaving
from draftwood.serve.answer import Update
from draftwood.serve.openai.responses import ResponsesRequest
from draftwood.serve.openai.shapes import Shape
from draftwood.serve.responding import ResponseUnderWay
from draftwood.serve.server_events import event, kept_alive
from draftwood.serve.streaming import ChatForm, events
from tests.serve.conftest import running
from tests.serve.test_many_clients import asked, gated  # noqa: F401 - a fixture

ODD = "a\u2028b\u2029c\x85d\x0b\x0c\x1c\x1d\x1e\r\n\x00\ud800\u00e9\U0001f333"


def test_an_event_is_one_line_for_every_client():
    lines = event({"text": ODD}, "some").decode().splitlines()
    assert lines[0] == "event: some"
    assert lines[2:] == [""]
    assert json.loads(lines[1].removeprefix("data: "))["text"] == ODD
    assert "\u00e9\U0001f333" in lines[1]


@pytest.mark.parametrize("path", ["/v1/responses"])
def test_streams_have_no_odd_line_ends(url, path):
    body = {"input": "hi", "instructions": "a\u2028b\x85c", "stream": True, "max_output_tokens": 2}
    found = httpx.post(f"{url}{path}", json=body, timeout=60)
    for line in found.content.decode().splitlines():
        assert line == "" or line.startswith((":", "event: ", "data: {"))
    assert json.loads(found.text.split("data: ")[1].split("\n")[0])["response"]["instructions"] == "a\u2028b\x85c"


def test_silence_is_filled_with_comments_and_nothing_is_lost():
    async def slow():
        for number in range(3):
            await asyncio.sleep(0.05)
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


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", asked(stream=True)),
        ("/v1/completions", {"prompt": "hi", "max_tokens": 4, "stream": True}),
        ("/v1/responses", {"input": "hi", "max_output_tokens": 4, "stream": True}),
    ],
)
def test_who_waits_in_the_queue_hears_that_the_server_lives(gated, path, body, monkeypatch):  # noqa: F811
    setup, gate = gated
    monkeypatch.setattr(leaving, "SILENCE", 0.05)
    first = asked(stream=True)
    with (
        running(setup, most_running=1) as server,
        httpx.stream("POST", f"{server.url}/v1/chat/completions", json=first, timeout=60),
    ):
        Timer(0.7, gate.set).start()
        found = httpx.post(f"{server.url}{path}", json=body, timeout=60)
    lines = found.text.splitlines()
    assert sum(line.startswith(":") for line in lines) >= 3
    assert found.headers["x-accel-buffering"] == "no"
    assert "error" not in found.text.replace('"error":null', "")


@pytest.mark.parametrize("answers", [0, 1, 2], ids=["a response", "a chat", "a chat of two"])
def test_whatever_fails_in_a_stream_is_told_and_ends_it(answers, caplog):
    async def updates():
        yield Update((), 1)
        raise ZeroDivisionError

    async def read():
        some = [
            SimpleNamespace(
                updates=updates, index=place, certain=0, has_logprobs=False, job=SimpleNamespace(cancel=list)
            )
            for place in range(max(1, answers))
        ]
        found = ResponseUnderWay(ResponsesRequest(input="hi"), some[0], "tiny", None).events()
        if answers:
            found = events(some, ChatForm(), Shape("chat.completion", "x", "tiny"), with_usage=False, traced=False)
        return [one async for one in found]

    async def in_time():
        return await asyncio.wait_for(read(), 30)

    *_, last = asyncio.run(in_time())
    told = json.loads(last.decode().partition("data: ")[2])
    if not answers:
        assert told.pop("type") == "error"
        assert last.startswith(b"event: error\n")
    assert "ZeroDivisionError" in (told if not answers else told["error"])["message"]
    assert "ZeroDivisionError" in caplog.text
