"""Response formats, forced calls and expressions, as clients ask for them."""

import json
import re

import openai
import pytest

from draftwood.grammar.follower import Follower

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


def test_each_choice_follows_the_grammar_by_itself(client, monkeypatch):
    gone_back, go_back = [], Follower._back_to

    def noted(follower, length):
        gone_back.append(len(follower._path) - length)
        go_back(follower, length)

    monkeypatch.setattr(Follower, "_back_to", noted)
    body, headers = {"guided_regex": "[a-z]{12}"}, {"x-draftwood": "plain"}
    found = client.chat.completions.create(**asked(n=4), extra_body=body, extra_headers=headers)
    assert len({one.message.content for one in found.choices}) == 4
    assert gone_back
    assert not any(gone_back), "no choice leads the follower of another one astray"


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


GBNF = 'root ::= ("yes" | "no") "!"+  # as llama.cpp has grammars'
LARK = 'start: ("yes" | "no") "!"+'
FORMS = [
    ({"guided_json": SCHEMA}, r'{"answer": "(yes|no)"}'),
    ({"guided_json": json.dumps(SCHEMA)}, r'{"answer": "(yes|no)"}'),
    ({"json_schema": SCHEMA}, r'{"answer": "(yes|no)"}'),
    ({"response_format": {"type": "json_object", "schema": SCHEMA}}, r'{"answer": "(yes|no)"}'),
    ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, r'{"answer": "(yes|no)"}'),
    ({"guided_choice": ["a.c", "(x)"]}, r"a\.c|\(x\)"),
    ({"guided_regex": "[0-9]{3}"}, "[0-9]{3}"),
    ({"grammar": GBNF}, "(yes|no)!+"),
    ({"guided_grammar": LARK}, "(yes|no)!+"),
    ({"structured_outputs": {"json": SCHEMA}}, r'{"answer": "(yes|no)"}'),
    ({"structured_outputs": {"regex": "[0-9]{3}", "choice": None}}, "[0-9]{3}"),
    ({"structured_outputs": {"choice": ["aa", "bb"]}}, "aa|bb"),
    ({"structured_outputs": {"grammar": LARK}}, "(yes|no)!+"),
    ({"structured_outputs": {"json_object": False, "choice": ["aa"]}}, "aa"),
]


@pytest.mark.parametrize(("body", "form"), FORMS, ids=lambda one: json.dumps(one)[:60])
def test_the_forms_of_other_servers_are_kept_by_chats_and_plain_texts(client, body, form):
    text = client.chat.completions.create(**asked(extra_body=body)).choices[0].message.content
    assert re.fullmatch(form, text), text
    plain = client.completions.create(model="tiny", prompt="hello", max_tokens=60, seed=1, extra_body=body)
    assert re.fullmatch(form, plain.choices[0].text), plain.choices[0].text


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({"grammar": "root ::= ("}, "grammar", "Expected"),
        ({"grammar": "x ::= y"}, "grammar", "cannot be used"),
        ({"guided_json": "{"}, "guided_json", "is no JSON"),
        ({"guided_choice": []}, "guided_choice", "at least 1"),
        ({"guided_choice": [""]}, "guided_choice.0", "at least 1"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "cannot be used"),
        ({"structured_outputs": {"regex": "a", "json": {}}}, "structured_outputs.regex", "at once"),
        ({"guided_json": {"not": {}}}, "guided_json", "at #"),
    ],
)
def test_a_form_with_a_fault_is_refused_under_its_name(client, body, param, said):
    with pytest.raises(openai.BadRequestError, match=said) as caught:
        client.chat.completions.create(**asked(extra_body=body))
    assert caught.value.param == param


def test_parts_of_fields_that_are_not_read_are_named_and_null_is_left_out(client):
    body = {"structured_outputs": {"regex": "[0-9]{3}", "backend": "x"}, "stream_options": {"include_usage": None}}
    answer = client.chat.completions.with_raw_response.create(**asked(extra_body=body))
    assert answer.headers["x-draftwood-ignored"] == "structured_outputs.backend"
