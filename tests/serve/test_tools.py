"""Calls are read from what a model writes, held back until they are whole, and told to it as text."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from draftwood.serve.openai.errors import ApiError
from draftwood.serve.openai.fields import ChatRequest
from draftwood.serve.tool_form import ToolForm
from draftwood.serve.tools import tools_of, without_calls

LOOK = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}  # fmt: skip
LIST = {"type": "function", "function": {"name": "list"}}
ASKED = [{"role": "user", "content": "what is there?"}]


def tools(choice="auto", *functions):
    given = {"messages": ASKED, "tools": list(functions) or [LOOK, LIST], "tool_choice": choice}
    return tools_of(ChatRequest.model_validate(given))


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "look", "arguments": {"at": "it"}}</tool_call>',
        '<tool_call>\n{"name": "look", "arguments": {"at": "it"}}\n',
        ' {"name": "look", "parameters": {"at": "it"}} ',
    ],
)
def test_a_call_is_read(text):
    (call,) = tools().calls(text)
    assert (call.name, json.loads(call.arguments)) == ("look", {"at": "it"})


def test_several_calls_are_read():
    one = '<tool_call>{"name": "list", "arguments": {}}</tool_call>'
    assert [call.name for call in tools().calls(one * 3)] == ["list"] * 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It is there.",
        "{",
        '{"name": "other", "arguments": {}}',
        '{"name": "look", "arguments": 3}',
        "[" * 9999,
    ],
)
def test_other_texts_are_no_calls(text):
    assert tools().calls(text) == []


def test_the_model_is_told_of_its_tools_and_calls():
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
    said = [
        {"role": "system", "content": "Be kind."},
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    found = tools().messages(said)
    assert found[0]["content"].startswith("Be kind.\n\nYou may call functions.")
    assert '"description": "Look."' in found[0]["content"]
    assert found[2] == without_calls(said)[2] == {
        "role": "assistant", "content": '<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>',
    }  # fmt: skip
    assert tools().messages(ASKED)[0]["role"] == "system"


def test_a_forced_call_has_a_schema():
    assert tools("auto").forced is False
    named = tools({"type": "function", "function": {"name": "look"}})
    assert (named.forced, named.reason) == (True, "stop")
    assert named.schema()["properties"]["name"] == {"const": "look"}
    assert len(tools("required").schema()["anyOf"]) == 2
    assert tools("none") is None
    with pytest.raises(ApiError, match="none of the tools"):
        tools({"type": "function", "function": {"name": "other"}})
    with pytest.raises(ApiError, match="there are no tools"):
        tools_of(ChatRequest.model_validate({"messages": ASKED, "tool_choice": "required"}))


class Letters:
    def decode(self, ids, **_):
        return "".join(map(chr, ids))


def streamed(text, finish="stop"):
    """What a stream tells of a text that comes letter by letter."""
    form, answer = ToolForm(Letters(), tools()), SimpleNamespace(index=0)
    pieces = [form.delta(answer, letter, None, None) for letter in text]
    return [*pieces, form.delta(answer, "", finish, None)]


def test_a_call_is_held_back_and_a_text_is_not():
    pieces = streamed('<tool_call>{"name": "list", "arguments": {}}</tool_call>')
    assert not any(piece["delta"].get("content") for piece in pieces)
    (call,) = pieces[-1]["delta"]["tool_calls"]
    assert (call["index"], call["function"], pieces[-1]["finish_reason"]) == (
        0, {"name": "list", "arguments": "{}"}, "tool_calls",
    )  # fmt: skip
    pieces = streamed("<tool> is no call")
    assert "".join(piece["delta"].get("content", "") for piece in pieces) == "<tool> is no call"
    assert sum(bool(piece["delta"].get("content")) for piece in pieces) > 5
    pieces = streamed('{"name": "list", "argu', "length")
    assert (pieces[-1]["delta"]["content"], pieces[-1]["finish_reason"]) == ('{"name": "list", "argu', "length")
