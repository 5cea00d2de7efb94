"""API keys: who may ask, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from typing import Any

from draftwood.errors import UsageError
from draftwood.serve.openai.errors import UNAUTHORIZED, ApiError
from draftwood.serve.refusing import response_of

OPEN = frozenset({"/", "/health"})
"""Paths that need no key: the page asks for one itself."""


class KeyGuard:
    """Lets only requests through that bring one of these keys, as ``Authorization: Bearer KEY``.

    Parameters
    ----------
    app
        What is guarded, an ASGI application.
    keys
        At least one; blanks around them do not count, as in headers.

    Raises
    ------
    UsageError
        A key is empty.
    """

    def __init__(self, app: Any, keys: Sequence[str]) -> None:
        self._app, self._digests = app, [_digest(key.encode()) for key in usable(keys)]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in OPEN and not self._is_known(scope):
            said = "this server asks for an API key: send it as 'Authorization: Bearer KEY'"
            await response_of(ApiError(UNAUTHORIZED, said, code="invalid_api_key"))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_known(self, scope: Any) -> bool:
        headers = dict(scope["headers"])
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        found = [hmac.compare_digest(_digest(given.strip()), known) for known in self._digests]  # all, always
        return kind.lower() == b"bearer" and any(found)


def usable(keys: Sequence[str]) -> list[str]:
    """Return keys as clients send them, without blanks around them; `UsageError` for one that is empty then."""
    found = [key.strip() for key in keys]
    if "" in found:
        raise UsageError("an API key is empty, and everybody knows that one: write some letters, or leave it out")
    return found


def listed(keys: str) -> list[str]:
    """Return the keys of a list with commas or line ends between them; of a list of nothing but blanks none.

    `UsageError` for a list that has commas and no key.
    """
    found = [key for key in map(str.strip, re.split(r"[,\r\n]", keys)) if key]
    return found if found or not keys.strip() else usable([""])


def namespace_of(authorization: str | None, user: str | None) -> str:
    """Return whose request this is: of one key and one ``user``; nothing of the key can be read from it."""
    if not authorization and not user:
        return ""
    return _digest(f"{authorization or ''}\0{user or ''}".encode()).hex()


def _digest(key: bytes) -> bytes:
    """Return a value of the same length for every key."""
    return hashlib.sha256(key).digest()
