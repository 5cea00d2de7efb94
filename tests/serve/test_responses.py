"""``/v1/responses`` as the `openai` package asks it."""

from __future__ import annotations

import openai
import pytest

from draftwood.serve.parts import PartReader
from draftwood.serve.responses import ResponsesRequest

HELLO = [{"role": "user", "content": "hello hello"}]


def asked(**more):
    return {"model": "tiny", "input": HELLO, "max_output_tokens": 24, "temperature": 0} | more


def test_a_response_is_the_text_of_generate(client, alone):
    found = client.responses.create(**asked())
    theirs = alone(HELLO)
    assert found.output_text == theirs.text
    assert (found.status, found.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert (found.usage.input_tokens, found.usage.output_tokens) == (theirs.prompt_tokens, 24)
    assert client.responses.create(**asked(input="hello hello")).output_text == theirs.text


def test_instructions_and_items_become_a_conversation(client, alone):
    parts = [{"type": "input_text", "text": text} for text in ("two", "!")]
    given = [
        {"role": "user", "content": parts}, {"type": "reasoning", "id": "x", "summary": []},
        {"type": "function_call", "name": "look", "arguments": '{"a": 1}', "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": "seen"},
    ]  # fmt: skip
    found = client.responses.create(**asked(instructions="be brief", input=given))
    call = '<tool_call>{"name": "look", "arguments": {"a": 1}}</tool_call>'
    said = {"system": "be brief", "user": "two!", "assistant": call, "tool": "seen"}
    assert found.output_text == alone([{"role": role, "content": text} for role, text in said.items()]).text


def test_text_and_calls_of_one_turn_are_one_message():
    calls = [{"type": "function_call", "name": name, "arguments": "{}", "call_id": name} for name in "ab"]
    said = [
        {"role": "assistant", "content": "I look."},
        *calls,
        {"type": "function_call_output", "output": "x"},
        calls[0],
        {"role": "assistant", "content": " There:"},
        calls[1],
        {"role": "assistant", "content": [{"type": "output_text", "text": " here"}]},
    ]
    found = ResponsesRequest(input=[*HELLO, *said]).chat(PartReader()).messages
    assert [(one["role"], one["content"], len(one.get("tool_calls", ()))) for one in found] == [
        ("user", "hello hello", 0), ("assistant", "I look.", 2), ("tool", "x", 0),
        ("assistant", " There: here", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"input": [{"type": 3}]}, "its type must be a word"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "send the item itself"),
        ({"tool_choice": "required"}, "no tool is a function"),
        ({"tool_choice": "required", "tools": [{"type": "web_search"}]}, "no tool is a function"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "has no text"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"tools": [{"type": "function", "name": "not a name!"}]}, "name"),
    ],
)
def test_what_a_response_cannot_do_is_refused(client, change, said):
    with pytest.raises(openai.BadRequestError, match=said):
        client.responses.create(**asked(**change))
