"""Answers as server-sent events and as whole responses, and the clients that go away meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from draftwood.serve.answer import Choice, Update
from draftwood.serve.errors import GONE, ApiError, as_api_error
from draftwood.serve.shapes import FINISH, Form, usage_of
from draftwood.step import MODEL, Step

SILENCE = 5.0
"""Seconds after which a stream says that it still lives: proxies and clients give up on silent connections."""
_ALIVE = b": working\n\n"
_DONE = b"data: [DONE]\n\n"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_LINE_ENDS = {ord(end): f"\\u{ord(end):04x}" for end in "\x85\u2028\u2029"}
"""Line ends to clients that split by all of Unicode's, and allowed raw in JSON; it escapes the others itself."""


def event(body: dict[str, Any], kind: str | None = None) -> bytes:
    """Return an event, of a ``kind`` if it has one; half characters are escaped, as UTF-8 has none."""
    data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).translate(_LINE_ENDS)
    head = "" if kind is None else f"event: {kind}\n"
    return f"{head}data: {data}\n\n".encode(errors="backslashreplace")


async def kept_alive(body: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Yield the events of a stream, and a comment, which clients pass over, after each ``seconds`` of silence."""
    coming = asyncio.ensure_future(anext(body, None))
    try:
        while True:
            done, _ = await asyncio.wait([coming], timeout=seconds)
            if not done:
                yield _ALIVE
            elif (some := coming.result()) is None:
                return
            else:
                yield some
                coming = asyncio.ensure_future(anext(body, None))
    finally:
        coming.cancel()


class EventStream(StreamingResponse):
    """Server-sent events; the texts end with the response, even if it was never read."""

    def __init__(self, body: AsyncIterator[bytes], answers: Sequence[Choice], headers: Mapping[str, str]) -> None:
        events = kept_alive(body, SILENCE)
        super().__init__(events, media_type="text/event-stream", headers={**headers, **_HEADERS})
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
        raise ApiError(GONE, "the client has gone")
    finally:
        task.cancel()
        gone.cancel()


async def _gone(http: Request) -> None:
    """Wait until the client has gone; its body has been read already."""
    while (await http.receive())["type"] != "http.disconnect":
        pass


async def whole(answers: Sequence[Choice], form: Form, *, traced: bool) -> dict[str, Any]:
    """Wait for all choices; returns the response. Raises `ApiError` where one of them fails."""
    try:
        finishes = await asyncio.gather(*(finished(answer) for answer in answers))
    finally:
        for answer in answers:  # where one has failed, or the client has gone
            answer.job.cancel()
    choices = [form.whole(answer, finish) for answer, finish in zip(answers, finishes, strict=True)]
    found = form.response(choices, usage_of(answers))
    return found | {"draftwood": [_summary(answer) for answer in answers]} if traced else found


async def finished(answer: Choice) -> str:
    """Wait for the end of a text; returns the API's word for it, or raises `ApiError`."""
    finish = None
    async for update in answer.updates():
        finish = update.finish
    return reason_of(answer, finish)


def reason_of(answer: Choice, finish: str | None) -> str:
    """Return the API's word for why a text has ended; raises `ApiError` where it has failed."""
    if answer.error is not None:
        raise as_api_error(answer.error)
    if finish is None or finish not in FINISH:
        raise ApiError(500, f"the text was ended before its time ({finish}): ask again")
    return FINISH[finish]


async def events(answers: Sequence[Choice], form: Form, *, with_usage: bool, traced: bool) -> AsyncIterator[bytes]:
    """Yield all choices as events, as their texts become certain; an error is an event and ends the stream."""
    try:
        for answer in answers:
            if (first := form.begin(answer)) is not None:
                yield event(form.chunk([first]))
        shown = dict.fromkeys(map(id, answers), 0)
        async for answer, update in _merged(answers):
            finish = None if update.finish is None else reason_of(answer, update.finish)
            if not update.text and finish is None and not traced:
                continue
            more = {"draftwood": _told(update, answer.names, answer.spelling.full)} if traced else {}
            logprobs = form.logprobs(answer, shown[id(answer)])
            shown[id(answer)] = answer.certain
            for choice in form.deltas(answer, update.text, finish, logprobs):
                yield event(form.chunk([choice]) | more)
                more = {}
        if with_usage:
            yield event(form.chunk([], usage_of(answers)))
        yield _DONE
    except Exception as error:  # of any kind, since a client can read nothing from a connection that tears
        yield event(as_api_error(error).body)
    finally:
        for answer in answers:
            answer.job.cancel()


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
                found.result()  # raises what has ended it
                left -= 1
            else:
                yield found
    finally:
        for task in tasks:
            task.cancel()


def _told(update: Update, names: Sequence[str], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Return what a piece of a traced stream tells: its text by source, and the step that it comes from."""
    pieces = [{"text": piece.text, "source": piece.source} for piece in update.pieces]
    step = None if update.step is None else _step(update.step, names, decode)
    return {"pieces": pieces, "tokens": update.tokens, "step": step}


def _step(step: Step, names: Sequence[str], decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """Return a step; of its tree the texts, parents (-1: the root), sources, and the indices of accepted nodes."""
    trace, tree = step.trace, None
    if trace and trace.get("tokens"):
        sources = ["model" if source == MODEL else names[source] for source in trace["source"]]
        tree = {"texts": [decode([token]) for token in trace["tokens"]], "parents": list(trace["parents"]),
                "sources": sources, "path": list(trace["path"])}  # fmt: skip
    said = {"index": step.index, "drafted": step.drafted, "accepted": step.accepted}
    return {**said, "ms": round(step.seconds * 1e3, 3), "tree": tree}


def _summary(answer: Choice) -> dict[str, Any]:
    """Return what a traced whole response tells of one choice: a record per step, as in our files, and rates."""
    rates, found = answer.generation.stats, answer.generation
    return {
        "index": answer.index,
        "sources": found.sources,
        "prefill_seconds": found.prefill_s,
        "passes": rates.passes,
        "tokens_per_pass": rates.mean_acceptance_length,
        "tokens_per_second": rates.tokens_per_second,
        "drafters": list(answer.names),
        "steps": [step.to_json() for step in found.steps],
    }
