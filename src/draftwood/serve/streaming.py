"""Writes answers as server-sent events, as the OpenAI API does, and as whole responses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from draftwood.serve.answer import Answer, ToldToken, Update
from draftwood.serve.openai.errors import ApiError, as_api_error
from draftwood.serve.openai.shapes import FINISH, Shape, chat_logprobs, text_logprobs, usage_of
from draftwood.serve.server_events import event
from draftwood.serve.tracing import summary, told

DONE = b"data: [DONE]\n\n"


class Form:
    """How the choices of one kind of response look."""

    def begin(self, answer: Answer) -> dict[str, Any] | None:
        """Return what a stream says of a choice before its first text, if anything."""
        raise NotImplementedError

    def delta(self, answer: Answer, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        """Return a piece of a choice."""
        raise NotImplementedError

    def deltas(self, answer: Answer, text: str, finish: str | None, logprobs: Any) -> list[dict[str, Any]]:
        """Return the pieces of a choice that a text and an end make; the reason comes alone, as in the API."""
        if text and finish is not None:
            return [self.delta(answer, text, None, logprobs), self.delta(answer, "", finish, None)]
        return [self.delta(answer, text, finish, logprobs)]

    def whole(self, answer: Answer, finish: str) -> dict[str, Any]:
        """Return a whole choice."""
        raise NotImplementedError

    def logprobs(self, answer: Answer, first: int = 0) -> Any:
        """Return the log-probabilities of tokens from the ``first`` on whose text is certain; None if unasked."""
        raise NotImplementedError


class ChatForm(Form):
    """Choices of ``/v1/chat/completions``."""

    def begin(self, answer: Answer) -> dict[str, Any] | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(self, answer: Answer, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        delta = {"content": text} if text or finish is None else {}
        return {"index": answer.index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}

    def whole(self, answer: Answer, finish: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": answer.generation.text, "refusal": None}
        logprobs = self.logprobs(answer)
        return {"index": answer.index, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def logprobs(self, answer: Answer, first: int = 0) -> Any:
        if not answer.has_logprobs:
            return None
        return {"content": chat_logprobs(answer.told(first), answer.spelling), "refusal": None}


class TextForm(Form):
    """Choices of ``/v1/completions``; ``echo`` has the prompt's text, and its tokens, before each answer."""

    def __init__(self, *, echo: bool = False) -> None:
        self._echo = echo
        self._starts: dict[int, int] = {}  # by the choice's index, once its prompt was told: characters before it

    def begin(self, answer: Answer) -> dict[str, Any] | None:
        if not self._echo or answer.has_logprobs:  # which are known when the prompt has been read
            return None
        return self.delta(answer, "", None, None)

    def delta(self, answer: Answer, text: str, finish: str | None, logprobs: Any) -> dict[str, Any]:
        if self._echo and answer.index not in self._starts:
            before, _ = answer.told_prompt()
            self._starts[answer.index], text = len(before), before + text
        return {"index": answer.index, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def whole(self, answer: Answer, finish: str) -> dict[str, Any]:
        logprobs = self.logprobs(answer)
        return self.delta(answer, answer.generation.text or "", finish, logprobs)

    def logprobs(self, answer: Answer, first: int = 0) -> Any:
        if not answer.has_logprobs:
            return None
        start, before = self._starts.get(answer.index, 0), list[ToldToken]()
        if self._echo and answer.index not in self._starts:
            text, before = answer.told_prompt()
            start = len(text)
        told = [one._replace(spelled=one.spelled.behind(start)) for one in answer.told(first)]
        return text_logprobs([*before, *told], answer.spelling)


async def whole(answers: Sequence[Answer], form: Form, shape: Shape, *, traced: bool) -> dict[str, Any]:
    """Wait for all choices; returns the response. Raises `ApiError` where one of them fails."""
    try:
        finishes = await asyncio.gather(*(_finish(answer) for answer in answers))
    finally:
        for answer in answers:  # where one has failed, or the client has gone
            answer.job.cancel()
    choices = [form.whole(answer, finish) for answer, finish in zip(answers, finishes, strict=True)]
    found = shape.whole(choices, usage_of(answers))
    return found | {"draftwood": [summary(answer) for answer in answers]} if traced else found


async def _finish(answer: Answer) -> str:
    finish = None
    async for update in answer.updates():
        finish = update.finish
    return reason_of(answer, finish)


def reason_of(answer: Answer, finish: str | None) -> str:
    """Return the API's word for why a text has ended; raises `ApiError` where it has failed."""
    if answer.error is not None:
        raise as_api_error(answer.error)
    if finish is None or finish not in FINISH:
        raise ApiError(500, f"the text was ended before its time ({finish}): ask again")
    return FINISH[finish]


async def events(
    answers: Sequence[Answer], form: Form, shape: Shape, *, with_usage: bool, traced: bool
) -> AsyncIterator[bytes]:
    """Yield all choices as events, as their texts become certain; an error is an event and ends the stream."""
    try:
        for answer in answers:
            if (first := form.begin(answer)) is not None:
                yield event(shape.chunk([first]))
        shown = dict.fromkeys(map(id, answers), 0)
        async for answer, update in _merged(answers):
            finish = None if update.finish is None else reason_of(answer, update.finish)
            text, begun = update.text, shown[id(answer)]
            if not text and finish is None and not traced:
                continue
            more = {"draftwood": told(update, answer.names, answer.spelling.full)} if traced else {}
            logprobs = form.logprobs(answer, begun)
            shown[id(answer)] = answer.certain
            for choice in form.deltas(answer, text, finish, logprobs):
                yield event(shape.chunk([choice]) | more)
                more = {}
        if with_usage:
            yield event(shape.chunk([], usage_of(answers)))
        yield DONE
    except Exception as error:  # of any kind, since a client can read nothing from a connection that tears
        yield event(as_api_error(error).body)
    finally:
        for answer in answers:
            answer.job.cancel()


async def _merged(answers: Sequence[Answer]) -> AsyncIterator[tuple[Answer, Update]]:
    """Yield the updates of several answers as they come."""
    if len(answers) == 1:
        async for update in answers[0].updates():
            yield answers[0], update
        return
    queue = asyncio.Queue[Any]()

    async def feed(answer: Answer) -> None:
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
