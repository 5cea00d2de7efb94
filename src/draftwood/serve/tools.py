"""Tells a model in its prompt of functions that it may call, and of earlier calls; `calls` reads new ones."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from draftwood.api.prompts import plain_messages
from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.serve.calls import CLOSING, OPENING, TAGS
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import AllowedTools, ChatRequest, FunctionTool, JsonObject, NamedTool
from draftwood.serve.json_reader import nearest, readable

_TOLD = """You may call functions. Their signatures, as JSON Schema, one to a line:
{signatures}
To call one, answer with nothing but
<tool_call>{{"name": "<its name>", "arguments": <its arguments>}}</tool_call>"""
_FORCED = """You must call {which}. Its signature, as JSON Schema:
{signatures}
Answer with a JSON object with its "name" and its "arguments"."""


class ToolUse:
    """The tools of one request, at least one.

    ``forced``: a grammar forces the answer to be a call; ``is_named``: the client has named the function.
    """

    def __init__(self, functions: Sequence[FunctionTool], *, forced: bool, is_named: bool) -> None:
        self._functions, self.forced = functions, forced
        self.reason: Literal["stop", "tool_calls"] = "stop" if is_named else "tool_calls"  # as in the API
        self.parameters = {one.name: _parameters(one) for one in functions}  # JSON Schema by function

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
        """Return the conversation with the functions in its system message, and all calls so far as text."""
        told = without_calls(messages)
        lines = "\n".join(_json(_signature(function)) for function in self._functions)
        which = "this function" if len(self._functions) == 1 else "one of these functions"
        said = _FORCED.format(which=which, signatures=lines) if self.forced else _TOLD.format(signatures=lines)
        if told and told[0]["role"] == "system":
            return [{**told[0], "content": f"{told[0]['content']}\n\n{said}"}, *told[1:]]
        return [{"role": "system", "content": said}, *told]


def tools_of(asked: ChatRequest) -> ToolUse | None:
    """Return the tools of a chat; None where there are none, or none may be used. Raises `ApiError`."""
    functions = [tool.function for tool in asked.tools or ()]
    choice = asked.tool_choice
    if isinstance(choice, NamedTool):
        return ToolUse(_named(functions, [choice])[:1], forced=True, is_named=True)
    if isinstance(choice, AllowedTools):
        functions, choice = _named(functions, choice.allowed_tools.tools), choice.allowed_tools.mode
    if choice == "required" and not functions:
        raise ApiError("tool_choice is 'required', and there are no tools", param="tool_choice")
    if not functions or choice == "none":
        return None
    return ToolUse(functions, forced=choice == "required", is_named=False)


def _named(functions: Sequence[FunctionTool], wanted: Sequence[NamedTool]) -> list[FunctionTool]:
    """Return the functions that a choice names; raises `ApiError` for one that is not there."""
    names = {tool.function.name for tool in wanted}
    for name in sorted(names.difference(function.name for function in functions)):
        raise ApiError(f"tool_choice names {name!r}, which is none of the tools", param="tool_choice")
    return [function for function in functions if function.name in names]


def new_id() -> str:
    """Return the id of a new call."""
    return f"call_{secrets.token_hex(12)}"


def hidden_tags(tokenizer: Any) -> dict[str, int]:
    """Return those of `TAGS` that are control tokens of the model, which decoding drops, with their ids.

    The reader of calls sees them, and no client does.
    """
    shown, found = decoder(tokenizer), dict[str, int]()
    for tag in TAGS:
        ids = tokenizer(tag, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and not shown(ids):
            found[tag] = int(ids[0])
    return found


def without_calls(messages: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """Return a conversation with all calls so far as text, since few chat templates know calls.

    Raises `ApiError` or `PromptError`, with the number of the message.
    """
    return [_as_text(message, number) for number, message in enumerate(plain_messages(messages), 1)]


def _as_text(message: Mapping[str, Any], number: int) -> JsonObject:
    calls, older = message.get("tool_calls") or [], message.get("function_call")
    if not isinstance(calls, list):
        raise _unreadable(number, "tool_calls must be a list of calls")
    if older:
        calls = [*calls, {"function": older}]
    if not calls:
        return dict(message)
    text = message.get("content")
    written = [f"{OPENING}{_written(call, number)}{CLOSING}" for call in calls]
    return {"role": message["role"], "content": "\n".join([text, *written] if text else written)}


def _written(call: Any, number: int) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _unreadable(number, "a tool call has no function with a name")
    arguments = function.get("arguments") or "{}"
    said = nearest(arguments) if isinstance(arguments, str) else _json(arguments)
    return f'{{"name": {_json(function["name"])}, "arguments": {readable(said)}}}'


def _unreadable(number: int, said: str) -> ApiError:
    return ApiError(f"message {number}: {said}", param="messages")


def _signature(function: FunctionTool) -> JsonObject:
    described = {"description": function.description} if function.description else {}
    return {"name": function.name, **described, "parameters": _parameters(function)}


def _parameters(function: FunctionTool) -> JsonObject:
    return function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
