"""Response formats, forced calls and expressions, as clients ask for them."""

import json

import openai
import pytest

HELLO = [{"role": "user", "content": "hello"}]
SCHEMA = {
    "type": "object", "properties": {"answer": {"enum": ["yes", "no"]}}, "required": ["answer"],
    "additionalProperties": False,
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "listen", "parameters": SCHEMA}}


def asked(**more):
    return {"model": "tiny", "messages": HELLO, "max_tokens": 200, "temperature": 0.8, "seed": 2} | more


def test_a_response_format_is_kept_with_and_without_drafts(client):
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}
    texts = [
        client.chat.completions.create(**asked(response_format=wanted, n=2), extra_headers=headers)
        for headers in ({}, {"x-draftwood": "plain"})
    ]
    assert texts[1].usage.draftwood["drafters"] == []
    for one, other in zip(*(found.choices for found in texts), strict=True):
        assert one.finish_reason == "stop"
        assert json.loads(one.message.content)["answer"] in ("yes", "no")
        assert one.message.content == other.message.content


@pytest.mark.parametrize("stream", [False, True])
def test_a_forced_call_comes_as_a_call(client, stream):
    for choice, reason in (
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "look"}}, "stop"),
    ):
        given = asked(tools=[TOOL, OTHER], tool_choice=choice)
        if stream:
            with client.chat.completions.stream(**given) as told:
                found = told.get_final_completion().choices[0]
        else:
            found = client.chat.completions.create(**given).choices[0]
        (call,) = found.message.tool_calls
        assert (found.message.content or None, found.finish_reason) == (None, reason)
        assert call.function.name in ("look", "listen") if choice == "required" else call.function.name == "look"
        assert json.loads(call.function.arguments)["answer"] in ("yes", "no")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"response_format": {"type": "json_schema"}}, "needs json_schema.schema"),
        ({"extra_body": {"guided_regex": "a"}, "response_format": {"type": "json_object"}}, "at once"),
        ({"tool_choice": "required"}, "no tools"),
    ],
)
def test_what_no_grammar_can_hold_is_refused(client, change, said):
    with pytest.raises(openai.BadRequestError, match=said):
        client.chat.completions.create(**asked(**change))
