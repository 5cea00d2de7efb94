"""Requests of ``/v1/responses``, as far as agents use it: they become chats."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from pydantic import field_validator

from draftwood.serve.errors import ApiError
from draftwood.serve.fields import (
    ChatRequest,
    Items,
    JsonObject,
    JsonSchema,
    Lenient,
    Penalty,
    Thinks,
    Tokens,
    Top,
)
from draftwood.serve.items import messages_of
from draftwood.serve.meanings import REFUSED, RESPONSES
from draftwood.serve.offered import OfferedTools
from draftwood.serve.parts import PartReader

_AS_IN_CHATS = (
    "model", "temperature", "top_p", "seed", "stream", "user", "top_logprobs", "presence_penalty",
    "frequency_penalty", "parallel_tool_calls", "enable_thinking", "thinking_budget", "chat_template_kwargs",
)  # fmt: skip


class Reasoning(Lenient):
    """How much the model is to think; there are no summaries, but the thoughts themselves."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None
    context: str | None = None


class ResponsesRequest(Thinks):
    """Body of ``/v1/responses``."""

    input: str | Items[JsonObject]
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
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    reasoning: Reasoning | None = None

    named: ClassVar[Mapping[str, str]] = {"reasoning_effort": "reasoning.effort"}

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
        parts.left_out += self.offered.left_out
        scored = self.top_logprobs is not None or "message.output_text.logprobs" in (self.include or ())
        given = {
            **{name: getattr(self, name) for name in _AS_IN_CHATS},
            "max_completion_tokens": self.max_output_tokens,
            "reasoning_effort": self.reasoning and self.reasoning.effort,
            "thinking": self.thinking and self.thinking.model_dump(),
            "logprobs": scored or None,
            "messages": self._messages(parts),
            "tools": self.offered.functions or None,
            "tool_choice": self.offered.choice(self.tool_choice),
            "response_format": self._format(),
            "prediction": self.prediction and self.prediction.model_dump(),
            "draftwood": self.draftwood and self.draftwood.model_dump(),
        }
        return ChatRequest.model_validate({name: value for name, value in given.items() if value is not None})

    @cached_property
    def offered(self) -> OfferedTools:
        """The functions of this request; raises `ApiError`."""
        found = OfferedTools()
        found.add(self.tools, "tools")
        for number, item in enumerate(self.input if isinstance(self.input, list) else ()):
            if item.get("type") == "additional_tools":
                found.add(item.get("tools"), f"input.{number}.tools")
        return found

    def _messages(self, parts: PartReader) -> list[JsonObject]:
        told = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        if isinstance(self.input, str) or not self.input:  # with an empty list clients only ask whether we answer
            return [*told, {"role": "user", "content": self.input or ""}]
        return [*told, *messages_of(self.input, parts, self.offered)]

    def _format(self) -> JsonObject | None:
        found = (self.text or {}).get("format")
        if not isinstance(found, Mapping | None):
            raise ApiError("text.format must be an object with a type", param="text.format")
        if found is None or found.get("type") != "json_schema":
            return None if found is None else dict(found)
        fields = {name: value for name, value in found.items() if name != "type"}
        return {"type": "json_schema", "json_schema": JsonSchema.model_validate(fields).model_dump(by_alias=True)}

    def described_text(self) -> JsonObject:
        """Return what was asked of the answer's text, with all fields."""
        form = {"type": "text", **((self.text or {}).get("format") or {})}
        if form["type"] == "json_schema":
            empty = {"name": "answer", "description": None, "schema": None, "strict": False}
            form = {**empty, **{name: value for name, value in form.items() if value is not None}}
        return {**(self.text or {}), "format": form}
