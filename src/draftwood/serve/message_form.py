"""Answers of ``/v1/messages``, whole and as Anthropic's events of a stream."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import Any

from draftwood.serve.answer import Choice, Update
from draftwood.serve.calls import Event
from draftwood.serve.errors import ApiError, message_error
from draftwood.serve.fields import JsonObject
from draftwood.serve.json_reader import nearest
from draftwood.serve.messages import MessagesRequest
from draftwood.serve.shapes import event, usage_of

_BLOCKS: dict[str, tuple[str, str]] = {
    "text": ("text", "text_delta"),
    "thought": ("thinking", "thinking_delta"),
    "arguments": ("tool_use", "input_json_delta"),
}
"""By the kind of an event: the type of the block that it is part of, and that of its delta."""
_FIELDS = {"text": "text", "thinking": "thinking", "tool_use": "partial_json"}


class MessageForm:
    """The message that answers one request: its one choice, as a whole or as events.

    A stream begins with the first token, since only then it is known how much of the prompt had been read before.
    """

    alive = event({"type": "ping"}, "ping")

    def __init__(self, model: str, asked: MessagesRequest, *, traced: object) -> None:  # noqa: ARG002 - has no traces
        self._asked, self._model, self._id = asked, model, f"msg_{secrets.token_hex(12)}"
        self._content = list[JsonObject]()
        self._text = ""  # of the block that is being written
        self._is_open = self._has_begun = False
        self._stopped: JsonObject = {"stop_reason": None, "stop_sequence": None}

    def whole(self, answers: Sequence[Choice], reasons: Sequence[str]) -> JsonObject:
        self.written(answers[0], answers[0].text, reasons[0])
        return self._message(answers[0])

    def opening(self, _: Sequence[Choice]) -> Iterator[bytes]:
        yield from ()

    def written(self, answer: Choice, text: str, reason: str | None, _: Update | None = None) -> list[bytes]:
        """Return the events of more ``text``, and of its end for this ``reason``."""
        found = list[bytes]()
        if not self._has_begun:
            self._has_begun = True
            found.append(_event("message_start", message=self._message(answer)))
        found += [told for one in answer.read(text, reason) for told in self._one(one)]
        if reason is not None:
            found += self._end()
            self._stopped = self._stop(answer, reason)
        return found

    def ending(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        yield _event("message_delta", delta=self._stopped, usage=_usage(answers[0]))
        yield _event("message_stop")

    def failed(self, error: ApiError) -> bytes:
        return event(message_error(error), "error")

    def _one(self, one: Event) -> list[bytes]:
        """Return the events of a piece of a text, a thought or a call."""
        if one.kind == "end":
            return self._end()
        if one.kind == "call":
            call = {"type": "tool_use", "id": f"toolu_{secrets.token_hex(12)}", "name": one.text, "input": {}}
            return [*self._end(), *self._begin(call)]
        block, delta = _BLOCKS[one.kind]
        begun = list[bytes]()
        if not self._is_open or self._content[-1]["type"] != block:
            empty = {"type": block, block: ""} | ({"signature": ""} if block == "thinking" else {})
            begun = [*self._end(), *self._begin(empty)]
        self._text += one.text
        if block == "thinking" and self._hides_thoughts:
            return begun
        return [*begun, self._in_block("content_block_delta", delta={"type": delta, _FIELDS[block]: one.text})]

    @property
    def _hides_thoughts(self) -> bool:
        return self._asked.thinking is not None and self._asked.thinking.display == "omitted"

    def _begin(self, block: JsonObject) -> list[bytes]:
        self._content.append(block)
        self._text, self._is_open = "", True
        return [self._in_block("content_block_start", content_block=block)]

    def _end(self) -> list[bytes]:
        """End the block that is being written, if there is one."""
        if not self._is_open:
            return []
        self._is_open, block, found = False, self._content[-1], list[bytes]()
        if block["type"] == "tool_use":
            block["input"] = arguments_of(self._text)
        elif block["type"] == "text":
            block["text"] = self._text
        else:
            block["thinking"] = "" if self._hides_thoughts else self._text
            # Nothing is signed here, and some clients send no thought back whose signature is empty.
            block["signature"] = hashlib.sha256(self._text.encode(errors="replace")).hexdigest()
            delta = {"type": "signature_delta", "signature": block["signature"]}
            found.append(self._in_block("content_block_delta", delta=delta))
        return [*found, self._in_block("content_block_stop")]

    def _stop(self, answer: Choice, reason: str) -> JsonObject:
        stop = answer.stop_string
        if reason == "length":
            limit = answer.job.request.limit  # lower than asked for where the model takes no more
            is_full = limit < self._asked.max_tokens and len(answer.generation.ids) >= limit
            said = "model_context_window_exceeded" if is_full else "max_tokens"
        elif any(block["type"] == "tool_use" for block in self._content):
            said = "tool_use"
        elif stop is not None and stop in (self._asked.stop_sequences or ()):
            return {"stop_reason": "stop_sequence", "stop_sequence": stop}
        else:
            said = "end_turn"
        return {"stop_reason": said, "stop_sequence": None}

    def _message(self, answer: Choice) -> JsonObject:
        return {
            "id": self._id, "type": "message", "role": "assistant", "model": self._model,
            "content": self._content, **self._stopped, "usage": _usage(answer),
        }  # fmt: skip

    def _in_block(self, kind: str, **fields: Any) -> bytes:
        return _event(kind, index=len(self._content) - 1, **fields)


def _event(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _usage(answer: Choice) -> JsonObject:
    """Return a message's usage; as in the API, tokens that were read before are no input tokens."""
    found = usage_of([answer])
    cached = found["prompt_tokens_details"]["cached_tokens"]
    return {
        "input_tokens": found["prompt_tokens"] - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": {"thinking_tokens": found["completion_tokens_details"]["reasoning_tokens"]},
        "draftwood": found["draftwood"],
    }


def arguments_of(text: str) -> JsonObject:
    """Return the arguments of a call; of those that a limit has cut, what is there."""
    try:
        found = json.loads(nearest(text), parse_int=_number, parse_float=_number)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _number(text: str) -> float | int | None:
    """Return a number of JSON; none for what is beyond those that clients can hold."""
    found = float(text)
    if not isfinite(found):
        return None
    return int(text) if text.lstrip("-").isdigit() else found
