"""Tells a model in its prompt of functions that it may call, and of earlier calls; `calls` reads new ones.

Where its chat template takes functions it tells of them, else a system message of ours.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from draftwood.api.call_frame import call_style
from draftwood.api.prompts import plain_messages, render
from draftwood.errors import PromptError
from draftwood.grammar.calls import FREE, CallParts, forced, in_messages, in_text, instead, rule_of
from draftwood.grammar.grammar import Grammar
from draftwood.serve.call_forms.base import CallForm
from draftwood.serve.call_forms.found import BARE, OURS, call_parts, forms_of
from draftwood.serve.call_forms.named import HARMONY, message_marks
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import FUNCTION_NAME, AllowedTools, ChatRequest, FunctionTool, JsonObject, NamedTool
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

    ``forced``: a grammar forces the answer to be a call; ``is_named``: the client has named the function;
    ``is_single``: an answer ends with its first call. ``passes_unknown``: calls of other functions are read, too;
    ``callable`` has the parameters of all that can be called.
    """

    def __init__(
        self, functions: Sequence[FunctionTool], *, forced: bool, is_named: bool, is_single: bool,
        passes_unknown: bool = False,
    ) -> None:  # fmt: skip
        self._functions, self.forced, self.is_single = functions, forced, is_single
        self.reason: Literal["stop", "tool_calls"] = "stop" if is_named else "tool_calls"  # as in the API
        self.parameters = {one.name: _parameters(one) for one in functions}  # JSON Schema by function
        self.callable = _AnyFunction(self.parameters) if passes_unknown else self.parameters
        self.is_told_by_template = False  # else by a system message of ours
        self.marks: Mapping[str, int] | None = None  # tokens of headers, where messages have some

    def prompt(self, messages: Sequence[Mapping[str, Any]], tokenizer: Any, **how: Any) -> list[int]:
        """Return the ids of a conversation in which the model is told of the functions; raises as `render`.

        The chat template tells of them where it can, in the form that the model knows.
        """
        called = with_calls(messages)
        if call_style(tokenizer).takes_tools:
            try:
                ids = render(called, tokenizer, tools=[_for_template(one) for one in self._functions], **how)
                self.is_told_by_template, self.marks = True, message_marks(tokenizer, ids)
                return ids
            except PromptError:  # some templates read schemas of a few kinds alone
                pass
        return render(self.messages(called), tokenizer, **how)

    def is_strict(self, tokenizer: Any) -> bool:
        """Whether calls of some function must fit its schema, once they have begun."""
        is_held = self._form(tokenizer).in_messages or not forms_of(tokenizer)[0].in_messages
        return is_held and any(function.strict for function in self._functions)

    def forced_grammar(self, tokenizer: Any) -> Grammar:
        """Return the grammar of one call; raises as `forced`. The prompt must have been made before."""
        form = self._form(tokenizer)
        parts = self._parts(BARE if form is OURS else form, self.parameters, tokenizer)
        return in_messages(parts, HARMONY, None) if form.in_messages else forced(parts)

    def strict_grammar(self, tokenizer: Any) -> Grammar:
        """Return the grammar of texts with calls, of which those of strict functions fit their schemas."""
        form = self._form(tokenizer)
        parts = self._parts(form, self._strict_parameters, tokenizer)
        return in_messages(parts, HARMONY, FREE) if form.in_messages else in_text(parts)

    def grammar_beside(self, schema: JsonObject, tokenizer: Any) -> Grammar:
        """Return the grammar of JSON that a schema allows, or of calls instead of it."""
        form = self._form(tokenizer)
        parts = self._parts(form, self._strict_parameters, tokenizer)
        if form.in_messages:
            return in_messages(parts, HARMONY, rule_of(Grammar.json_schema(schema)))
        return instead(schema, parts)

    def _parts(self, form: CallForm, parameters: Mapping[str, JsonObject | None], tokenizer: Any) -> CallParts:
        parts = call_parts(form, parameters, tokenizer)
        return parts._replace(tokens=self.marks or {}) if form.in_messages else parts

    @property
    def _strict_parameters(self) -> dict[str, JsonObject | None]:
        return {one.name: self.parameters[one.name] if one.strict else None for one in self._functions}

    def _form(self, tokenizer: Any) -> CallForm:
        form = forms_of(tokenizer)[0]
        return form if self.is_told_by_template and (self.marks or not form.in_messages) else OURS

    def messages(self, messages: Sequence[JsonObject]) -> list[JsonObject]:
        """Return a conversation with the functions in its system message."""
        lines = "\n".join(_json(_signature(function)) for function in self._functions)
        which = "this function" if len(self._functions) == 1 else "one of these functions"
        said = _FORCED.format(which=which, signatures=lines) if self.forced else _TOLD.format(signatures=lines)
        if messages and messages[0]["role"] == "system":
            return [{**messages[0], "content": f"{messages[0]['content']}\n\n{said}"}, *messages[1:]]
        return [{"role": "system", "content": said}, *messages]


class _AnyFunction(dict[str, JsonObject]):
    """Parameters by function, those of functions that were not offered free."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and re.fullmatch(FUNCTION_NAME, name) is not None

    def __missing__(self, name: str) -> JsonObject:
        return {}


def tools_of(asked: ChatRequest, *, passes_unknown: bool = False) -> ToolUse | None:
    """Return the tools of a chat; None where there are none, or none may be used. Raises `ApiError`."""
    functions = [tool.function for tool in asked.tools or ()]
    choice, is_single = asked.tool_choice, asked.parallel_tool_calls is False
    if isinstance(choice, NamedTool):
        return ToolUse(_named(functions, [choice])[:1], forced=True, is_named=True, is_single=is_single)
    if isinstance(choice, AllowedTools):
        functions, choice = _named(functions, choice.allowed_tools.tools), choice.allowed_tools.mode
    if choice == "required" and not functions:
        raise ApiError("tool_choice is 'required', and there are no tools", param="tool_choice")
    if not functions or choice == "none":
        return None
    return ToolUse(
        functions, forced=choice == "required", is_named=False, is_single=is_single, passes_unknown=passes_unknown
    )


def _named(functions: Sequence[FunctionTool], wanted: Sequence[NamedTool]) -> list[FunctionTool]:
    """Return the functions that a choice names; raises `ApiError` for one that is not there."""
    names = {tool.function.name for tool in wanted}
    for name in sorted(names.difference(function.name for function in functions)):
        raise ApiError(f"tool_choice names {name!r}, which is none of the tools", param="tool_choice")
    return [function for function in functions if function.name in names]


def new_id() -> str:
    """Return the id of a new call."""
    return f"call_{secrets.token_hex(12)}"


def with_calls(messages: Sequence[Mapping[str, Any]]) -> list[JsonObject]:
    """Return a conversation with its calls in one form: that of today's API, their arguments JSON, and each result
    with the name of its function. Raises `ApiError` or `PromptError`, with the number of the message.
    """
    names, found = dict[str, str](), list[JsonObject]()
    for number, message in enumerate(plain_messages(messages), 1):
        one = _with_calls(message, number)
        names |= {call["id"]: call["function"]["name"] for call in one.get("tool_calls", ())}
        if one["role"] == "function":  # a result in the older form
            its = next((call_id for call_id, name in reversed(names.items()) if name == one.get("name")), None)
            one |= {"role": "tool", "tool_call_id": its}
        elif one["role"] == "tool" and (asked := str(one.get("tool_call_id"))) in names:
            one = {"name": names[asked], **one}
        found.append(one)
    return found


def _with_calls(message: Mapping[str, Any], number: int) -> JsonObject:
    calls, older = message.get("tool_calls") or [], message.get("function_call")
    if not isinstance(calls, list):
        raise _unreadable(number, "tool_calls must be a list of calls")
    if older:
        calls = [*calls, {"id": f"call_{number}", "function": older}]
    kept = {name: value for name, value in message.items() if name not in ("tool_calls", "function_call")}
    return {**kept, "tool_calls": [_call(call, number) for call in calls]} if calls else kept


def _call(call: Any, number: int) -> JsonObject:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise _unreadable(number, "a tool call has no function with a name")
    arguments = function.get("arguments") or "{}"
    said = readable(nearest(arguments) if isinstance(arguments, str) else _json(arguments))
    about = {"id": str(call.get("id") or f"call_{number}"), "type": "function"}
    return {**about, "function": {"name": function["name"], "arguments": said}}


def _unreadable(number: int, said: str) -> ApiError:
    return ApiError(f"message {number}: {said}", param="messages")


def _signature(function: FunctionTool) -> JsonObject:
    described = {"description": function.description} if function.description else {}
    return {"name": function.name, **described, "parameters": _parameters(function)}


def _for_template(function: FunctionTool) -> JsonObject:
    """Return a function as templates want it, which fail where parts are missing that they read."""
    parameters = {"type": "object", "properties": {}, **_parameters(function)}
    about = {"name": function.name, "description": function.description or "", "parameters": parameters}
    return {"type": "function", "function": about}


def _parameters(function: FunctionTool) -> JsonObject:
    return function.parameters or {"type": "object", "properties": {}, "additionalProperties": False}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
