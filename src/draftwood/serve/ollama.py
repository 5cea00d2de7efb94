"""Requests of Ollama's ``/api/chat`` and ``/api/generate``: their fields, checked, and what they are as a chat."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from draftwood.serve.errors import ApiError
from draftwood.serve.fields import (
    ChatRequest,
    CompletionRequest,
    DraftingField,
    Every,
    Items,
    JsonObject,
    Name,
    Penalty,
    RequestBody,
    Tokens,
    Tool,
    few_stops,
)
from draftwood.serve.meanings import ALL
from draftwood.serve.parts import PartReader

_RENAMED = {"repeat_penalty": "repetition_penalty"}
"""Fields with other names in chats."""


class LlamaSampling(RequestBody):
    """How tokens are drawn, as Ollama and llama.cpp's server call it."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_k: Tokens | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 64)] | None = None
    stop: str | Every[str] | None = None
    repeat_penalty: Annotated[float, Field(ge=0.01, le=10)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None

    _few_stops = field_validator("stop")(few_stops)

    def in_chats(self) -> JsonObject:
        """Return what is set of these, as fields of a chat."""
        known = {name: getattr(self, name) for name in LlamaSampling.model_fields}
        return {_RENAMED.get(name, name): value for name, value in known.items() if value is not None}


class OllamaOptions(LlamaSampling):
    """The options of a request to Ollama: also how many tokens are written."""

    num_predict: Tokens | None = None

    @field_validator("num_predict", mode="before")
    @classmethod
    def _limit(cls, given: Any) -> Any:
        """Read 0, -1 (as many as the model writes) and -2 (as many as it takes) as no limit."""
        return None if not isinstance(given, bool) and given in (0, -1, -2) else given

    def in_chats(self) -> JsonObject:
        limit = {} if self.num_predict is None else {"max_tokens": self.num_predict}
        return super().in_chats() | limit


class OllamaRequest(RequestBody):
    """What both requests have in common."""

    model: Name | None = None
    stream: bool | None = True
    options: OllamaOptions | None = None
    format: Literal["", "json"] | JsonObject | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: Any = None
    draftwood: DraftingField | None = None
    named: ClassVar[Mapping[str, str]] = {"reasoning_effort": "think", "enable_thinking": "think"}

    @field_validator("stream")
    @classmethod
    def _streams(cls, given: bool | None) -> bool:
        return given is not False

    def _in_chats(self) -> JsonObject:
        """Return what is set as fields of a chat."""
        found = self.options.in_chats() if self.options is not None else {}
        if self.format == "json":
            found["response_format"] = {"type": "json_object"}
        elif isinstance(self.format, dict):
            found["response_format"] = {"type": "json_schema", "json_schema": {"schema": self.format}}
        if isinstance(self.think, bool):
            found["enable_thinking"] = self.think
        elif self.think is not None:
            found["reasoning_effort"] = self.think
        if self.draftwood is not None:
            found["draftwood"] = self.draftwood.model_dump()
        return found


class OllamaChat(OllamaRequest):
    """Body of ``/api/chat``."""

    messages: Items[JsonObject] = Field(default_factory=list)
    tools: Items[Tool] | None = None

    def chat(self, parts: PartReader) -> ChatRequest:
        """Return the same as a chat, its contents read by ``parts``; raises `ApiError` or pydantic's error."""
        tools = [tool.model_dump() for tool in self.tools or ()]
        given = self._in_chats() | ({"tools": tools} if tools else {})
        return ChatRequest.model_validate({**given, "messages": _messages(self.messages, parts)})


class OllamaText(OllamaRequest):
    """Body of ``/api/generate``."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    images: Items[Any] | None = None
    raw: bool | None = None

    def chat(self, parts: PartReader) -> ChatRequest:
        """Return the same as a chat; raises as `OllamaChat.chat`."""
        told = [{"role": "system", "content": self.system}] if self.system else []
        asked = {"role": "user", "content": self._prompt(parts)}
        return ChatRequest.model_validate({**self._in_chats(), "messages": [*told, asked]})

    def plain(self, parts: PartReader) -> CompletionRequest:
        """Return the same as a text that goes on; raises as `OllamaChat.chat`."""
        given = {"max_tokens": ALL, **self._in_chats(), "prompt": self._prompt(parts), "suffix": self.suffix}
        if "response_format" in given:
            raise ApiError("format is for answers to chats: leave it out, or raw and suffix", param="format")
        return CompletionRequest.model_validate(given)

    def _prompt(self, parts: PartReader) -> str:
        return _without_images({"content": self.prompt or "", "images": self.images}, "", parts)


def _messages(given: list[JsonObject], parts: PartReader) -> list[JsonObject]:
    """Return messages as chats have them; results of tools, which have no ids here, follow the calls in order."""
    waiting, found = list[tuple[str, str]](), list[JsonObject]()  # ids and names of calls without results
    for number, message in enumerate(given):
        place = f"messages.{number}"
        one: JsonObject = {"role": message.get("role"), "content": _without_images(message, f"{place}.", parts)}
        if message.get("thinking"):
            one["reasoning_content"] = message["thinking"]
        if calls := _calls(message.get("tool_calls") or [], place):
            one["tool_calls"] = calls
            waiting += [(call["id"], call["function"]["name"]) for call in calls]
        if one["role"] == "tool":
            name, its = message.get("tool_name"), message.get("tool_call_id")
            answered = [pair for pair in waiting if its == pair[0] or (its is None and name in (None, pair[1]))]
            if answered:
                waiting.remove(answered[0])
            one["tool_call_id"] = answered[0][0] if answered else its
        found.append(one)
    return found


def _calls(given: Any, place: str) -> list[JsonObject]:
    if not isinstance(given, list):
        raise ApiError(f"{place}.tool_calls: give a list of calls", param=f"{place}.tool_calls")
    found = list[JsonObject]()
    for number, call in enumerate(given):
        here = f"{place}.tool_calls.{number}"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ApiError(f"{here}: give a function with a name and arguments", param=here)
        arguments = json.dumps(function.get("arguments") or {}, ensure_ascii=False)
        about = {"id": str(call.get("id") or f"call_{place}_{number}"), "type": "function"}
        found.append({**about, "function": {"name": function["name"], "arguments": arguments}})
    return found


def _without_images(message: Mapping[str, Any], place: str, parts: PartReader) -> Any:
    """Return a message's text, in which each of its images has a line that says that it is left out."""
    images = message.get("images") or []
    if not isinstance(images, list):
        raise ApiError(f"{place}images: give a list", param=f"{place}images")
    told = [parts.part({"type": "image"}, f"{place}images.{number}") for number in range(len(images))]
    text = parts.text(message.get("content") or "", f"{place}content")
    return "\n".join([*told, text]) if told and isinstance(text, str) else text
