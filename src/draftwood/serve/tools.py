"""Tools: how a model is told of functions that it may call, and how calls are read from what it writes.

Models write a call as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, the form that Hermes models
began and most open models know, or as that JSON alone.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from draftwood.serve.openai.errors import BAD_REQUEST, ApiError
from draftwood.serve.openai.fields import ChatRequest, FunctionTool, NamedTool

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|\Z)", re.DOTALL)
_OPENING = "<tool_call>"
_TOLD = """You may call functions. Their signatures, as JSON Schema, one to a line:
{signatures}
To call one, answer with nothing but
<tool_call>{{"name": "<its name>", "arguments": <its arguments>}}</tool_call>"""
_FORCED = """You must call {which}. Its signature, as JSON Schema:
{signatures}
Answer with a JSON object with its "name" and its "arguments"."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call that a model wants: ``arguments`` is JSON, as the API has it."""

    id: str
    name: str
    arguments: str


class ToolUse:
    """The tools of one request.

    Parameters
    ----------
    functions
        What may be called; at least one.
    forced
        Whether the answer must be a call; then a grammar of `schema` forces it.
    is_named
        Whether the client has named the one function that must be called.
    """

    def __init__(self, functions: Sequence[FunctionTool], *, forced: bool, is_named: bool) -> None:
        self._functions, self.forced, self._is_named = functions, forced, is_named

    @property
    def reason(self) -> Literal["stop", "tool_calls"]:
        """The API's reason for the end of an answer that is a call."""
        return "stop" if self._is_named else "tool_calls"

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of a call of one of the functions."""
        found = [_call_schema(function) for function in self._functions]
        return found[0] if len(found) == 1 else {"anyOf": found}

    def messages(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return a conversation that tells the model of the functions, and has all calls so far as text."""
        told = [_as_text(message) for message in messages]
        lines = "\n".join(json.dumps(_signature(function)) for function in self._functions)
        which = "this function" if len(self._functions) == 1 else "one of these functions"
        said = _FORCED.format(which=which, signatures=lines) if self.forced else _TOLD.format(signatures=lines)
        if told and told[0].get("role") == "system" and isinstance(told[0].get("content"), str):
            return [{**told[0], "content": f"{told[0]['content']}\n\n{said}"}, *told[1:]]
        return [{"role": "system", "content": said}, *told]

    def may_be_call(self, text: str) -> bool:
        """Return whether a text that begins like this may turn out to be a call."""
        begun = text.lstrip()
        return self.forced or begun.startswith(("{", _OPENING[: len(begun)]))

    def calls(self, text: str) -> list[Call]:
        """Return the calls that a whole answer consists of; none if it is a text."""
        pieces = _TAGGED.findall(text) or [text.strip()]
        found = [_call(piece) for piece in pieces]
        names = {function.name for function in self._functions}
        known = [call for call in found if call is not None and call.name in names]
        return known if len(known) == len(found) else []


def tools_of(asked: ChatRequest) -> ToolUse | None:
    """Return the tools of a chat; None where there are none, or none may be used. Raises `ApiError`."""
    functions = [tool.function for tool in asked.tools or ()]
    choice = asked.tool_choice
    if isinstance(choice, NamedTool):
        chosen = [function for function in functions if function.name == choice.function.name]
        if not chosen:
            said = f"tool_choice names {choice.function.name!r}, which is none of the tools"
            raise ApiError(BAD_REQUEST, said, param="tool_choice")
        return ToolUse(chosen[:1], forced=True, is_named=True)
    if choice == "required" and not functions:
        raise ApiError(BAD_REQUEST, "tool_choice is 'required', and there are no tools", param="tool_choice")
    if not functions or choice == "none":
        return None
    return ToolUse(functions, forced=choice == "required", is_named=False)


def without_calls(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a conversation that has all calls so far as text, for a request without tools."""
    return [_as_text(message) for message in messages]


def _signature(function: FunctionTool) -> dict[str, Any]:
    found: dict[str, Any] = {"name": function.name}
    if function.description:
        found["description"] = function.description
    return {**found, "parameters": _parameters(function)}


def _call_schema(function: FunctionTool) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": function.name}, "arguments": _parameters(function)},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _parameters(function: FunctionTool) -> dict[str, Any]:
    return function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of which the calls are text, since few templates know them."""
    calls = message.get("tool_calls")
    if not calls:
        return dict(message)
    if not isinstance(calls, list):
        raise ApiError(BAD_REQUEST, "tool_calls must be a list of calls", param="messages")
    written = "\n".join(f"{_OPENING}{_written(call)}</tool_call>" for call in calls)
    text = message.get("content")
    content = f"{text}\n{written}" if isinstance(text, str) and text else written
    return {"role": message.get("role", "assistant"), "content": content}


def _written(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ApiError(BAD_REQUEST, "a tool call has no function with a name", param="messages")
    arguments = function.get("arguments", "{}")
    said = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f'{{"name": {json.dumps(function["name"])}, "arguments": {said or "{}"}}}'


def _call(text: str) -> Call | None:
    """Read a call; None for what is none."""
    try:
        found, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    if text[end:].strip() or not isinstance(found, dict) or not isinstance(found.get("name"), str):
        return None
    arguments = found.get("arguments", found.get("parameters", {}))
    if not isinstance(arguments, dict):
        return None
    return Call(f"call_{secrets.token_hex(12)}", found["name"], json.dumps(arguments, ensure_ascii=False))
