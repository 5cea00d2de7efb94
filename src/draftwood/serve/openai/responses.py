"""What clients of ``/v1/responses`` send, turned into a chat: the part of that API that agents use."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field, field_validator

from draftwood.serve.openai.errors import BAD_REQUEST, ApiError
from draftwood.serve.openai.fields import (
    MOST_MESSAGES,
    MOST_TOP,
    Body,
    ChatRequest,
    Drafting,
    JsonSchema,
    PredictedText,
    Tokens,
)
from draftwood.serve.openai.meanings import REFUSED, RESPONSES

Items = Annotated[list[dict[str, Any]], Field(min_length=1, max_length=MOST_MESSAGES)]
_PARTS = ("text", "input_text", "output_text")


class ResponsesRequest(Body):
    """Body of ``/v1/responses``."""

    input: str | Items
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: Tokens | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_TOP)] | None = None
    seed: int | None = None
    stream: bool | None = None
    text: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    prediction: PredictedText | None = None
    user: Annotated[str, Field(max_length=512)] | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    parallel_tool_calls: bool | None = None
    include: list[str] | None = None
    draftwood: Drafting | None = None

    @field_validator("text", "tools", "tool_choice", "metadata")
    @classmethod
    def _is_json(cls, given: Any) -> Any:
        json.dumps(given, allow_nan=False)  # the answer repeats these; 1e999 is no error so far
        return given

    def chat(self) -> ChatRequest:
        """Return the same as a chat; raises `ApiError`, or pydantic's error for fields that cannot be."""
        for name, said in REFUSED[RESPONSES].items():
            if getattr(self, name) is not None:
                raise ApiError(BAD_REQUEST, said, param=name)
        given = {
            "model": self.model, "temperature": self.temperature, "top_p": self.top_p, "seed": self.seed,
            "stream": self.stream, "max_completion_tokens": self.max_output_tokens, "user": self.user,
            "logprobs": self._wants_logprobs or None, "top_logprobs": self.top_logprobs,
            "messages": self._messages(), "tools": _functions(self.tools) or None,
            "tool_choice": self._choice(), "response_format": self._format(),
            "prediction": None if self.prediction is None else self.prediction.model_dump(),
            "draftwood": None if self.draftwood is None else self.draftwood.model_dump(),
        }  # fmt: skip
        return ChatRequest.model_validate({name: value for name, value in given.items() if value is not None})

    @property
    def _wants_logprobs(self) -> bool:
        return self.top_logprobs is not None or "message.output_text.logprobs" in (self.include or ())

    def _messages(self) -> list[dict[str, Any]]:
        first = [] if self.instructions is None else [{"role": "system", "content": self.instructions}]
        if isinstance(self.input, str):
            return [*first, {"role": "user", "content": self.input}]
        found: list[dict[str, Any]] = [*first]
        for item in self.input:
            message = _message(item)
            if message is None:
                continue
            if (
                found
                and found[-1].get("role") == message["role"] == "assistant"
                and ("tool_calls" in message or "tool_calls" in found[-1])
            ):  # of the same turn
                found[-1] = _joined(found[-1], message)
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

    def _format(self) -> dict[str, Any] | None:
        found = (self.text or {}).get("format")
        if not isinstance(found, Mapping | None):
            raise ApiError(BAD_REQUEST, "text.format must be an object with a type", param="text.format")
        if found is None or found.get("type") != "json_schema":
            return None if found is None else dict(found)
        fields = {name: value for name, value in found.items() if name != "type"}
        return {"type": "json_schema", "json_schema": JsonSchema.model_validate(fields).model_dump(by_alias=True)}


def _functions(tools: Any) -> list[dict[str, Any]]:
    """Return the functions among the tools; those that a service would run itself are not here."""
    given = tools if isinstance(tools, list) else []
    return [_in_chats(tool) for tool in given if isinstance(tool, dict) and tool.get("type") == "function"]


def _in_chats(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function, or its name, as chats have it."""
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _message(item: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return an item of the input as a chat message; None for the model's own reasoning."""
    kind = item.get("type", "message")
    if kind == "reasoning":
        return None
    if kind == "function_call":
        function = {"name": item.get("name"), "arguments": item.get("arguments", "{}")}
        return {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    if kind == "function_call_output":
        return {"role": "tool", "content": _text(item.get("output", "")), "tool_call_id": item.get("call_id")}
    if kind != "message":
        raise ApiError(BAD_REQUEST, f"an item of type {str(kind)[:80]!r} cannot be read here", param="input")
    role = item.get("role")
    return {"role": "system" if role == "developer" else role, "content": _text(item.get("content"))}


def _joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return two parts of an assistant's turn as one message: its texts, then its calls, as a chat has them."""
    texts = [part["content"] for part in (first, second) if part["content"] is not None]
    calls = [call for part in (first, second) for call in part.get("tool_calls", ())]
    return {"role": "assistant", "content": "".join(texts) if texts else None, "tool_calls": calls}


def _text(content: Any) -> str | None:
    """Return a content with its parts as one text, or None; `ApiError` for what is no text."""
    if content is None or isinstance(content, str):
        return content
    for part in content if isinstance(content, list) else [content]:
        if (
            not isinstance(content, list)
            or not isinstance(part, Mapping)
            or part.get("type") not in _PARTS
            or not isinstance(part.get("text"), str)
        ):
            raise ApiError(
                BAD_REQUEST, "parts of a message must be texts: this model reads no others", param="input"
            )
    return "".join(part["text"] for part in content)
