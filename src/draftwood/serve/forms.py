"""Responses of the two older routes as objects of the OpenAI API, whole and as chunks of a stream."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from draftwood.serve.answer import Choice, ToldToken, Update
from draftwood.serve.calls import Event
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import Common, JsonObject
from draftwood.serve.shapes import chat_logprobs, event, summary_of, text_logprobs, told_of, usage_of
from draftwood.serve.tools import new_id

_FIELDS = {"text": "content", "thought": "reasoning_content"}
_DONE = b"data: [DONE]\n\n"


class ChatForm:
    """``/v1/chat/completions``; calls are streamed as they are written, the name first."""

    kind, piece, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, model: str, asked: Common, *, traced: Callable[[], str] | None) -> None:
        self._about = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}", "object": self.kind, "created": int(time.time()),
            "model": model,
        }  # fmt: skip
        options = asked.stream_options
        self._with_usage, self._traced = options is not None and options.include_usage, traced
        self._told: dict[int, int] = {}  # by the choice's index: tokens whose log-probabilities were sent

    def whole(self, answers: Sequence[Choice], reasons: Sequence[str]) -> JsonObject:
        choices = [self._whole(answer, reason) for answer, reason in zip(answers, reasons, strict=True)]
        found = {**self._about, "choices": choices, "usage": usage_of(answers)}
        return found | ({"draftwood": [summary_of(answer) for answer in answers]} if self._traced else {})

    def opening(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        for answer in answers:
            if (first := self._begin(answer)) is not None:
                yield self._event([first])

    def written(self, answer: Choice, text: str, reason: str | None, update: Update) -> Iterator[bytes]:
        """Yield the events of more ``text``, and of its end: the ``reason`` comes in a chunk of its own."""
        if not text and reason is None and not self._traced:
            return
        more = {"draftwood": told_of(answer, update)} if self._traced else {}
        if self._traced and reason is not None:
            more["draftwood"]["busy"] = self._traced()
        events = [one for one in answer.read(text, reason) if one.kind != "end"]
        logprobs = self._logprobs(answer, self._told.get(answer.index, 0))
        self._told[answer.index] = answer.certain
        pieces = [self._delta(answer, one, None) for one in events]
        if reason is not None or not pieces:
            pieces.append(self._delta(answer, None, reason))
        pieces[0]["logprobs"] = logprobs
        for one in pieces:
            yield self._event([one], **more)
            more = {}

    def ending(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        if self._with_usage:
            yield event({**self._about, "object": self.piece, "choices": [], "usage": usage_of(answers)})
        yield _DONE

    def failed(self, error: ApiError) -> bytes:
        return event(error.body) + _DONE

    def _event(self, choices: list[JsonObject], **more: Any) -> bytes:
        usage = {"usage": None} if self._with_usage else {}  # as in the API: it comes in a chunk of its own
        return event({**self._about, "object": self.piece, "choices": choices, **usage, **more})

    def _begin(self, answer: Choice) -> JsonObject | None:
        delta = {"role": "assistant", "content": ""}
        return {"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": None}

    def _delta(self, answer: Choice, one: Event | None, reason: str | None) -> JsonObject:
        delta: JsonObject = {"content": ""} if reason is None else {}
        if one is not None and one.kind in _FIELDS:
            delta = {_FIELDS[one.kind]: one.text}
        elif one is not None:
            begun = _begun(one.text) if one.kind == "call" else {"function": {"arguments": one.text}}
            delta = {"tool_calls": [{"index": one.number, **begun}]}
        said = None if reason is None else answer.reason_of_calls(reason)
        return {"index": answer.index, "delta": delta, "logprobs": None, "finish_reason": said}

    def _whole(self, answer: Choice, reason: str) -> JsonObject:
        text, thought, calls = "", "", list[JsonObject]()
        for one in answer.read(answer.text, reason):
            if one.kind == "text":
                text += one.text
            elif one.kind == "thought":
                thought += one.text
            elif one.kind == "call":
                calls.append(_begun(one.text))
            else:
                calls[-1]["function"]["arguments"] += one.text
        message: JsonObject = {
            "role": "assistant",
            "content": text if text or not calls else None,
            "refusal": None,
        }
        message |= {"reasoning_content": thought} if thought else {}
        message |= {"tool_calls": calls} if calls else {}
        logprobs, said = self._logprobs(answer), answer.reason_of_calls(reason)
        return {"index": answer.index, "message": message, "logprobs": logprobs, "finish_reason": said}

    def _logprobs(self, answer: Choice, first: int = 0) -> Any:
        if not answer.has_logprobs:
            return None
        return {"content": chat_logprobs(answer.told(first), answer.spelling), "refusal": None}


def _begun(name: str) -> JsonObject:
    return {"id": new_id(), "type": "function", "function": {"name": name, "arguments": ""}}


class TextForm(ChatForm):
    """``/v1/completions``; ``echo`` has the prompt's text, and its tokens, before each answer."""

    kind, piece, prefix = "text_completion", "text_completion", "cmpl"

    def __init__(self, model: str, asked: Common, *, traced: Callable[[], str] | None) -> None:
        super().__init__(model, asked, traced=traced)
        self._echo = bool(getattr(asked, "echo", None))
        self._starts: dict[int, int] = {}  # by the choice's index: characters of its prompt, once that was sent

    def _begin(self, answer: Choice) -> JsonObject | None:
        if not self._echo or answer.has_logprobs:  # those of the prompt are known once it was read
            return None
        return self._delta(answer, None, None)

    def _delta(self, answer: Choice, one: Event | None, reason: str | None) -> JsonObject:
        text = "" if one is None else one.text
        if self._echo and answer.index not in self._starts:
            before, _ = answer.told_prompt()
            self._starts[answer.index], text = len(before), before + text
        return {"index": answer.index, "text": text, "logprobs": None, "finish_reason": reason}

    def _whole(self, answer: Choice, reason: str) -> JsonObject:
        logprobs = self._logprobs(answer)
        return self._delta(answer, Event("text", answer.text, 0), reason) | {"logprobs": logprobs}

    def _logprobs(self, answer: Choice, first: int = 0) -> Any:
        if not answer.has_logprobs:
            return None
        start, before = self._starts.get(answer.index, 0), list[ToldToken]()
        if self._echo and answer.index not in self._starts:
            text, before = answer.told_prompt()
            start = len(text)
        told = [
            one._replace(spelled=one.spelled._replace(offset=one.spelled.offset + start))
            for one in answer.told(first)
        ]
        return text_logprobs([*before, *told], answer.spelling)
