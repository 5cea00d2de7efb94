"""Under which names a server answers, and which keys it takes."""

import asyncio

import httpx2 as httpx
import pytest

from draftwood.errors import UsageError
from draftwood.serve.guards import Guard, hosts_of
from draftwood.serve.guards import listed_keys as listed


async def _served(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def status(app, **headers):
    """The status with which a guard around an application answers a request with these headers."""
    told = []

    async def send(message):
        told.append(message)

    sent = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    asyncio.run(app({"type": "http", "method": "GET", "path": "/v1/models", "headers": sent}, None, send))
    return told[0]["status"]


OWN = ("localhost", "localhost:80", "LOCALHOST.", "127.0.0.1:8000", "127.9.9.9", "[::1]:8000", "[::1]", "::1")
OTHER = ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example", "", "10.1.2.3")


@pytest.mark.parametrize("host", OWN)
def test_the_loopback_has_many_names(host):
    assert status(Guard(_served, hosts_of("127.0.0.1")), host=host) == 200


@pytest.mark.parametrize("host", OTHER)
def test_names_of_others_are_refused(host):
    assert status(Guard(_served, hosts_of("127.0.0.1")), host=host) == 403


@pytest.mark.parametrize(
    ("hosts", "host", "expected"),
    [
        (("mine.example",), "Mine.Example:443", 200),
        (("mine.example",), "evil.example", 403),
        (("*",), "evil.example", 200),
        (hosts_of("10.1.2.3"), "10.1.2.3:8000", 200),
        (hosts_of("10.1.2.3"), "10.1.2.4", 403),
        (hosts_of("0.0.0.0"), "10.1.2.4:8000", 200),
        (hosts_of("::"), "[2001:db8::1]:8000", 200),
        (hosts_of("0.0.0.0"), "evil.example", 403),
    ],
)
def test_the_address_and_the_names_that_were_given(hosts, host, expected):
    assert status(Guard(_served, hosts), host=host) == expected


def test_who_names_no_host_is_no_browser():
    assert status(Guard(_served, ())) == 200


@pytest.mark.parametrize("path", ["/", "/health", "/v1/models", "/metrics"])
def test_a_server_tells_others_nothing(url, path):
    found = httpx.get(f"{url}{path}", headers={"host": "evil.example"})
    assert found.status_code == 403
    assert "--allowed-host" in found.json()["error"]["message"]


@pytest.mark.parametrize("keys", ["one,two", "one, two", "one,two\n", " one ,\n two,", "one\ntwo\r\n"])
def test_blanks_and_line_ends_are_no_part_of_a_key(keys):
    guard = Guard(_served, keys=listed(keys))
    for key, expected in (("one", 200), ("two", 200), ("", 401), ("three", 401)):
        assert status(guard, authorization=f"Bearer {key}") == expected


def test_keys_that_nobody_could_guess_are_needed():
    assert listed("") == listed(" \n") == []
    for keys in (["one", ""], [" "]):
        with pytest.raises(UsageError, match="an API key is empty"):
            Guard(_served, keys=keys)
    with pytest.raises(UsageError, match="an API key is empty"):
        listed(" , ")
