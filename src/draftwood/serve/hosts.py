"""The ``Host`` header: under which names this server may be asked, so that no page of another site reads answers.

Such a page can let its own name point to this machine (DNS rebinding); the browser then takes the server for that
site, and sends the site's name.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from draftwood.serve.openai.errors import FORBIDDEN, ApiError
from draftwood.serve.refusing import response_of

ALL = "*"
_EVERYWHERE = frozenset({"0.0.0.0", "::"})
"""Addresses of all networks: who listens there is asked by any address, which no site can pretend to be."""
_PORT = re.compile(r":\d*$")


class HostGuard:
    """Lets only requests through whose ``Host`` is the loopback's, or one of these; those without any come from no
    browser.

    Parameters
    ----------
    app
        What is guarded, an ASGI application.
    hosts
        Names and addresses, without ports; ``*`` lets all through.
    """

    def __init__(self, app: Any, hosts: Sequence[str]) -> None:
        self._app, self._hosts = app, {_plain(host) for host in hosts}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http":
            given = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            if odd := [host for host in given if not self._is_known(_plain(host))]:
                said = (
                    f"{odd[0][:200]!r} is no name of this server: if it is one of yours, start it with "
                    "--allowed-host and this name"
                )
                await response_of(ApiError(FORBIDDEN, said, code="host_not_allowed"))(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        known = self._hosts
        if not known.isdisjoint({host, ALL}) or is_loopback(host):
            return True
        return not known.isdisjoint(_EVERYWHERE) and _is_address(host)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is this machine's own."""
    if _is_address(host):
        return ip_address(host).is_loopback
    return host == "localhost" or host.endswith(".localhost")  # RFC 6761: no server of names is asked for these


def hosts_of(address: str) -> tuple[str, ...]:
    """Return under which names a server is asked that listens on an address."""
    if address not in _EVERYWHERE:
        return (address,)
    name = socket.gethostname()
    return address, name, f"{name}.local", socket.getfqdn()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _plain(host: str) -> str:
    """Return a host without its port, its brackets and its last dot."""
    found = host.strip().lower()
    if found.startswith("["):  # an address of version 6
        return found[1:].partition("]")[0]
    return found if _is_address(found) else _PORT.sub("", found).rstrip(".")
