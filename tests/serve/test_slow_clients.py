"""Clients that send nothing, or a letter now and then: they are closed, and others are served meanwhile."""

from __future__ import annotations

import json
import socket
import time

import httpx2 as httpx
import pytest

from draftwood.serve.guards import Guard, PatientProtocol
from tests.serve.conftest import running
from tests.serve.session import toy

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}


@pytest.fixture(scope="module")
def port():
    """Port of a server that waits for two seconds, and no longer."""

    class Hasty(PatientProtocol):
        seconds = 2.0

    def hasten(app):
        (limit,) = [one for one in app.user_middleware if one.cls is Guard]
        limit.kwargs["seconds"] = 2.0
        return {"http": Hasty, "timeout_keep_alive": 1}

    with running(toy("none", "goodput"), hasten) as server:
        yield server.servers[0].sockets[0].getsockname()[1]


def until_closed(client):
    """Send a letter now and then until the server closes the connection; returns what it has said."""
    said = b""
    client.settimeout(0.1)
    while True:
        try:
            client.sendall(b"a")
            part = client.recv(65536)
            if not part:
                return said
            said += part
        except TimeoutError:
            continue
        except OSError:  # closed while we were sending
            return said


def connected(port, sent=b""):
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(sent)
    return client


def test_a_connection_rests_between_two_requests_for_longer_than_a_header_may_take():
    class Hasty(PatientProtocol):
        seconds = 0.1

    with running(toy("none", "goodput"), lambda _: {"http": Hasty}) as server, httpx.Client() as client:
        for _ in range(2):
            found = client.get(f"{server.url}/health")
            time.sleep(0.5)
        assert found.headers["keep-alive"] == "timeout=120"
        assert len(server.server_state.connections) == 1


@pytest.mark.parametrize("before", [b"", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_header_that_never_ends(port, before):
    with connected(port, before) as client:
        if before:
            said = b""
            while not said.endswith(b"}"):
                said += client.recv(65536)
        client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nX-slow: ")
        assert httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=CHAT, timeout=60).status_code == 200
        assert until_closed(client) == b""


def test_a_client_that_says_nothing(port):
    with connected(port) as client:
        assert client.recv(1) == b""


def test_a_body_that_never_comes(port):
    header = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with connected(port, header + b'Content-Length: 999\r\n\r\n{"messages": ') as client:
        said = b""
        while part := client.recv(65536):  # up to the end of the connection
            said += part
        assert said.startswith(b"HTTP/1.1 408")
        assert json.loads(said.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


def test_a_text_that_takes_longer_is_no_slow_client(port):
    body = CHAT | {"max_tokens": 1500, "stream": True}
    with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/chat/completions", json=body, timeout=120) as answer:
        lines = []
        for line in answer.iter_lines():
            lines.append(line)
            if len(lines) == 1:
                time.sleep(1.2)  # a slow reader, of a text that was asked for long ago
        assert "data: [DONE]" in lines


def test_three_hundred_connections_that_say_nothing_harm_nobody_and_go(port):
    idle = [connected(port) for _ in range(300)]
    try:
        assert httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=CHAT, timeout=60).status_code == 200
        assert {client.recv(1) for client in idle} == {b""}
    finally:
        for client in idle:
            client.close()
