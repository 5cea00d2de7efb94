"""Which pages of other sites may ask this server from a browser (CORS, https://fetch.spec.whatwg.org)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers
from starlette.responses import Response

from draftwood.errors import UsageError
from draftwood.serve.errors import FORBIDDEN, ApiError

ALL = "*"
_ORIGIN = re.compile(r"null|\*|[a-z][a-z0-9+.-]*://[^/\s?#]+")
_EXPOSED = "x-draftwood-ignored, retry-after, request-id"
_REMEMBERED = "600"  # seconds for which a browser need not ask again


class Cors:
    """ASGI middleware that lets pages of some ``origins`` ask an application; ``*`` lets all pages.

    A browser asks first whether it may (``OPTIONS``), without the page's key. `UsageError` for what is no origin.
    """

    def __init__(self, app: Any, origins: Sequence[str]) -> None:
        self._app, self._origins = app, frozenset(map(usable_origin, origins))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        given = Headers(scope=scope)
        origin = given.get("origin")
        is_allowed = origin is not None and not self._origins.isdisjoint({origin.lower(), ALL})
        headers = {"vary": "origin"}
        if is_allowed and origin is not None:
            headers |= {"access-control-allow-origin": origin, "access-control-expose-headers": _EXPOSED}
        if scope["method"] == "OPTIONS" and "access-control-request-method" in given:
            answer = _first_answer(given, headers) if is_allowed else _refusal(origin, scope["path"])
            return await answer(scope, receive, send)
        more = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]

        async def told(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return await self._app(scope, receive, told)


def usable_origin(given: str) -> str:
    """Return an origin as browsers send it; `UsageError` for what is none."""
    found = given.strip().lower().rstrip("/")
    if not _ORIGIN.fullmatch(found):
        raise UsageError(f"{given!r} is no origin: give one such as https://example.org, or * for all pages")
    return found


def _first_answer(given: Headers, headers: dict[str, str]) -> Response:
    """Return the answer to a browser that asks whether a page may send a request."""
    wanted = given.get("access-control-request-headers", "")
    allowed = {"access-control-allow-methods": "GET, HEAD, POST", "access-control-max-age": _REMEMBERED}
    return Response(status_code=204, headers={**headers, **allowed, "access-control-allow-headers": wanted})


def _refusal(origin: str | None, path: str) -> Response:
    said = (
        f"pages of {(origin or 'no site')[:200]!r} may not ask this server: start it with --cors and this origin"
    )
    found = ApiError(said, FORBIDDEN, code="origin_not_allowed").response(path)
    found.headers["vary"] = "origin"
    return found
