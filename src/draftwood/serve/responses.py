"""``/v1/responses``, as far as agents use it: its requests become chats; its answers, whole and as events."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import field_validator

from draftwood.serve.answer import Choice, Update
from draftwood.serve.calls import Event
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import ChatRequest, Items, JsonObject, JsonSchema, Messages, Tokens, Top, Writing
from draftwood.serve.meanings import REFUSED, RESPONSES
from draftwood.serve.parts import PartReader
from draftwood.serve.shapes import chat_logprobs, event, usage_of
from draftwood.serve.tools import new_id

_AS_IN_CHATS = ("model", "temperature", "top_p", "seed", "stream", "user", "top_logprobs")


class ResponsesRequest(Writing):
    """Body of ``/v1/responses``."""

    input: str | Messages
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    top_logprobs: Top | None = None
    text: JsonObject | None = None
    tools: Items[JsonObject] | None = None
    tool_choice: str | JsonObject | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    metadata: JsonObject | None = None
    store: bool | None = None
    parallel_tool_calls: bool | None = None
    include: Items[str] | None = None

    @field_validator("text", "tools", "tool_choice", "metadata")
    @classmethod
    def _is_json(cls, given: Any) -> Any:
        json.dumps(given, allow_nan=False)  # the answer repeats these, and 1e999 was read as infinity
        return given

    def chat(self, parts: PartReader) -> ChatRequest:
        """Return the same as a chat, its contents read by ``parts``.

        Raises `ApiError`, or pydantic's error for invalid fields.
        """
        for name, said in REFUSED[RESPONSES].items():
            if getattr(self, name) is not None:
                raise ApiError(said, param=name)
        scored = self.top_logprobs is not None or "message.output_text.logprobs" in (self.include or ())
        given = {
            **{name: getattr(self, name) for name in _AS_IN_CHATS},
            "max_completion_tokens": self.max_output_tokens,
            "logprobs": scored or None,
            "messages": self._messages(parts),
            "tools": _functions(self.tools) or None,
            "tool_choice": self._choice(),
            "response_format": self._format(),
            "prediction": self.prediction and self.prediction.model_dump(),
            "draftwood": self.draftwood and self.draftwood.model_dump(),
        }
        return ChatRequest.model_validate({name: value for name, value in given.items() if value is not None})

    def _messages(self, parts: PartReader) -> list[JsonObject]:
        found: list[JsonObject] = []
        if self.instructions is not None:
            found.append({"role": "system", "content": self.instructions})
        if isinstance(self.input, str):
            return [*found, {"role": "user", "content": self.input}]
        for number, item in enumerate(self.input):
            message = _message(item, f"input.{number}", parts)
            if message is None:
                continue
            last = found[-1] if found else {}
            calls = "tool_calls" in message or "tool_calls" in last
            if calls and last.get("role") == message["role"] == "assistant":  # parts of one turn
                found[-1] = _joined(last, message)
            else:
                found.append(message)
        return found

    def _choice(self) -> Any:
        choice = self.tool_choice
        if isinstance(choice, dict) and choice.get("type") == "function":
            return _in_chats(choice)
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            allowed = {"mode": choice.get("mode"), "tools": _functions(choice.get("tools"))}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        return choice if _functions(self.tools) else None

    def _format(self) -> JsonObject | None:
        found = (self.text or {}).get("format")
        if not isinstance(found, Mapping | None):
            raise ApiError("text.format must be an object with a type", param="text.format")
        if found is None or found.get("type") != "json_schema":
            return None if found is None else dict(found)
        fields = {name: value for name, value in found.items() if name != "type"}
        return {"type": "json_schema", "json_schema": JsonSchema.model_validate(fields).model_dump(by_alias=True)}


def _functions(tools: Any) -> list[JsonObject]:
    """Return the functions among the tools; tools that OpenAI's service would run itself are left out."""
    given = tools if isinstance(tools, list) else []
    return [_in_chats(tool) for tool in given if isinstance(tool, dict) and tool.get("type") == "function"]


def _in_chats(tool: JsonObject) -> JsonObject:
    """Return a function, or its name, as chats have it."""
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _message(item: JsonObject, place: str, parts: PartReader) -> JsonObject | None:
    """Return an item of the input as a chat message; None for the model's own reasoning."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return None
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
        return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    if kind == "function_call_output":
        return {
            "role": "tool",
            "content": parts.text(item.get("output", ""), f"{place}.output"),
            "tool_call_id": item.get("call_id"),
        }
    if kind != "message":
        raise ApiError(f"an item of type {str(kind)[:80]!r} cannot be read here", param="input")
    role = item.get("role")
    return {
        "role": "system" if role == "developer" else role,
        "content": parts.text(item.get("content"), f"{place}.content"),
    }


def _joined(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return two parts of an assistant's turn as one message: its texts, then its calls, as a chat has them."""
    texts = [part["content"] for part in (first, second) if part["content"] is not None]
    calls = [call for part in (first, second) for call in part.get("tool_calls", ())]
    return {"role": "assistant", "content": "".join(texts) if texts else None, "tool_calls": calls}


class ResponseForm:
    """The response to one request: its one choice, as a whole or as events."""

    def __init__(self, model: str, asked: ResponsesRequest, *, traced: object) -> None:  # noqa: ARG002 - has no traces
        self._asked, self._model, self._status = asked, model, "in_progress"
        self._told = 0  # tokens whose log-probabilities were sent
        self._id, self._created, self._number = f"resp_{secrets.token_hex(16)}", int(time.time()), 0
        self._output = list[JsonObject]()

    def whole(self, answers: Sequence[Choice], reasons: Sequence[str]) -> JsonObject:
        self.written(answers[0], answers[0].text, reasons[0])
        return self._said(answers[0])

    def opening(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        for kind in ("response.created", "response.in_progress"):
            yield self._event(kind, response=self._said(answers[0]))

    def written(self, answer: Choice, text: str, reason: str | None, _: Update | None = None) -> list[bytes]:
        """Return the events of more ``text``, and of its end for this ``reason``."""
        found = [told for one in answer.read(text, reason) for told in self._one(answer, one)]
        if reason is not None:
            said = [item["type"] for item in self._output if item["type"] != "reasoning"]
            if not said and reason != "length":
                found += self._text_of("message")
                said = ["message"]
            if answer.has_logprobs and said == ["message"] and self._item["type"] == "message":
                self._item["content"][0]["logprobs"] = chat_logprobs(answer.told(), answer.spelling)
            self._status = "incomplete" if reason == "length" else "completed"
            found += self._end(self._status)
        return found

    def ending(self, answers: Sequence[Choice]) -> Iterator[bytes]:
        yield self._event(f"response.{self._status}", response=self._said(answers[0]))

    def failed(self, error: ApiError) -> bytes:
        return self._event("error", message=str(error), param=error.param, code=error.code)

    def _one(self, answer: Choice, one: Event) -> list[bytes]:
        """Return the events of a text, or of a part of a call."""
        if one.kind == "end":
            return self._end("completed")
        if one.kind == "call":
            call_id = new_id()
            call = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": one.text,
                    "arguments": "", "status": "in_progress"}  # fmt: skip
            return [*self._end("completed"), *self._begin(call)]
        if one.kind == "arguments":
            self._item["arguments"] += one.text
            return [self._in_item("response.function_call_arguments.delta", delta=one.text)]
        kind = "reasoning" if one.kind == "thought" else "message"
        begun = self._text_of(kind)
        self._item["content"][0]["text"] += one.text
        if kind == "reasoning":
            return [*begun, self._in_item("response.reasoning_text.delta", content_index=0, delta=one.text)]
        scores = list[JsonObject]()
        if not answer.has_tools:  # calls have none, and that a token belongs to one is known late
            scores = chat_logprobs(answer.told(self._told), answer.spelling)
            self._told = answer.certain
        told = self._in_item("response.output_text.delta", content_index=0, delta=one.text, logprobs=scores)
        return [*begun, told]

    def _text_of(self, kind: str) -> list[bytes]:
        """Begin an item of this kind, which has a text, unless one is being written; returns the events."""
        if self._output and self._item["status"] == "in_progress" and self._item["type"] == kind:
            return []
        return [*self._end("completed"), *self._begin(_text_item(kind))]

    @property
    def _item(self) -> JsonObject:
        """The last item of the output."""
        return self._output[-1]

    def _begin(self, item: JsonObject) -> list[bytes]:
        self._output.append(item)
        has_text = "content" in item
        shown = {**item, "content": []} if has_text else item
        found = [self._event("response.output_item.added", output_index=len(self._output) - 1, item=shown)]
        if has_text:
            part = item["content"][0]
            found.append(self._in_item("response.content_part.added", content_index=0, part=part))
        return found

    def _end(self, status: str) -> list[bytes]:
        """End the item that is being written, if there is one."""
        if not self._output or self._item["status"] != "in_progress":
            return []
        item = self._item
        item["status"] = status
        if "content" in item:
            part = item["content"][0]
            fields = {name: part[name] for name in ("text", "logprobs") if name in part}
            told = [self._in_item(f"response.{part['type']}.done", content_index=0, **fields),
                    self._in_item("response.content_part.done", content_index=0, part=part)]  # fmt: skip
        else:
            told = [self._in_item("response.function_call_arguments.done", name=item["name"],
                                  arguments=item["arguments"])]  # fmt: skip
        done = self._event("response.output_item.done", output_index=len(self._output) - 1, item=item)
        return [*told, done]

    def _said(self, answer: Choice) -> JsonObject:
        asked, status = self._asked, self._status
        return {
            "id": self._id, "object": "response", "created_at": self._created, "status": status,
            "model": self._model, "output": self._output, "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": asked.instructions, "max_output_tokens": asked.max_output_tokens,
            "parallel_tool_calls": bool(asked.parallel_tool_calls), "previous_response_id": None,
            "temperature": asked.temperature, "top_p": asked.top_p, "tools": asked.tools or [],
            "tool_choice": asked.tool_choice or "auto", "text": asked.text or {"format": {"type": "text"}},
            "metadata": asked.metadata or {}, "user": asked.user, "store": False,
            "usage": None if status == "in_progress" else _usage(answer),
        }  # fmt: skip

    def _in_item(self, kind: str, **fields: Any) -> bytes:
        return self._event(kind, item_id=self._item["id"], output_index=len(self._output) - 1, **fields)

    def _event(self, kind: str, **fields: Any) -> bytes:
        body = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return event(body, kind)


def _text_item(kind: str) -> JsonObject:
    """Return a new item of kind ``message`` or ``reasoning``, with an empty text."""
    about = {"type": kind, "status": "in_progress"}
    if kind == "reasoning":
        part: JsonObject = {"type": "reasoning_text", "text": ""}
        return {"id": f"rs_{secrets.token_hex(16)}", **about, "summary": [], "content": [part]}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    return {"id": f"msg_{secrets.token_hex(16)}", **about, "role": "assistant", "content": [part]}


def _usage(answer: Choice) -> JsonObject:
    found = usage_of([answer])
    return {
        "input_tokens": found["prompt_tokens"],
        "input_tokens_details": {**found["prompt_tokens_details"], "cache_write_tokens": 0},
        "output_tokens": found["completion_tokens"],
        "output_tokens_details": found["completion_tokens_details"],
        "total_tokens": found["total_tokens"],
        "draftwood": found["draftwood"],
    }
