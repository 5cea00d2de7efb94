"""What requests say of thinking reaches the template and the thoughts; drafts change nothing of it."""

from __future__ import annotations

import json
from types import SimpleNamespace

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.api.setup import Setup
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import ChatRequest
from draftwood.serve.parts import PartReader
from draftwood.serve.responses import ResponsesRequest
from draftwood.serve.thinking import ThinkingDefault, thinking_of
from draftwood.testing import ToyTarget
from tests.serve.conftest import running
from tests.serve.scripted import byte_tokenizer, scripted, spell
from tests.serve.session import acting, toy

ASKED = [{"role": "user", "content": "0: x"}]
NOTHING_SAID = ThinkingDefault()
SWITCH = "{% if enable_thinking is defined and not enable_thinking %}</think>{% endif %}"


def plan(template="", default=NOTHING_SAID, special=False, **fields):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template += template
    return thinking_of(ChatRequest(messages=ASKED, **fields), default, tokenizer, special=special)


GRANITE, GPT_OSS, SEED = "{{ thinking }}", "{{ reasoning_effort }}", "{{ thinking_budget }}"


@pytest.mark.parametrize(
    ("template", "fields", "arguments", "budget", "ignored"),
    [
        (SWITCH, {}, {}, None, []),
        (SWITCH, {"enable_thinking": True}, {"enable_thinking": True}, None, []),
        (SWITCH, {"enable_thinking": False}, {"enable_thinking": False}, 0, []),
        (GRANITE, {"thinking": {"type": "enabled", "budget_tokens": 7}}, {"thinking": True}, 7, []),
        (SWITCH, {"thinking": {"type": "disabled"}}, {"enable_thinking": False}, 0, []),
        (SWITCH, {"thinking": {"type": "adaptive"}}, {}, None, []),
        (SWITCH, {"reasoning_effort": "none"}, {"enable_thinking": False}, 0, []),
        (GPT_OSS, {"reasoning_effort": "low"}, {"reasoning_effort": "low"}, None, []),
        (SWITCH, {"reasoning_effort": "low"}, {"enable_thinking": True}, None, ["reasoning_effort"]),
        ("", {"reasoning_effort": "low", "enable_thinking": True}, {}, None,
         ["enable_thinking", "reasoning_effort"]),
        ("", {"enable_thinking": False}, {}, 0, []),
        ("", {"thinking": {"type": "enabled", "budget_tokens": 7}}, {}, 7, []),
        (SEED, {"reasoning_budget": 9}, {"thinking_budget": 9}, 9, []),
        ("", {"thinking_token_budget": -1}, {}, None, []),
        ("", {"thinking_budget_tokens": 0}, {}, 0, []),
        (SWITCH, {"chat_template_kwargs": {"enable_thinking": True, "x": [1, "a"]}, "enable_thinking": False},
         {"enable_thinking": True}, 0, ["chat_template_kwargs.x"]),
    ],
)  # fmt: skip
def test_what_a_request_says_fits_the_template(template, fields, arguments, budget, ignored):
    found = plan(template, **fields)
    assert (found.arguments, found.budget, found.ignored) == (arguments, budget, ignored)


def test_the_server_decides_where_a_request_does_not():
    default = ThinkingDefault(thinks=False, budget=5)
    assert plan(SWITCH, default).arguments == {"enable_thinking": False}
    found = plan(SWITCH, default, enable_thinking=True)
    assert (found.arguments, found.budget) == ({"enable_thinking": True}, 5)
    assert plan(SWITCH, default, enable_thinking=True, thinking_budget=8).budget == 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"messages": []}, "sets 'messages', which the server gives itself"),
        ({"add_generation_prompt": False}, "which the server gives itself"),
        ({"tokenizer_kwargs": 1}, "which the server gives itself"),
        ({"a b": 1}, "no name of a variable"),
        ({"a": {"b": 1}}, "none of text, number"),
        ({"a": [[]]}, "none of text, number"),
        ({"a": float("inf")}, "none of JSON"),
        ({"a": "x" * 5000}, "characters as JSON"),
        ({f"a{n}": n for n in range(40)}, "40 arguments"),
        ({"a": ["<turn>"]}, "name of a control token"),
    ],
)
def test_arguments_that_no_template_may_have_are_refused(given, said):
    with pytest.raises(ApiError, match=said):
        plan(chat_template_kwargs=given)
    if "control" in said:
        assert plan(chat_template_kwargs=given, special=True).ignored == ["chat_template_kwargs.a"]


def test_thoughts_that_clients_send_back_are_the_templates():
    messages = [
        *ASKED,
        {"role": "assistant", "content": "b", "reasoning": "a", "reasoning_details": [{"type": "x"}]},
        {"role": "assistant", "content": "b", "reasoning_content": None},
    ]
    found = ChatRequest(messages=messages).messages
    assert found[1:] == [
        {"role": "assistant", "content": "b", "reasoning_content": "a"}, {"role": "assistant", "content": "b"},
    ]  # fmt: skip
    call = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c"}
    items = [
        {"role": "user", "content": "x"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "a"}]},
        {"role": "assistant", "content": "b"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "c"}]},
        call,
        {"type": "function_call_output", "output": "x"},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
    ]
    _, turn, _ = ResponsesRequest(input=items).chat(PartReader()).messages
    assert (turn["content"], turn["reasoning_content"], len(turn["tool_calls"])) == ("b", "ac", 1)


def served(template, scripts=None):
    setup = toy(sharpness=1.0) if scripts is None else acting(scripts)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template += template
    setup.tokenizer = tokenizer
    return setup


def ask(server, headers=None, route="chat/completions", **more):
    asked = {"model": "tiny", "max_tokens": 60, "messages": ASKED, "seed": 1, "temperature": 1} | more
    found = httpx.post(f"{server.url}/v1/{route}", json=asked, headers=headers or {}, timeout=60)
    return found.raise_for_status()


def test_a_budget_ends_thoughts_at_its_token_drafted_or_not():
    with running(served("<think>\n")) as server:
        for budget in (0, 1, 7, 30):
            for stop in ([], ["e"]):
                told = []
                for wish in ("", "plain"):
                    body = ask(server, {"x-draftwood": wish}, thinking_budget=budget, stop=stop).json()
                    told.append((body["choices"], {**body["usage"], "draftwood": None}))
                assert told[0][0] == told[1][0]
                message = told[0][0][0]["message"]
                counts = told[0][1]["completion_tokens_details"]
                assert 0 <= counts["reasoning_tokens"] - budget - len("\n</think>") <= 3, "and blanks behind it"
                assert bool(message.get("reasoning_content")) == (budget > 0) or budget == 1
        assert (
            "e" in ask(server, thinking_budget=30, stop=["e"]).json()["choices"][0]["message"]["reasoning_content"]
        )


def test_a_form_binds_the_answer_behind_a_thought():
    pytest.importorskip("llguidance")
    schema = {
        "type": "object",
        "properties": {"a": {"enum": ["xyz"]}},
        "required": ["a"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object", **schema}}}
    with running(served("<think>\n")) as server:
        for budget in (0, 5):
            told = [
                ask(server, {"x-draftwood": wish}, thinking_budget=budget, response_format=wanted).json()
                for wish in ("", "plain")
            ]
            assert told[0]["choices"] == told[1]["choices"]
            assert json.loads(told[0]["choices"][0]["message"]["content"]) == {"a": "xyz"}
            assert told[0]["choices"][0]["finish_reason"] == "stop"
        free = ask(server, response_format=wanted).json()["choices"][0]
        assert (free["message"]["content"], free["finish_reason"]) == ("", "length"), "it thinks to its limit"


XYZ = {"type": "object", "properties": {"a": {"enum": ["xyz"]}}, "required": ["a"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "a", "schema": XYZ}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": XYZ}}


@pytest.mark.parametrize("script", [(b"{ sure", "<end>"), ("<think>", b"why not", "</think>", b"{ sure", "<end>")])
@pytest.mark.parametrize("budget", [None, 0, 3])
@pytest.mark.parametrize("wanted", [{"response_format": FORM}, {"tools": [LOOK], "tool_choice": "required"}])
def test_a_form_leaves_room_for_a_thought_that_the_model_opens_itself(script, budget, wanted):
    pytest.importorskip("llguidance")
    tokenizer = byte_tokenizer("<think>", "</think>")
    target = ToyTarget(len(tokenizer), order=2, sharpness=0.0, max_positions=1 << 12, max_pass=1 << 12)
    target.generation_config = SimpleNamespace(eos_token_id=tokenizer.eos_token_id)
    setup = scripted(Setup(target, tokenizer, "ngram", "fixed:6"), spell(tokenizer, *script), margin=99.0)
    with running(setup) as server:
        asked = {**wanted, "thinking_budget": budget}
        told = [ask(server, {"x-draftwood": wish}, **asked).json()["choices"] for wish in ("", "plain")]
    messages = [choices[0]["message"] for choices in told]
    for message in messages:
        calls = message.get("tool_calls") or [{"function": {"arguments": message["content"]}}]
        assert json.loads(calls[0]["function"]["arguments"]) == {"a": "xyz"}
    thoughts = [message.get("reasoning_content") for message in messages]
    assert thoughts[0] == thoughts[1] == (None if len(script) == 2 or budget == 0 else "why not"[:budget])


def test_fields_that_change_nothing_are_named_as_the_api_has_them():
    with running(served("", {"0": ["Hello"]})) as server:
        found = ask(server, reasoning_effort="low", enable_thinking=True, chat_template_kwargs={"x": 1})
        names = "enable_thinking, reasoning_effort, chat_template_kwargs.x"
        assert sorted(found.headers["x-draftwood-ignored"].split(", ")) == sorted(names.split(", "))
        found = ask(
            server, route="responses", input="0: x", messages=None, max_tokens=None, reasoning={"effort": "low"}
        )
        assert "reasoning.effort" in found.headers["x-draftwood-ignored"]


def test_a_template_that_refuses_an_effort_is_not_told_of_it():
    refuses = "{% if reasoning_effort is defined %}{{ raise_exception('no') }}{% endif %}"
    with running(served(refuses, {"0": ["Hello"]})) as server:
        found = ask(server, reasoning_effort="low")
        assert found.headers["x-draftwood-ignored"] == "reasoning_effort"
        assert found.json()["choices"][0]["message"]["content"] == "Hello"
