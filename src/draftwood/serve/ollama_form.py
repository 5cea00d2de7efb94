"""Answers of Ollama's ``/api/chat`` and ``/api/generate``, whole and as lines of JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from draftwood.serve.answer import Choice, Update
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import JsonObject
from draftwood.serve.message_form import arguments_of
from draftwood.serve.shapes import json_line, spent_on, usage_of
from draftwood.serve.tools import new_id

_FIELDS = {"text": "content", "thought": "thinking"}
_SECOND = 1_000_000_000  # in nanoseconds


class OllamaForm:
    """The answer to one chat: its one choice. A call comes as a whole, its arguments an object."""

    media = "application/x-ndjson"
    alive = b" "
    """Sent in silence: the line that follows begins with blanks, which JSON allows."""

    def __init__(self, model: str, _asked: object, *, traced: object) -> None:  # noqa: ARG002 - has no traces
        self._model, self._reason = model, "stop"
        self._called: JsonObject | None = None  # the call that is being written
        self._calls = 0

    def whole(self, answers: Sequence[Choice], reasons: Sequence[str]) -> JsonObject:
        (answer,), (self._reason,) = answers, reasons
        message: JsonObject = {"content": ""}
        for part in self._parts(answer, answer.text, self._reason):
            for name, value in part.items():
                message[name] = message[name] + value if name in message else value
        return self._said(message, **self._ended(answer))

    def opening(self, _: Sequence[Choice]) -> Iterator[bytes]:
        yield from ()

    def written(self, answer: Choice, text: str, reason: str | None, _: Update | None = None) -> Iterator[bytes]:
        """Yield the lines of more ``text``; the ``reason`` of its end comes in the last line."""
        self._reason = reason or self._reason
        for part in self._parts(answer, text, reason):
            yield json_line(self._said({"content": "", **part}, done=False))

    def ending(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        yield json_line(self._said({"content": ""}, **self._ended(answers[0])))

    def failed(self, error: ApiError) -> bytes:
        return json_line({"error": str(error)})

    def loaded(self, *, is_unloaded: bool) -> JsonObject:
        """Return the answer to a request without a question, by which clients load and unload models."""
        return self._said({"content": ""}, done=True, done_reason="unload" if is_unloaded else "load")

    def _parts(self, answer: Choice, text: str, reason: str | None) -> Iterator[JsonObject]:
        """Yield pieces of a message: of its content and thoughts, and whole calls."""
        for one in answer.read(text, reason):
            if one.kind in _FIELDS:
                yield from self._call()
                yield {_FIELDS[one.kind]: one.text}
            elif one.kind == "call":
                yield from self._call()
                function = {"index": self._calls, "name": one.text, "arguments": ""}
                self._called, self._calls = {"id": new_id(), "function": function}, self._calls + 1
            elif one.kind == "arguments" and self._called is not None:
                self._called["function"]["arguments"] += one.text
            elif one.kind == "end":
                yield from self._call()
        if reason is not None:
            yield from self._call()

    def _call(self) -> Iterator[JsonObject]:
        """Yield the call that has been written; of one that a limit has cut, what is there."""
        if self._called is not None:
            function = self._called["function"]
            function["arguments"] = arguments_of(function["arguments"])
            yield {"tool_calls": [self._called]}
            self._called = None

    def _said(self, message: JsonObject, **more: Any) -> JsonObject:
        return {**self._about(), "message": {"role": "assistant", **message}, **more}

    def _about(self) -> JsonObject:
        return {"model": self._model, "created_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"}

    def _ended(self, answer: Choice) -> JsonObject:
        """Return how a text has ended, and how long it took: waiting counts as loading, as models stay loaded."""
        usage, spent = usage_of([answer]), spent_on(answer)
        return {
            "done": True, "done_reason": self._reason, "total_duration": nanoseconds(spent.all),
            "load_duration": nanoseconds(spent.waited), "prompt_eval_count": usage["prompt_tokens"],
            "prompt_eval_duration": nanoseconds(spent.read),
            "eval_count": usage["completion_tokens"], "eval_duration": nanoseconds(spent.wrote),
            "draftwood": usage["draftwood"],
        }  # fmt: skip


class OllamaTextForm(OllamaForm):
    """The answer of ``/api/generate``."""

    def _said(self, message: JsonObject, **more: Any) -> JsonObject:
        thought = {"thinking": message["thinking"]} if "thinking" in message else {}
        return {**self._about(), "response": message["content"], **thought, **more}


def nanoseconds(seconds: float) -> int:
    """Return seconds in the unit of Ollama's API."""
    return round(seconds * _SECOND)
