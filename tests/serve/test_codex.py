"""What Codex sends beside messages: functions in namespaces, added tools, and items of other services' turns."""

from __future__ import annotations

import json

import httpx2 as httpx
import pytest

from draftwood.serve.errors import ApiError
from draftwood.serve.offered import OfferedTools
from draftwood.serve.parts import PartReader
from draftwood.serve.responses import ResponsesRequest
from tests.serve.conftest import running
from tests.serve.session import acting, call

USER = {"type": "message", "role": "user", "content": "weigh: a pear"}
THING = {"type": "object", "properties": {"thing": {"type": "string"}}, "required": ["thing"]}
WEIGH = {"type": "function", "name": "weigh", "description": "Weigh it.", "parameters": THING}
KITCHEN = {"type": "namespace", "name": "mcp__kitchen", "description": "All is in grams.", "tools": [WEIGH]}
TOLD = "mcp__kitchen__weigh"
OTHER = {"type": "function", "name": "now"}


def chat(**body):
    parts = PartReader()
    return ResponsesRequest(**{"input": [USER], **body}).chat(parts), parts.left_out


def names(found):
    return [tool.function.name for tool in found.tools or ()]


def test_functions_of_namespaces_and_added_ones_are_told_under_one_name_each():
    added = {"type": "additional_tools", "role": "developer", "tools": [KITCHEN, {"type": "custom", "name": "x"}]}
    for body in ({"tools": [OTHER, KITCHEN]}, {"tools": [OTHER], "input": [added, USER, added]}):
        found, _ = chat(**body)
        assert names(found) == ["now", TOLD]
        assert found.tools[1].function.parameters == THING
        assert (
            found.tools[1].function.description == "Weigh it.\n\nAll functions mcp__kitchen__...: All is in grams."
        )
        assert len(found.messages) == 1


def test_tools_that_are_no_functions_are_named():
    added = {"type": "additional_tools", "tools": [{"type": "custom", "name": "x"}]}
    inner = {**KITCHEN, "tools": [{"type": "custom", "name": "x"}, WEIGH]}
    found, left_out = chat(tools=[{"type": "web_search"}, inner], input=[USER, added])
    assert names(found) == [TOLD]
    assert left_out == ["tools.0", "tools.1.tools.0", "input.1.tools.0"]


@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ("x", "must be a list"),
        ([3], "t.0 is no tool"),
        ([{"name": "x"}], "t.0 is no tool"),
        ([{"type": "namespace", "tools": [WEIGH]}], "t.0.tools.0: a function and its namespace need a name"),
        ([{**KITCHEN, "tools": 3}], "t.0.tools must be a list"),
        ([{"type": "function"}], "need a name"),
        ([KITCHEN, {"type": "function", "name": TOLD}], "rename it"),
    ],
)
def test_what_is_no_tool_is_refused_with_its_place(tools, said):
    with pytest.raises(ApiError, match=said):
        OfferedTools().add(tools, "t")


def test_names_that_the_api_does_not_allow_are_changed_and_stay_apart():
    spaces = [("a b", "é"), ("a b", "è"), ("x" * 64, "y"), ("a", "b__c"), ("a__b", "c")]
    offered = OfferedTools()
    for space, name in spaces:
        offered.add([{"type": "namespace", "name": space, "tools": [{**WEIGH, "name": name}]}], "tools")
    told = [tool["function"]["name"] for tool in offered.functions]
    assert len(set(told)) == len(spaces)
    assert all(len(name) <= 64 and name.replace("-", "_").isascii() for name in told)
    assert [offered.told(name, space) for space, name in spaces] == told
    assert [offered.own(name) for name in told] == [{"name": name, "namespace": space} for space, name in spaces]
    assert OfferedTools().told("é", "a b") == told[0]  # of an earlier turn, whose tools are gone


FORCED = {"type": "function", "name": "weigh", "namespace": "mcp__kitchen"}


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (FORCED, TOLD),
        ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}, FORCED]}, TOLD),
    ],
)
def test_a_choice_names_a_function_of_a_namespace(choice, name):
    chosen = chat(tools=[OTHER, KITCHEN], tool_choice=choice)[0].tool_choice
    assert name in json.dumps(chosen.model_dump())


def test_where_nothing_is_left_to_call_a_forced_call_is_refused_and_others_are_not():
    hosted = [{"type": "web_search"}]
    for choice in ("required", "any", {"type": "web_search"}, FORCED):
        with pytest.raises(ApiError, match="no tool is a function"):
            chat(tools=hosted, tool_choice=choice)
    allowed = {"type": "allowed_tools", "mode": "required", "tools": hosted}
    with pytest.raises(ApiError, match="none of the allowed tools"):
        chat(tools=[OTHER], tool_choice=allowed)
    assert chat(tools=[OTHER], tool_choice={**allowed, "mode": "auto"})[0].tool_choice == "none"
    assert chat(tools=hosted, tool_choice="auto")[0].tools is None


def output(kind, value):
    return {"type": kind, "call_id": "c", "output": value}


CALLS = [
    ({"type": "function_call", "name": "weigh", "namespace": "mcp__kitchen", "arguments": "{}"}, TOLD, "{}"),
    ({"type": "custom_tool_call", "name": "apply_patch", "input": "*** a"}, "apply_patch", {"input": "*** a"}),
    ({"type": "local_shell_call", "action": {"command": ["ls"]}}, "local_shell", {"command": ["ls"]}),
    ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", {"commands": ["ls"]}),
    ({"type": "apply_patch_call", "operation": {"path": "x"}}, "apply_patch", {"path": "x"}),
    ({"type": "tool_search_call", "arguments": {"query": "x"}}, "tool_search", {"query": "x"}),
    ({"type": "custom_tool_call", "name": "x", "input": None}, "x", {}),
]
IMAGE = {"type": "input_image", "image_url": "data:x"}
OUT = "[image left out: this model reads text]"
RESULTS = [
    (output("function_call_output", "a"), "a"),
    (output("function_call_output", [{"type": "input_text", "text": "a"}, IMAGE]), f"a{OUT}"),
    (output("custom_tool_call_output", "a"), "a"),
    (output("local_shell_call_output", '{"stdout": "é"}'), '{"stdout": "é"}'),
    (output("shell_call_output", [{"stdout": "é", "stderr": ""}]), '[{"stdout": "é", "stderr": ""}]'),
    (output("apply_patch_call_output", None), None),
    (
        output("computer_call_output", {"type": "computer_screenshot", "image_url": "x"}),
        "[computer_screenshot left out: this model reads text]",
    ),
]


@pytest.mark.parametrize(("item", "name", "asked"), CALLS)
def test_calls_that_other_models_made_are_calls(item, name, asked):
    (_, message), left_out = chat(input=[USER, {**item, "call_id": "c"}], tools=[KITCHEN])[0].messages, []
    assert message["tool_calls"] == [
        {"type": "function", "function": {"name": name, "arguments": asked}, "id": "c"}
    ]
    assert left_out == []


@pytest.mark.parametrize(("item", "said"), RESULTS)
def test_their_results_are_text(item, said):
    assert chat(input=[USER, item])[0].messages[1] == {"role": "tool", "content": said, "tool_call_id": "c"}


@pytest.mark.parametrize(
    ("item", "role"),
    [
        ({"type": "web_search_call", "action": {"query": "x"}}, "assistant"),
        ({"type": "image_generation_call", "result": "AAAA"}, "assistant"),
        ({"type": "mcp_call", "output": "x"}, "assistant"),
        ({"type": "mcp_list_tools", "tools": []}, "user"),
        ({"type": "compaction", "encrypted_content": "x"}, "user"),
        ({"type": "of_next_year"}, "user"),
    ],
)
def test_items_of_other_services_are_left_out_and_named(item, role):
    found, left_out = chat(input=[USER, item])
    assert found.messages[1] == {"role": role, "content": f"[{item['type']} left out: this model reads text]"}
    assert left_out == ["input.1"]
    with pytest.raises(ApiError, match=r"input\.1 is of type"):
        ResponsesRequest(input=[USER, item]).chat(PartReader(is_strict=True))


def test_what_another_agent_says_is_a_message():
    said = {"type": "agent_message", "author": "/root", "content": [{"type": "input_text", "text": "go on"}]}
    assert chat(input=[USER, said])[0].messages[1] == {"role": "user", "content": "go on"}


SCRIPTS = {"weigh": [call(TOLD, thing="a pear"), "ECHO"], "say": ["It is here."]}


@pytest.fixture(scope="module")
def served():
    with running(acting(SCRIPTS)) as server:
        yield f"{server.url}/v1/responses"


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_goes_back_with_its_namespace_and_its_result_is_understood(served, stream):
    body = {"input": [USER], "tools": [KITCHEN, {"type": "web_search"}], "stream": stream}
    found = httpx.post(served, json=body, timeout=60)
    assert found.headers["x-draftwood-ignored"] == "tools.1"
    if stream:
        told = [json.loads(line[6:]) for line in found.text.split("\n") if line.startswith("data: ")]
        items = [one["item"] for one in told if one["type"].startswith("response.output_item.")]
        answer = told[-1]["response"]
    else:
        answer, items = found.json(), []
    for item in [*items, *answer["output"]]:
        assert (item["name"], item["namespace"]) == ("weigh", "mcp__kitchen")
    assert json.loads(answer["output"][0]["arguments"]) == {"thing": "a pear"}
    assert [tool["name"] for tool in answer["tools"]] == [TOLD]
    result = output("function_call_output", "200 grams") | {"call_id": answer["output"][0]["call_id"]}
    body = {"input": [USER, *answer["output"], result], "tools": [KITCHEN]}
    said = httpx.post(served, json=body, timeout=60).json()["output"][0]["content"][0]["text"]
    assert said == "200 grams"


def test_the_question_whether_we_answer_is_answered(url):
    found = httpx.post(f"{url}/v1/responses", json={"input": [], "max_output_tokens": 1}, timeout=60)
    assert found.status_code == 200, found.text
    assert found.json()["usage"]["output_tokens"] == 1
