"""Answers of ``/v1/responses`` have the fields of Open Responses (openresponses.org, version 2026-04-24).

`RESPONSE`, `ITEMS`, `PARTS` and `EVENTS` say its schema in our own words. Events of reasoning are called as Codex
and OpenAI call them, ``reasoning_text``; there the schema says ``reasoning``.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import httpx2 as httpx
import pytest

from tests.serve.conftest import running
from tests.serve.session import acting, call


def either(*values):
    return lambda value: value in values


def listed(check):
    return lambda value: isinstance(value, list) and all(map(check, value))


def maybe(check):
    return lambda value: value is None or check(value)


def fields(**wanted):
    """A check of an object, which may have further fields."""
    return lambda value: isinstance(value, dict) and not wrong(value, wanted)


def wrong(value, wanted):
    return [name for name, check in wanted.items() if name not in value or not check(value[name])]


def text(value):
    return isinstance(value, str)


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def number(value):
    return whole(value) or isinstance(value, float)


def yes_or_no(value):
    return isinstance(value, bool)


def mapping(value):
    return isinstance(value, dict)


def of_type(table):
    """A check of an object that has the fields of its type."""
    return lambda value: (
        isinstance(value, dict) and value.get("type") in table and not wrong(value, table[value["type"]])
    )


ENTRY = {"token": text, "logprob": number, "bytes": listed(whole)}
PARTS = {
    "output_text": {
        "text": text, "annotations": either([]),
        "logprobs": listed(fields(**ENTRY, top_logprobs=listed(fields(**ENTRY)))),
    },
    "reasoning_text": {"text": text},
}  # fmt: skip
STATUS = either("in_progress", "completed", "incomplete")
ITEMS = {
    "message": {"id": text, "status": STATUS, "role": either("assistant"), "content": listed(of_type(PARTS))},
    "function_call": {"id": text, "call_id": text, "name": text, "arguments": text, "status": STATUS},
    "reasoning": {"id": text, "summary": either([]), "content": listed(of_type(PARTS))},
}
TOOLS = {
    "function": {
        "name": text,
        "description": maybe(text),
        "parameters": maybe(mapping),
        "strict": maybe(yes_or_no),
    }
}
FORMATS = {
    "text": {},
    "json_object": {},
    "json_schema": {"name": text, "description": maybe(text), "schema": maybe(mapping), "strict": yes_or_no},
}
CHOICES = {
    "function": {"name": text},
    "allowed_tools": {"tools": listed(mapping), "mode": either("auto", "required")},
}
EFFORT = maybe(either("none", "minimal", "low", "medium", "high", "xhigh"))
RESPONSE = {
    "id": text, "object": either("response"), "created_at": whole, "completed_at": maybe(whole), "model": text,
    "status": either("in_progress", "completed", "incomplete", "failed"),
    "incomplete_details": maybe(fields(reason=text)), "error": maybe(fields(code=text, message=text)),
    "previous_response_id": maybe(text), "instructions": maybe(text), "output": listed(of_type(ITEMS)),
    "tools": listed(of_type(TOOLS)), "truncation": either("auto", "disabled"), "parallel_tool_calls": yes_or_no,
    "tool_choice": lambda value: value in ("none", "auto", "required") or of_type(CHOICES)(value),
    "text": fields(format=of_type(FORMATS)), "top_p": number, "presence_penalty": number,
    "frequency_penalty": number, "top_logprobs": whole, "temperature": number,
    "reasoning": maybe(fields(effort=EFFORT, summary=maybe(text))),
    "usage": maybe(fields(
        input_tokens=whole, output_tokens=whole, total_tokens=whole,
        input_tokens_details=fields(cached_tokens=whole), output_tokens_details=fields(reasoning_tokens=whole),
    )),
    "max_output_tokens": maybe(whole), "max_tool_calls": maybe(whole), "store": yes_or_no, "background": yes_or_no,
    "service_tier": text, "metadata": mapping, "safety_identifier": maybe(text), "prompt_cache_key": maybe(text),
}  # fmt: skip
SAID = {"response": fields(**RESPONSE)}
ITEM = {"output_index": whole, "item": of_type(ITEMS)}
PLACE = {"item_id": text, "output_index": whole}
PART = {**PLACE, "content_index": whole}
ERROR = {"type": text, "code": maybe(text), "message": text, "param": maybe(text)}
SCORES = PARTS["output_text"]["logprobs"]
EVENTS = {
    **{f"response.{kind}": SAID for kind in ("created", "in_progress", "completed", "incomplete", "failed")},
    "response.output_item.added": ITEM,
    "response.output_item.done": ITEM,
    "response.content_part.added": {**PART, "part": of_type(PARTS)},
    "response.content_part.done": {**PART, "part": of_type(PARTS)},
    "response.output_text.delta": {**PART, "delta": text, "logprobs": SCORES},
    "response.output_text.done": {**PART, "text": text, "logprobs": SCORES},
    "response.reasoning_text.delta": {**PART, "delta": text},
    "response.reasoning_text.done": {**PART, "text": text},
    "response.function_call_arguments.delta": {**PLACE, "delta": text},
    "response.function_call_arguments.done": {**PLACE, "arguments": text},
    "error": {"error": fields(**ERROR)},
}


def check(body):
    """Raise for a response with a field that is missing or wrong, within it the innermost that is."""
    assert wrong(body, RESPONSE) == []


def events_of(found):
    """The events of a stream, each of which must have the fields of its type and the next number."""
    blocks = [block for block in found.text.split("\n\n") if block.startswith("event: ")]
    told = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
    for place, (block, body) in enumerate(zip(blocks, told, strict=True)):
        assert block.startswith(f"event: {body['type']}\n")
        assert body["sequence_number"] == place
        if "response" in body:
            check(body["response"])
        assert wrong(body, EVENTS[body["type"]]) == [], body
    return told


LOOK = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
}
SCRIPTS = {
    "say": ["It is here. é"],
    "think": ["<think>It may be there.</think>\n\nIt is there."],
    "look": [f"I look.\n{call('look', at='x')}{call('look', at='y')}"],
    "both": [f"<think>Where?</think>{call('look', at='x')}"],
}
SCHEMA = {"type": "json_schema", "name": "said", "schema": {"type": "string", "enum": ["It is here. é"]}}
BODIES = [
    {"input": "say: x"},
    {"input": "say: x", "temperature": 0.5, "top_p": 0.3, "presence_penalty": 0.1, "frequency_penalty": -1,
     "instructions": "be brief", "metadata": {"a": "b"}, "safety_identifier": "s", "prompt_cache_key": "k"},
    {"input": "say: x", "top_logprobs": 2},
    {"input": "say: x", "max_output_tokens": 3},
    {"input": "say: x", "text": {"verbosity": "low"}, "truncation": "auto", "reasoning": {"effort": "low"}},
    {"input": "say: x", "tools": [LOOK], "tool_choice": "none"},
    {"input": "think: x"},
    {"input": "think: x", "max_output_tokens": 15},
    {"input": "look: x", "tools": [LOOK, {"type": "web_search"}]},
    {"input": "look: x", "tools": [LOOK], "max_output_tokens": 60},
    {"input": "look: x", "tools": [LOOK],
     "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}},
    {"input": "both: x", "tools": [LOOK], "parallel_tool_calls": False},
    {"input": "say: x", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 8, "temperature": 0},
    {"input": "say: x", "text": {"format": SCHEMA}, "max_output_tokens": 8, "temperature": 0},
]  # fmt: skip


@pytest.fixture(scope="module")
def served():
    with running(acting(SCRIPTS)) as server:
        yield f"{server.url}/v1/responses"


@pytest.mark.parametrize("body", BODIES)
def test_whole_and_streamed_responses_have_the_fields_of_the_specification(served, body):
    found = httpx.post(served, json=body, timeout=60)
    assert found.status_code == 200, found.text
    whole_one = found.json()
    check(whole_one)
    told = events_of(httpx.post(served, json=body | {"stream": True}, timeout=60))
    assert [one["type"] for one in told[:2]] == ["response.created", "response.in_progress"]
    assert told[-1]["type"] == f"response.{whole_one['status']}"
    assert said(told[-1]["response"]) == said(whole_one)
    assert (whole_one["completed_at"] is None) == (whole_one["status"] != "completed")


def said(response):
    """What a response says, without its ids, times and figures of drafting."""
    dropped = {"id", "call_id", "created_at", "completed_at", "draftwood", "input_tokens_details"}

    def kept(value):
        if isinstance(value, list):
            return [kept(one) for one in value]
        return {k: kept(v) for k, v in value.items() if k not in dropped} if isinstance(value, dict) else value

    return kept(response)


def test_a_response_says_how_it_was_written(served):
    found = httpx.post(served, json=BODIES[1], timeout=60).json()
    for name in BODIES[1].keys() - {"input"}:
        assert found[name] == BODIES[1][name]
    found = httpx.post(served, json=BODIES[0], timeout=60).json()
    used = [found[name] for name in ("temperature", "top_p", "presence_penalty", "parallel_tool_calls", "text")]
    assert used == [0.7, 1.0, 0.0, True, {"format": {"type": "text"}}]


def test_a_response_that_fails_midway_ends_with_its_error(caplog):
    setup = acting(SCRIPTS)
    request = setup.request

    def failing(prompt, **settings):
        made = request(prompt, **settings)

        def fail(prefix, row):
            if len(prefix) > len(made.prompt) + 4:
                raise RuntimeError("a secret of the engine")
            return row

        return replace(made, processors=[*made.processors, fail])

    setup.request = failing
    with running(setup) as server:
        path = f"{server.url}/v1/responses"
        told = events_of(httpx.post(path, json={"input": "say: x", "stream": True}, timeout=60))
        whole_one = httpx.post(path, json={"input": "say: x"}, timeout=60)
    assert [one["type"] for one in told[-2:]] == ["error", "response.failed"]
    failed = told[-1]["response"]
    assert failed["status"] == "failed"
    assert failed["error"]["code"] == "invalid_prompt"  # at which Codex does not ask again
    assert failed["error"]["message"] == told[-2]["error"]["message"] == told[-2]["message"]
    assert "the server failed on this request" in failed["error"]["message"]
    assert [item["status"] for item in failed["output"]] == ["incomplete"]
    assert whole_one.status_code == 500
    assert "secret" not in whole_one.text + json.dumps(told)
    assert "RuntimeError" not in whole_one.text + json.dumps(told)
    numbers = re.findall("look for ([0-9a-f]{8}) in its log", whole_one.text + failed["error"]["message"])
    assert len(set(numbers)) == 2
    for number in numbers:  # the log has the rest
        (record,) = [one for one in caplog.records if number in one.getMessage()]
        assert "a secret of the engine" in str(record.exc_info[1])


def test_a_request_that_cannot_be_begun_fails_in_its_stream(monkeypatch):
    setup = acting(SCRIPTS)

    def fail(*_, **__):
        raise RuntimeError("a secret of the engine")

    monkeypatch.setattr(setup, "request", fail)
    with running(setup) as server:
        path = f"{server.url}/v1/responses"
        told = httpx.post(path, json={"input": "say: x", "stream": True}, timeout=60)
        whole_one = httpx.post(path, json={"input": "say: x"}, timeout=60)
        refused = httpx.post(path, json={"input": [{"type": "item_reference"}], "stream": True}, timeout=60)
    assert (told.status_code, whole_one.status_code, refused.status_code) == (200, 500, 400)
    assert [one["type"] for one in events_of(told)] == ["error", "response.failed"]
    error = events_of(told)[-1]["response"]["error"]
    assert (error["code"], "in its log" in error["message"]) == ("invalid_prompt", True)
    assert "secret" not in told.text + whole_one.text


def test_a_pass_that_fails_tells_nobody_why(monkeypatch, caplog):
    setup = acting(SCRIPTS)

    def fail(*_):
        raise OSError("/a/secret/file")

    with running(setup) as server:
        path = f"{server.url}/v1/responses"
        monkeypatch.setattr(setup.target, "score", fail)
        found = httpx.post(path, json={"input": "say: x"}, timeout=60)
        told = httpx.post(f"{server.url}/api/chat", json={"messages": [{"role": "user", "content": "say: x"}]})
        monkeypatch.undo()
        assert httpx.post(path, json={"input": "say: x"}, timeout=60).status_code == 200
    assert (found.status_code, "secret" in found.text + told.text) == (500, False)
    (number,) = re.findall("look for ([0-9a-f]{8}) in its log", found.text)
    assert "the model failed in the middle of this text" in found.text
    assert "the model failed in the middle of this text" in told.text
    assert any(number in one.getMessage() and "secret" in str(one.exc_info[1]) for one in caplog.records)
