"""Clients and agent frameworks run sessions with tools, and get answers in the form that they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel

from tests.serve.conftest import running
from tests.serve.frameworks import kitchen, schemas, with_agents, with_anthropic, with_pydantic_ai
from tests.serve.session import acting, bare, call


class Answer(BaseModel):
    """What is said at last."""

    value: float
    tags: list[str] | None


ODD = 'a </tool_call> b "<tool_call>{" \\ \n\t \u2028 \U0001f333'
POINT, DEEP = {"x": 1.5, "tags": ["a", "木"]}, {"k": [1, 2], "": []}
WEIGH = call("weigh", point=POINT, deep=DEEP)
SCRIPTS = {
    "first": [
        call("look", at="Küche"),
        f"{call('look', at='キッチン')}\n{WEIGH}",
        f"I keep it.\n{call('note', text=ODD)}",
        WEIGH,
        "It weighs ECHO. \U0001f333",
    ],
    "second": [
        call("now"),
        f"First here, {call('look', at='')} then there: {call('look', at='there')}",
        call("note", text=ODD),
        f"{call('now')}{WEIGH}{call('note', text='<think>')}",
        "That was ECHO: é",
    ],
}
SAID_LAST = Answer(value=1.5, tags=["木"])
LAST = json.dumps(SAID_LAST.model_dump(), ensure_ascii=False)
SCRIPTS |= {
    "text": ["It is here. é"],
    "form": [call("look", at="Küche"), f"{call('look', at='here')}\n{call('now')}", LAST],
    "forced": [bare("look", at="here"), bare("final_result", **json.loads(LAST))],
    "then": [bare("look", at="here"), "Done: ECHO"],
}
LOG = [
    ("look", "Küche"), ("look", "キッチン"), ("weigh", POINT, DEEP), ("note", ODD), ("weigh", POINT, DEEP),
    ("now",), ("look", ""), ("look", "there"), ("note", ODD), ("now",), ("weigh", POINT, DEEP),
    ("note", "<think>"),
]  # fmt: skip
ASKED = ["first: see", "second: go on"]
SAID = ["It weighs 3 g. \U0001f333", "That was <think>: é"]


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    with running(acting(SCRIPTS)) as server:
        yield f"{server.url}/v1"


DRIVES = [
    with_pydantic_ai, partial(with_pydantic_ai, kind="OpenAIResponsesModel"),
    with_agents, partial(with_agents, kind="OpenAIResponsesModel"),
]  # fmt: skip


@pytest.mark.parametrize("drive", DRIVES)
def test_a_session_of_ten_answers_with_tools(served, drive):
    log: list[Any] = []
    assert drive(served, ASKED, log) == SAID
    assert sorted(log, key=repr) == sorted(LOG, key=repr)  # calls of one answer may run at once


@pytest.mark.parametrize("stream", [False, True])
def test_a_session_of_ten_answers_with_the_package_of_another_api(served, stream):
    pytest.importorskip("anthropic")
    log: list[Any] = []
    assert with_anthropic(served, ASKED, log, stream=stream) == SAID
    assert log == LOG


@pytest.mark.parametrize(("kind", "stream"), [("OpenAIChatModel", True), ("OpenAIResponsesModel", False)])
@pytest.mark.parametrize("way", ["NativeOutput", "ToolOutput"])
def test_an_agent_calls_tools_before_an_answer_in_a_form(served, stream, kind, way):
    import pydantic_ai

    log: list[Any] = []
    script = "forced: x" if way == "ToolOutput" else "form: x"
    wanted = getattr(pydantic_ai, way)(Answer)
    assert with_pydantic_ai(served, [script], log, kind, stream=stream, output_type=wanted) == [SAID_LAST]
    assert len(log) == (1 if way == "ToolOutput" else 3)


KINDS = [("OpenAIChatCompletionsModel", False), ("OpenAIResponsesModel", True)]


@pytest.mark.parametrize(("kind", "stream"), KINDS)
def test_another_framework_calls_tools_before_an_answer_in_a_form_and_forces_calls(served, stream, kind):
    from agents import ModelSettings

    log: list[Any] = []
    assert with_agents(served, ["form: x"], log, kind, stream=stream, output_type=Answer) == [SAID_LAST]
    assert len(log) == 3
    more = {"parallel_tool_calls": False, "store": True, "metadata": {"a": "b"}, "include_usage": True,
            "verbosity": "low", "truncation": "auto", "top_logprobs": 2}  # fmt: skip
    for choice in ("required", "look"):
        settings = ModelSettings(tool_choice=choice, **more)
        said = with_agents(served, ["then: x"], log, kind, stream=stream, model_settings=settings)
        assert said == ["Done: nothing at here"]


MORE = {
    "store": True, "metadata": {"a": "b"}, "parallel_tool_calls": True, "user": "me", "service_tier": "auto",
    "prompt_cache_key": "k", "safety_identifier": "s", "temperature": None, "top_p": None,
}  # fmt: skip
TOLD = [{"role": "developer", "content": "be brief"}]
LOOK = {"type": "function", "name": "look"}
ALLOWED = {"type": "allowed_tools", "mode": "required", "tools": [LOOK, {"type": "function", "name": "now"}]}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("choice", [None, "auto", "none", "required", LOOK, ALLOWED])
def test_every_choice_of_tools_beside_what_clients_send(served, stream, choice):
    from openai import OpenAI

    def in_chats(tool):
        return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}

    tools = [{"type": "function", "strict": True, **one} for one in schemas(kitchen([]))]
    name = "text: x" if choice in (None, "auto", "none") else "then: x"
    messages, calls = [*TOLD, {"role": "user", "content": name}], []
    in_chat = choice
    if isinstance(choice, dict):
        allowed = {"mode": "required", "tools": [in_chats(one) for one in choice.get("tools", ())]}
        in_chat = {"type": "allowed_tools", "allowed_tools": allowed} if "tools" in choice else in_chats(choice)
    with OpenAI(base_url=served, api_key="none", max_retries=0) as client:
        asked = {"model": "tiny", "messages": messages, "tools": [in_chats(one) for one in tools],
                 "tool_choice": in_chat, "response_format": {"type": "text"}, "reasoning_effort": "low", **MORE,
                 "extra_body": {"functions": None, "function_call": None, "stop": None}}  # fmt: skip
        if stream:
            with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as told:
                whole = told.get_final_completion()
        else:
            whole = client.chat.completions.create(**asked, stream=None, stream_options=None)
        asked = {"model": "tiny", "input": messages, "tools": tools, "tool_choice": choice, **MORE, "include": [],
                 "reasoning": {"effort": "low"}, "truncation": "auto", "text": {"verbosity": "low"}}  # fmt: skip
        if stream:
            with client.responses.stream(**asked) as told:
                response = told.get_final_response()
        else:
            response = client.responses.create(**asked, previous_response_id=None)
    assert whole.usage.total_tokens == response.usage.total_tokens > 0
    message, output = whole.choices[0].message, response.output
    calls = [(one.function.name, one.function.arguments) for one in message.tool_calls or ()]
    assert calls == [(one.name, one.arguments) for one in output if one.type == "function_call"]
    assert (message.content or "") == response.output_text == ("" if calls else SCRIPTS["text"][0])
    assert calls == ([] if name == "text: x" else [("look", '{"at": "here"}')])


def test_a_choice_names_tools_that_are_there(served):
    from openai import BadRequestError, OpenAI

    with OpenAI(base_url=served, api_key="none", max_retries=0) as client:
        given = {"model": "tiny", "input": "text: x", "tools": [{**LOOK, "parameters": {}}]}
        for choice in (ALLOWED, {**LOOK, "name": "now"}):
            with pytest.raises(BadRequestError, match="'now', which is none of the tools"):
                client.responses.create(**given, tool_choice=choice)
