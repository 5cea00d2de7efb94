"""Limits the size of requests' bodies, whether they say their length or not."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException

from draftwood.serve.openai.errors import TOO_LARGE, ApiError
from draftwood.serve.refusing import response_of


class BodyLimit:
    """Refuses bodies that are too large.

    Parameters
    ----------
    app
        What is guarded, an ASGI application that answers a `HTTPException` raised while it reads.
    most
        Bytes of the largest body.
    """

    def __init__(self, app: Any, most: int) -> None:
        self._app, self._most = app, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and self._announced(scope) > self._most:
            await response_of(ApiError(TOO_LARGE, f"the body is larger than {self._most} bytes"))(
                scope, receive, send
            )
            return
        read = 0

        async def counted() -> Any:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._most:
                raise HTTPException(TOO_LARGE)
            return message

        await self._app(scope, counted, send)

    @staticmethod
    def _announced(scope: Any) -> int:
        """Return the length that a request says its body has; 0 if it says none that can be read."""
        said = dict(scope["headers"]).get(b"content-length", b"0")
        return int(said) if said.isdigit() else 0
