"""Bodies that look like requests and are none, and fields at and beyond their limits: a reason, never a 500."""

from __future__ import annotations

import json

import httpx2 as httpx
import pytest

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
JSON = {"content-type": "application/json"}
LONE = '"a\\ud800b"'
"""A lone surrogate: JSON's grammar allows it, no text can hold it."""
LARGE = {"properties": {f"p{number}": {"type": "string"} for number in range(5000)}}
"""A schema that takes half a minute to compile."""


def refused(url, path, body, status=400):
    """Send a body; returns the error object, which must come with this status."""
    found = httpx.post(f"{url}{path}", content=body, headers=JSON, timeout=60)
    assert found.status_code == status, found.text
    return found.json()["error"]


def chat(**more):
    return {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2, "temperature": 0} | more


@pytest.mark.parametrize("value", [LONE, "NaN", "-Infinity", "[" * 500 + "]" * 500, "9" * 5000, '"\xff"'])
@pytest.mark.parametrize(
    "body",
    ['{"messages": [{"role": "user", "content": %s}]}', '{"messages": [], "zzz": %s}', '{"messages": [], %s: 1}'],
)
def test_json_that_cannot_be_written_again_is_refused_wherever_it_stands(url, value, body):
    assert "no valid JSON" in refused(url, CHAT, (body % value).encode("latin-1"))["message"]


@pytest.mark.parametrize("path", ["/v1/completions", RESPONSES, "/v1/messages", "/tokenize", "/detokenize"])
def test_every_route_reads_strictly(url, path):
    assert "no valid JSON" in refused(url, path, f'{{"prompt": {LONE}, "input": "x", "tokens": []}}')["message"]


ENDLESS = '{"a": 1e999}'  # a number beyond JSON, which an answer would repeat
ODD = [("metadata", ENDLESS), ("text", ENDLESS), ("tool_choice", ENDLESS), ("text", '{"format": 3}')]
# Nothing is kept in between.
KEPT = [(field, '"some"') for field in ("previous_response_id", "conversation", "prompt")]


@pytest.mark.parametrize(("field", "value"), [*ODD, *KEPT])
def test_what_a_response_cannot_have_is_refused(url, field, value):
    assert refused(url, RESPONSES, f'{{"input": "x", "{field}": {value}}}')["param"].startswith(field)


@pytest.mark.parametrize("stream", [False, True])
def test_odd_names_of_ignored_fields_stay_out_of_the_header(url, stream):
    names = ["zzz", "größe", "€", "a\r\nx-evil: 1", "nul\0", "", "x" * 9999, *(f"f{n}" for n in range(5000))]
    found = httpx.post(f"{url}{CHAT}", json=chat(stream=stream, **dict.fromkeys(names, 1)), timeout=60)
    assert found.status_code == 200
    assert "x-evil" not in found.headers
    said = found.headers["x-draftwood-ignored"].split(", ")
    assert len(said) == 33
    assert said[-1] == f"and {len(names) - 32} more"


@pytest.mark.parametrize(
    ("path", "change", "param", "said"),
    [
        (CHAT, {"stop": [3]}, "stop.0", "a valid string"),
        (CHAT, {"stop": [3] * 200_000}, "stop.0", "a valid string"),  # and no word of the others
        (CHAT, {"tools": [{}] * 5000}, "tools.0.type", "required"),
        (CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}] * 4097}, "tools", "at most 4096"),
        (CHAT, {"stop": ""}, "stop", "a stop string is empty"),
        (CHAT, {"tool_choice": "f"}, "tool_choice", "'none', 'auto' or 'required'"),
        (CHAT, {"tools": [{"type": "function"}]}, "tools.0.function", "required"),
        (CHAT, {"prediction": {"content": [{"type": "image_url"}]}}, "prediction.content.0.type", "'text'"),
        ("/v1/completions", {"prompt": [[1], [1.5]]}, "prompt.1.0", "a valid"),
        ("/v1/completions", {"prompt": None}, "prompt", "required"),
        (RESPONSES, {"input": ["x"]}, "input.0", "a valid dictionary"),
    ],
)
def test_an_error_names_the_field_as_the_client_wrote_it(url, path, change, param, said):
    error = refused(url, path, json.dumps(chat(**change)))
    assert error["param"] == param
    assert error["message"].startswith(f"{param}: ")
    assert said in error["message"]


@pytest.mark.parametrize("field", [{"stop": [3] * 300_000}, dict.fromkeys(map(str, range(300_000)), 1)])
def test_bodies_with_more_values_than_a_request_can_have_are_not_read(url, field):
    assert "too many values" in refused(url, CHAT, json.dumps(chat(**field)), 413)["message"]


def test_bodies_of_other_kinds_and_other_methods(url):
    page = {"content-type": "text/plain", "origin": "http://127.0.0.1:1"}
    found = httpx.post(f"{url}{CHAT}", content=json.dumps(chat()), headers=page)
    assert "Content-Type: application/json" in found.json()["error"]["message"]
    wrong = httpx.get(f"{url}{CHAT}")
    assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")


IDS = {"type": "object", "properties": {"id": {"enum": [1234567890123456789]}}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"messages": [{"role": "banana", "content": "x"}]}, "message 1 has the role 'banana'"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": 3}]}, "a list of calls"),
        ({"messages": [{"role": "assistant", "content": None, "tool_calls": []}]}, "no content"),
        ({"repetition_penalty": 1e-320}, "repetition_penalty"),
        ({"logit_bias": dict.fromkeys(map(str, range(70_000)), 1)}, "at most 65536"),
        ({"n": 0}, "n: "),
        ({"n": 17}, "n: "),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": 5, "content": "x"}]}, "message 1 has no role"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "has no text"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop": ["a"] * 1000}, "too many"),
        ({"stop": [""]}, "empty"),
        ({"top_logprobs": 3}, "logprobs"),
        ({"logit_bias": {"999": 1}}, "no token id"),
        ({"prediction": {"type": "content", "content": "x" * 200_000}}, "the prediction has"),
        ({"seed": "no"}, "seed"),
        ({"temperature": -1}, "temperature"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"presence_penalty": 2.5}, "presence_penalty"),
        ({"seed": 1 << 70}, "seed"),
        ({"temperature": 5}, "temperature"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}}, "cannot be used"),
        ({"guided_regex": "("}, "cannot be used"),
        (
            {
                "tool_choice": "required",
                "tools": [{"type": "function", "function": {"name": "f", "parameters": IDS}}],
            },
            "'f': the number 1234567890123456789 at #/properties/id/enum is beyond 2^53",
        ),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": IDS}}}, "beyond 2^53"),
        ({"temperature": 10**400}, "temperature"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": LARGE}}}, "the most are 65,536"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": LARGE}}]}, "shorten the prompt"),
    ],
)
def test_what_no_text_can_have_is_refused(url, change, said):
    error = refused(url, CHAT, json.dumps(chat(**change)))
    assert said in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"messages": 3}', b"null", b"[" * 10_000]
)
def test_bodies_that_are_no_request_get_the_error_object(url, body):
    assert refused(url, CHAT, body)["message"]


def test_tokens_that_are_none(url):
    said = refused(url, "/v1/completions", json.dumps({"prompt": [[99_999]]}))["message"]
    assert "outside the vocabulary" in said


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [{"role": "developer", "content": "x"}, {"role": "user", "content": ""}]},
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "of no call"}]},
        {
            "messages": [{"role": "tool", "content": "x", "tool_call_id": {"no": "text"}}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        },
        {"messages": [{"role": "user", "content": "nul \0 in a text", "name": "bob"}]},
        {"logit_bias": {str(token): token / 90 for token in range(90)}},
        {"stop": []},
        {"seed": -(1 << 63)},
        {"temperature": 1e-9},
        {"stream_options": {"include_usage": True}},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#"}}}]},
    ],
)
def test_what_is_odd_and_possible_is_written(url, change):
    assert httpx.post(f"{url}{CHAT}", json=chat(**change), timeout=60).status_code == 200


def test_a_developer_speaks_as_the_system(url):
    texts = [
        httpx.post(f"{url}{CHAT}", json=chat(messages=[{"role": role, "content": "x"}], max_tokens=24)).json()
        for role in ("developer", "system")
    ]
    assert texts[0]["choices"] == texts[1]["choices"]


@pytest.mark.parametrize(
    ("change", "status"), [({"suffix": "x"}, 400), ({"best_of": 3}, 400), ({"suffix": ""}, 200)]
)
def test_plain_texts_between_others_or_the_best_of_several(url, change, status):
    body = {"prompt": "a", "max_tokens": 2} | change
    assert httpx.post(f"{url}/v1/completions", json=body, timeout=60).status_code == status


@pytest.mark.parametrize(("length", "said"), [(3000, "has 30"), (3_000_000, "too many for the 2,048 tokens")])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", RESPONSES])
def test_a_prompt_that_is_too_long_is_told_in_the_words_that_agents_look_for(url, path, length, said):
    text, field = "x" * length, {CHAT: "messages", RESPONSES: "input"}.get(path, "prompt")
    error = refused(url, path, json.dumps({field: [{"role": "user", "content": text}] if path == CHAT else text}))
    assert error["code"] == "context_length_exceeded"
    assert said in error["message"]
    assert "shorten the prompt" in error["message"]
    assert "this model's maximum context length is" in error["message"]  # litellm has a list of such words
