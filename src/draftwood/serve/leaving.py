"""Clients that go away: what was written for them alone ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from draftwood.serve.answer import Answer
from draftwood.serve.openai.errors import GONE, ApiError
from draftwood.serve.server_events import SILENCE, kept_alive

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


class EventStream(StreamingResponse):
    """Server-sent events; the texts end with the response, even if nobody ever read it."""

    def __init__(self, body: AsyncIterator[bytes], answers: Sequence[Answer], headers: Mapping[str, str]) -> None:
        super().__init__(
            kept_alive(body, SILENCE), media_type="text/event-stream", headers={**headers, **_HEADERS}
        )
        self._answers = answers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            for answer in self._answers:
                answer.job.cancel()


async def unless_gone(http: Request, work: Coroutine[Any, Any, Any]) -> Any:
    """Return what the work returns; if the client goes away first, end the work and raise `ApiError`."""
    task, gone = asyncio.create_task(work), asyncio.create_task(_gone(http))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ApiError(GONE, "the client has gone")
    finally:
        task.cancel()
        gone.cancel()


async def _gone(http: Request) -> None:
    """Wait until the client has gone; its body has been read already."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
