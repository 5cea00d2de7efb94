"""Models are told of tools and of calls so far; what cannot be read is refused with its place."""

import httpx2 as httpx  # comes with the openai package
import pytest
from openai import OpenAI
from pydantic import ValidationError

from draftwood.api.calls import as_text
from draftwood.api.prompts import render
from draftwood.errors import DraftwoodError
from draftwood.serve.errors import ApiError
from draftwood.serve.fields import ChatRequest
from draftwood.serve.tools import tools_of, with_calls
from tests.api.test_fitting import IN_TURN
from tests.serve.conftest import running
from tests.serve.session import acting

LOOK = {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}  # fmt: skip
LIST = {"type": "function", "function": {"name": "list"}}
FLAT = {"type": "function", **LOOK["function"]}
ASKED = [{"role": "user", "content": "what is there?"}]


def tools(choice="auto", *functions):
    given = {"messages": ASKED, "tools": list(functions) or [LOOK, LIST], "tool_choice": choice}
    return tools_of(ChatRequest.model_validate(given))


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
    assert found[1:] == with_calls(said)[1:]
    assert as_text(found[2]) == {
        "role": "assistant", "content": '<tool_call>{"name": "look", "arguments": {"at": "x"}}</tool_call>',
    }  # fmt: skip
    assert tools().messages(ASKED)[0]["role"] == "system"


OTHER = '<tool_call>{"name": "other", "arguments": {"a": 1}}</tool_call>'


@pytest.mark.parametrize("passes", [False, True])
def test_calls_of_functions_that_were_not_offered_are_text_or_calls(passes):
    bad = OTHER.replace("other", "an other")
    with running(acting({"so": [f"Look: {OTHER}"], "bad": [bad]}), pass_unknown_calls=passes) as server:
        with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as client:

            def ask(name, **more):
                given = [{"role": "user", "content": f"{name}: go"}]
                asked = client.chat.completions.create(model="m", messages=given, **more)
                return asked.choices[0]

            found, none = ask("so", tools=[LOOK]), ask("so")
            assert ask("bad", tools=[LOOK]).message.content == bad
        said = httpx.post(f"{server.url}/v1/responses", json={"input": "so: go", "tools": [FLAT]}).json()["output"]
    assert none.message.content == f"Look: {OTHER}"
    if not passes:
        assert (found.message.content, found.finish_reason) == (f"Look: {OTHER}", "stop")
        assert [item["type"] for item in said] == ["message"]
        return
    (call,) = found.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("other", '{"a": 1}')
    assert (found.message.content, found.finish_reason) == ("Look:", "tool_calls")
    assert [item.get("name") for item in said] == [None, "other"]


def test_a_forced_call_has_a_schema():
    assert tools("auto").forced is False
    named = tools({"type": "function", "function": {"name": "look"}})
    assert (named.forced, named.reason) == (True, "stop")
    assert list(named.parameters) == ["look"]
    assert 'Answer with a JSON object with its "name"' in named.messages(ASKED)[0]["content"]
    assert list(tools("required").parameters) == ["look", "list"]
    assert tools("none") is None
    with pytest.raises(ApiError, match="none of the tools"):
        tools({"type": "function", "function": {"name": "other"}})
    with pytest.raises(ApiError, match="there are no tools"):
        tools_of(ChatRequest.model_validate({"messages": ASKED, "tool_choice": "required"}))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('{"at":  "x</tool_call>"}', '{"at":  "x</tool_call>"}'),
        (r'{"at": "\u00e9\ud83d\ude00\ud800\\u00e9\u000a"}', r'{"at": "é😀\ud800\\u00e9\u000a"}'),
        ('{"at": NaN', '{"at": null}'),
        ("no JSON", '"no JSON"'),
        ("", "{}"),
        ({"at": "é"}, '{"at": "é"}'),
    ],
)
def test_arguments_of_histories_are_json_in_the_letters_of_their_language(written, said):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": written}}
    (found,) = with_calls([{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert as_text(found)["content"] == f'<tool_call>{{"name": "look", "arguments": {said}}}</tool_call>'


CALL = {"id": "c", "type": "function", "function": {"name": "list", "arguments": "{}"}}
WRITTEN = '<tool_call>{"name": "list", "arguments": {}}</tool_call>'


def test_text_beside_calls_is_kept_and_what_cannot_be_read_is_refused():
    parts = [{"type": "text", "text": "I "}, {"type": "text", "text": "look."}]
    for content, said in (
        (parts, f"I look.\n{WRITTEN}"),
        ("I look.", f"I look.\n{WRITTEN}"),
        ("", WRITTEN),
        (None, WRITTEN),
    ):
        for more in ({"tool_calls": [CALL]}, {"function_call": CALL["function"]}):
            (found,) = with_calls([{"role": "assistant", "content": content, **more}])
            assert as_text(found) == {"role": "assistant", "content": said}
    for content in (7, {"a": 1}, [{"type": "image_url", "image_url": {"url": "x"}}], [parts[0], {"type": "x"}]):
        for more in ({"tool_calls": [CALL]}, {"function_call": CALL["function"]}, {}):
            with pytest.raises(DraftwoodError, match="message 2"):
                with_calls([*ASKED, {"role": "assistant", "content": content, **more}])
    for calls in ("x", [3], [{"function": {}}]):
        with pytest.raises(ApiError, match="message 2"):
            with_calls([*ASKED, {"role": "assistant", "content": None, "tool_calls": calls}])


def test_tools_that_a_service_would_run_are_left_out_and_named():
    given = {
        "messages": ASKED,
        "tools": [{"type": "web_search"}, LOOK, {"type": "custom", "custom": {"name": "x"}}],
    }
    found = ChatRequest.model_validate(given)
    assert list(tools_of(found).parameters) == ["look"]
    assert found.ignored == ["tools.0", "tools.2"]
    with pytest.raises(ValidationError, match="function"):
        ChatRequest.model_validate({**given, "tools": [{"type": "function"}]})


def test_a_template_that_takes_neither_system_nor_results_is_told_of_both(tiny_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_folder)
    tokenizer.chat_template = IN_TURN
    said = [
        {"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}]},
        {"role": "developer", "content": "be brief"},
        *ASKED,
        {"role": "assistant", "content": None, "tool_calls": [CALL, CALL]},
        *({"role": "tool", "content": text, "tool_call_id": "c"} for text in "ab"),
        {"role": "developer", "content": "now"},
    ]
    asked = ChatRequest.model_validate({"messages": said, "tools": [LOOK, LIST]})
    for ids in (tools_of(asked).prompt(asked.messages, tokenizer), render(with_calls(asked.messages), tokenizer)):
        text = tokenizer.decode(ids)
        assert text.count("<user>") == 2
        places = [
            text.index(part) for part in ("be kind", "be brief", "what is there", WRITTEN, "a\n<", "b\n<", "now")
        ]
        assert places == sorted(places)
