"""Limits the size of requests' bodies, whether they say their length or not, and the time they take."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.exceptions import HTTPException

from draftwood.serve.openai.errors import TOO_LARGE, TOO_SLOW, ApiError
from draftwood.serve.refusing import response_of


class BodyLimit:
    """Refuses bodies that are too large or too slow.

    Parameters
    ----------
    app
        What is guarded, an ASGI application that answers a `HTTPException` raised while it reads.
    most
        Bytes of the largest body.
    seconds
        In which a body must be here.
    """

    def __init__(self, app: Any, most: int, seconds: float = 120.0) -> None:
        self._app, self._most, self._seconds = app, most, seconds

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and self._announced(scope) > self._most:
            await response_of(ApiError(TOO_LARGE, f"the body is larger than {self._most} bytes"))(
                scope, receive, send
            )
            return
        read = 0
        deadline: float | None = asyncio.get_running_loop().time() + self._seconds

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
            if not message.get("more_body", False):  # from here on a client is silent until it goes away
                deadline = None
            return message

        await self._app(scope, counted, send)

    @staticmethod
    def _announced(scope: Any) -> int:
        """Return the length that a request says its body has; 0 if it says none that can be read."""
        said = dict(scope["headers"]).get(b"content-length", b"0")
        return int(said) if said.isdigit() else 0
