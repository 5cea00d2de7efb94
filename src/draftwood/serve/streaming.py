"""Sends answers as server-sent events or as whole responses, and ends texts whose clients have gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from draftwood.serve.answer import Choice, Update
from draftwood.serve.errors import GONE, ApiError, as_api_error
from draftwood.serve.fields import JsonObject
from draftwood.serve.forms import ChatForm
from draftwood.serve.infill_form import InfillForm
from draftwood.serve.message_form import MessageForm
from draftwood.serve.ollama_form import OllamaForm
from draftwood.serve.response_form import ResponseForm

Form = ChatForm | ResponseForm | MessageForm | OllamaForm | InfillForm
SILENCE = 5.0
"""Seconds after which a stream says that it still lives: proxies and clients give up on silent connections."""
ALIVE = b": working\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


async def kept_alive(body: AsyncIterator[bytes], seconds: float, alive: bytes = ALIVE) -> AsyncIterator[bytes]:
    """Yield the events of a stream, and ``alive``, which clients skip, after each ``seconds`` of silence."""
    coming = asyncio.ensure_future(anext(body, None))
    try:
        while True:
            done, _ = await asyncio.wait([coming], timeout=seconds)
            if not done:
                yield alive
            elif (some := coming.result()) is None:
                return
            else:
                yield some
                coming = asyncio.ensure_future(anext(body, None))
    finally:
        coming.cancel()


class EventStream(StreamingResponse):
    """Events of a form, sent by the server as the form has them; the texts end with the response, even if it was
    never read."""

    def __init__(self, answers: Sequence[Choice], form: Form, headers: Mapping[str, str]) -> None:
        body = kept_alive(events(answers, form), SILENCE, getattr(form, "alive", ALIVE))
        media = getattr(form, "media", "text/event-stream")
        super().__init__(body, media_type=media, headers={**headers, **_HEADERS})
        self._answers = answers

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
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
        raise ApiError("the client has gone", GONE)
    finally:
        task.cancel()
        gone.cancel()


async def _gone(http: Request) -> None:
    """Wait until the client has gone; its body has been read already."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def whole(answers: Sequence[Choice], form: Form) -> JsonObject:
    """Wait for all choices; returns the response. Raises `ApiError` where one of them fails."""
    try:
        reasons = await asyncio.gather(*(answer.finished() for answer in answers))
    finally:
        for answer in answers:  # where one has failed, or the client has gone
            answer.job.cancel()
    return form.whole(answers, reasons)


async def events(answers: Sequence[Choice], form: Form) -> AsyncIterator[bytes]:
    """Yield all choices as events, as their texts become final; an error is an event and ends the stream."""
    try:
        for one in form.opening(answers):
            yield one
        async for answer, update in _merged(answers):
            reason = None if update.finish is None else answer.reason(update.finish)
            for one in form.written(answer, update.text, reason, update):
                yield one
        for one in form.ending(answers):
            yield one
    except Exception as error:  # of any kind: if the connection just broke, the client could not know why
        yield form.failed(as_api_error(error))


async def _merged(answers: Sequence[Choice]) -> AsyncIterator[tuple[Choice, Update]]:
    """Yield the updates of several answers as they come."""
    if len(answers) == 1:
        async for update in answers[0].updates():
            yield answers[0], update
        return
    queue = asyncio.Queue[Any]()

    async def feed(answer: Choice) -> None:
        async for update in answer.updates():
            queue.put_nowait((answer, update))

    tasks = [asyncio.create_task(feed(answer)) for answer in answers]
    for task in tasks:
        task.add_done_callback(queue.put_nowait)
    left = len(tasks)
    try:
        while left:
            if isinstance(found := await queue.get(), asyncio.Task):
                found.result()  # raises what the task raised
                left -= 1
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()
