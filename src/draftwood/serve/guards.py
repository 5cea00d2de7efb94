"""What stands before the routes: one form for all requests, checks of host names, API keys, the size of bodies and
slow clients; and the end.

A page of another site can let its own name point to this machine (DNS rebinding); the browser then takes the
server for that site and sends the site's name as ``Host``. So requests to unknown names are refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import signal
import socket
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

import uvicorn
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from draftwood.errors import UsageError
from draftwood.serve.errors import BAD_REQUEST, FORBIDDEN, TOO_LARGE, TOO_SLOW, UNAUTHORIZED, UNREADABLE, ApiError
from draftwood.serve.meanings import CHAT, COUNT, EMBEDDINGS, MESSAGES, RESPONSES, TEXT
from draftwood.serve.worker import Worker

ALL_HOSTS = "*"
_EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""To listen there is to listen on all addresses. ``Host`` may be any address then: rebinding needs a name."""
_PORT = re.compile(r":\d*$")
_OPEN = ("/", "/health")
"""Paths that need no key: the page asks for one itself."""
_ABSOLUTE = re.compile(r"https?://([^/?#]*)", re.IGNORECASE)
_SHORT = {
    path.removeprefix("/v1"): path for path in (CHAT, TEXT, RESPONSES, MESSAGES, COUNT, EMBEDDINGS, "/v1/models")
}


class Guard:
    """ASGI middleware that lets only permitted requests through to an application.

    Their ``Host`` is the loopback's or one of ``hosts``, names and addresses without ports (``*`` allows any);
    requests without one pass, since no browser sends them. Where there are ``keys``, they have one, as
    `authorization_of` finds it; `UsageError` for a key that is empty. Bodies have at most ``most`` bytes, and
    arrive within ``seconds``: else an `HTTPException` is raised while the application reads them, which it must
    answer. ``on_error`` is called with the status of each response that is an error.
    """

    def __init__(
        self, app: Any, hosts: Sequence[str] = (), keys: Sequence[str] = (), most: int = 16 << 20,
        seconds: float = 120.0, on_error: Callable[[int], None] = lambda _status: None,
    ) -> None:  # fmt: skip
        self._app, self._hosts = app, {_plain(host) for host in hosts}
        self._digests = [_digest(key.encode()) for key in usable_keys(keys)]
        self._most, self._seconds, self._on_error = most, seconds, on_error

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        scope = _in_one_form(scope)
        read = 0
        deadline: float | None = asyncio.get_running_loop().time() + self._seconds

        async def watched(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] >= BAD_REQUEST:
                self._on_error(message["status"])
            await send(message)

        async def counted() -> Any:
            nonlocal read, deadline
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(TOO_SLOW) from error
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(TOO_LARGE)
            if not message.get("more_body", False):  # the client sends nothing more, but may disconnect
                deadline = None
            return message

        if (refusal := self._refusal(scope["path"], scope["headers"])) is not None:
            return await refusal.response(scope["path"])(scope, receive, watched)
        return await self._app(scope, counted, watched)

    def _refusal(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> ApiError | None:
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if odd := [host for host in hosts if not self._is_known(_plain(host))]:
            said = (
                f"{odd[0][:200]!r} is no name of this server: if it is one of yours, start it with "
                "--allowed-host and this name"
            )
            return ApiError(said, FORBIDDEN, code="host_not_allowed")
        given = Headers(raw=list(headers))
        if self._digests and path not in _OPEN and not self._has_key(authorization_of(given) or ""):
            said = "this server asks for an API key: send it as 'Authorization: Bearer KEY'"
            return ApiError(said, UNAUTHORIZED, code="invalid_api_key")
        if (coding := given.get("content-encoding", "").strip().lower()) not in ("", "identity"):
            said = (
                f"the body is compressed ({coding[:40]!r}): send it as it is, without the header Content-Encoding"
            )
            return ApiError(said, UNREADABLE)
        length = given.get("content-length", "0")
        if length.isdigit() and int(length) > self._most:
            return ApiError(f"the body is larger than {self._most} bytes", TOO_LARGE)
        return None

    def _is_known(self, host: str) -> bool:
        known = self._hosts
        if not known.isdisjoint({host, ALL_HOSTS}) or _is_loopback(host):
            return True
        return not known.isdisjoint(_EVERYWHERE) and _is_address(host)

    def _has_key(self, authorization: str) -> bool:
        kind, _, given = authorization.partition(" ")
        digest = _digest(given.strip().encode("latin-1"))
        found = [hmac.compare_digest(digest, known) for known in self._digests]  # constant time
        return kind.lower() == "bearer" and any(found)


def _in_one_form(scope: Any) -> Any:
    """Return an HTTP request in the one form that routes know.

    Proxies may ask for ``http://host/path`` (RFC 9112, 3.2.2); the host is then one more ``Host`` to be checked.
    ``HEAD`` is as ``GET``: servers leave the body out.
    """
    path, headers = scope["path"], scope["headers"]
    if (found := _ABSOLUTE.match(path)) is not None:
        host = found[1].rpartition("@")[2]
        path, headers = path[found.end() :] or "/", [*headers, (b"host", host.encode())]
    if path.startswith("/models/"):
        path = f"/v1{path}"
    method = "GET" if scope["method"] == "HEAD" else scope["method"]
    return {**scope, "method": method, "path": _SHORT.get(path, path), "headers": headers}


def hosts_of(address: str) -> tuple[str, ...]:
    """Return the host names by which clients may reach a server that listens on ``address``."""
    if address not in _EVERYWHERE:
        return (address,)
    name = socket.gethostname()
    return address, name, f"{name}.local", socket.getfqdn()


def _is_loopback(host: str) -> bool:
    if _is_address(host):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")  # RFC 6761: these are not looked up by DNS


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _plain(host: str) -> str:
    """Return a host without its port, its brackets and its last dot."""
    found = host.strip().lower()
    if found.startswith("["):  # IPv6
        return found[1:].partition("]")[0]
    return found if _is_address(found) else _PORT.sub("", found).rstrip(".")


def usable_keys(keys: Sequence[str]) -> list[str]:
    """Return keys as clients send them, without blanks around them; `UsageError` for one that is empty then."""
    found = [key.strip() for key in keys]
    if "" in found:
        raise UsageError("an API key is empty, and everybody knows that one: write some letters, or leave it out")
    return found


def listed_keys(keys: str) -> list[str]:
    """Return the keys of a list with commas or line ends between them; none where it is blank.

    `UsageError` for a list that has commas and no key.
    """
    found = [key for key in map(str.strip, re.split(r"[,\r\n]", keys)) if key]
    return found if found or not keys.strip() else usable_keys([""])


def authorization_of(headers: Headers) -> str | None:
    """Return what ``Authorization`` says, or the same of an ``x-api-key``, as Anthropic's clients send keys."""
    said, key = headers.get("authorization"), headers.get("x-api-key")
    return f"Bearer {key}" if said is None and key is not None else said


def namespace_of(authorization: str | None, user: str | None) -> str:
    """Return whose request this is, as a hash of API key and ``user``; empty where there is neither."""
    if not authorization and not user:
        return ""
    return _digest(f"{authorization or ''}\0{user or ''}".encode()).hex()


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it; a connection on which no whole header arrives for ``seconds`` is closed.

    uvicorn itself waits without end, and each such connection holds one of the files that a process may open.
    Between two requests a connection may rest for uvicorn's ``timeout_keep_alive``.
    """

    seconds = 30.0
    _seen: Any = None  # the connection's latest request when `_look` ran last
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._timer = self.loop.call_later(self.seconds, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.timeout_keep_alive_task is not None:
            self._seen = self  # no request: the header that begins here has all of its time
        super().data_received(data)

    def _look(self) -> None:
        is_answered = self.cycle is None or self.cycle.response_complete
        if is_answered and self.timeout_keep_alive_task is None and self.cycle is self._seen:
            self.transport.close()
            return
        self._seen = self.cycle
        self._timer = self.loop.call_later(self.seconds, self._look)


_KEEP_ALIVE = 120
"""Seconds for which idle connections are kept: longer than clients keep theirs (5 to 90), so that none sends a
request into a connection that is being closed."""
_FLUSH = 2.0
"""Seconds in which the last events must reach their clients when the server is stopped."""


class PatientServer(uvicorn.Server):
    """uvicorn's server of an application that `make_app` has made.

    Told to stop, it lets texts be finished for ``seconds``; then, or after another Ctrl-C, streams end, each with
    its last event. ``say`` is called with what the user should know of this.
    """

    def __init__(self, app: Any, seconds: float, say: Callable[[str], None], **settings: Any) -> None:
        told: dict[str, Any] = {
            "http": PatientProtocol,
            "log_level": "warning",
            "server_header": False,
            "timeout_keep_alive": _KEEP_ALIVE + 5,
            "headers": [("Keep-Alive", f"timeout={_KEEP_ALIVE}")],
        }
        super().__init__(uvicorn.Config(app, **{**told, **settings}))
        self._worker: Worker = app.state.worker
        self._seconds, self._say, self._hurries = seconds, say, False

    def handle_exit(self, sig: int, frame: Any) -> None:
        if self.should_exit:
            self._hurries = self._hurries or sig == signal.SIGINT
        else:
            super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ending = asyncio.create_task(self._end())
        await super().shutdown(sockets)
        ending.cancel()

    async def _end(self) -> None:
        """Let the texts end while their connections are still served, then close what is left."""
        inbox = self._worker.inbox
        if texts := inbox.running + inbox.waiting:
            said = f"stopping: unfinished texts ({texts}) may go on for {self._seconds:.0f} seconds"
            self._say(f"{said}; Ctrl-C again ends them now")
        stopping = asyncio.create_task(asyncio.to_thread(self._worker.stop, self._seconds))
        while not (stopping.done() or self._hurries):
            await asyncio.sleep(0.1)  # as uvicorn looks, too
        if not stopping.done():
            self._say("stopping at once")
            self._worker.cut()
        await stopping
        await asyncio.sleep(_FLUSH)
        for connection in list(self.server_state.connections):
            connection.transport.abort()
