"""``/v1/messages``: what its requests are as chats, its answers, whole and streamed, and its errors."""

from __future__ import annotations

import json

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.serve.errors import ApiError
from draftwood.serve.message_form import MessageForm
from draftwood.serve.messages import CountRequest, MessagesRequest
from draftwood.serve.parts import PartReader
from tests.serve.conftest import running
from tests.serve.session import acting, toy
from tests.serve.test_calls import SHAPES, read

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HELLO = [{"role": "user", "content": "hello hello"}]
THINKS = '<think>\nWhere is it?\n</think>\n\nSo:<tool_call>{"name": "look", "arguments": {}}</tool_call>'
TOOLS = [{"name": name, "input_schema": {"type": "object"}} for name in ("look", "list")]


def asked(**more):
    return {"model": "claude-opus-4-8", "messages": HELLO, "max_tokens": 24, "temperature": 0} | more


def post(url, path=MESSAGES, headers=None, **more):
    return httpx.post(f"{url}{path}?beta=true", json=asked(**more), headers=headers or {}, timeout=60)


def events(found):
    """The events of a stream, by name; each says its name itself, too."""
    told = [block.split("\n") for block in found.text.strip().split("\n\n") if not block.startswith(":")]
    parts = [(head.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for head, data in told]
    assert all(name == body["type"] for name, body in parts)
    return [body for _, body in parts]


def built(told):
    """The message that a client makes of events."""
    message, written, is_open = None, "", False
    for one in told:
        match one["type"].removeprefix("content_block_"):
            case "message_start":
                assert message is None
                message = one["message"]
            case "start":
                assert not is_open
                assert one["index"] == len(message["content"])
                message["content"].append(one["content_block"])
                written, is_open = "", True
            case "delta":
                assert is_open
                assert one["index"] == len(message["content"]) - 1
                block, delta = message["content"][-1], one["delta"]
                if delta["type"] == "input_json_delta":
                    written += delta["partial_json"]
                else:
                    name = delta["type"].removesuffix("_delta")
                    block[name] += delta[name]
            case "stop":
                if message["content"][-1]["type"] == "tool_use":
                    message["content"][-1]["input"] = finite(written)
                is_open = False
            case "message_delta":
                assert not is_open
                message |= one["delta"]
                message["usage"] |= one["usage"]
    assert [one["type"] for one in told][-2:] == ["message_delta", "message_stop"]
    return message


def told_of(message):
    """What two answers to one question have in common."""
    blocks = [{name: part for name, part in block.items() if name != "id"} for block in message["content"]]
    usage = {name: part for name, part in message["usage"].items() if name.endswith("tokens")}
    usage["input"] = usage.pop("input_tokens") + usage.pop("cache_read_input_tokens")
    return {**message, "content": blocks, "usage": usage, "id": None}


@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 7, "top_p": 0.9, "top_k": 5}])
def test_a_message_is_the_text_of_generate(url, alone, more):
    found = post(url, **more)
    theirs, message = alone(HELLO, **more), found.json()
    assert message["content"] == [{"type": "text", "text": theirs.text}]
    assert (message["type"], message["role"], message["model"]) == ("message", "assistant", "claude-opus-4-8")
    assert (message["stop_reason"], message["stop_sequence"]) == ("max_tokens", None)
    usage = message["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == theirs.prompt_tokens
    assert usage["output_tokens"] == len(theirs.ids)
    assert found.headers["request-id"].startswith("req_")
    assert told_of(built(events(post(url, **more, stream=True)))) == told_of(message)


def test_what_was_read_before_is_no_input(tiny_folder):
    from draftwood.api.setup import Setup

    with running(Setup(str(tiny_folder), None, "ngram", "fixed:6")) as server:
        messages = [{"role": "user", "content": "hello, this is a conversation that becomes longer and longer"}]
        first = post(server.url, messages=messages).json()
        longer = [*messages, {"role": "assistant", "content": first["content"]}, *HELLO]
        (start, *_, end, _) = events(post(server.url, messages=longer, stream=True))
        assert start["message"]["usage"]["cache_read_input_tokens"] > 60
        assert end["usage"]["cache_read_input_tokens"] == start["message"]["usage"]["cache_read_input_tokens"]
        count = httpx.post(f"{server.url}{COUNT}", json={"messages": longer}).json()["input_tokens"]
        assert count == end["usage"]["input_tokens"] + end["usage"]["cache_read_input_tokens"]


@pytest.fixture(scope="module")
def served():
    scripts = {str(number): [text] for number, text in enumerate(SHAPES)}
    with running(acting(scripts | {"stop": ["one two three"], "think": [THINKS]})) as server:
        yield server.url


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_streams_are_whole_messages(served, number):
    given = {"messages": [{"role": "user", "content": f"{number}: x"}], "tools": TOOLS, "max_tokens": 500}
    whole, told = post(served, **given).json(), events(post(served, **given, stream=True))
    assert told_of(built(told)) == told_of(whole)
    said = [part["text"] if part["type"] == "text" else (part["name"], part["input"]) for part in whole["content"]]
    assert said == [part if isinstance(part, str) else (part[0], finite(part[1])) for part in read(SHAPES[number])]
    calls = any(not isinstance(part, str) for part in said)
    assert whole["stop_reason"] == ("tool_use" if calls else "end_turn")


def finite(arguments):
    return json.loads(arguments, parse_float=lambda text: None if text == "1e999" else float(text))


@pytest.mark.parametrize("display", ["summarized", "omitted"])
def test_thoughts_are_blocks_with_something_that_looks_signed(served, display):
    thinking = {"type": "adaptive", "display": display}
    given = {"messages": [{"role": "user", "content": "think: x"}], "tools": TOOLS, "thinking": thinking}
    whole, told = post(served, **given, max_tokens=500).json(), post(served, **given, max_tokens=500, stream=True)
    assert told_of(built(events(told))) == told_of(whole)
    thought, text, call = whole["content"]
    assert (thought["type"], text["text"], call["name"]) == ("thinking", "So:", "look")
    assert thought["thinking"] == ("Where is it?" if display == "summarized" else "")
    assert len(thought["signature"]) == 64
    assert whole["usage"]["output_tokens_details"]["thinking_tokens"] > 10


@pytest.mark.parametrize("room", range(30, 70, 7))
def test_a_call_that_the_limit_cuts_is_told_as_far_as_it_goes(served, room):
    given = {"messages": [{"role": "user", "content": "1: x"}], "tools": TOOLS, "max_tokens": room}
    whole, told = post(served, **given).json(), events(post(served, **given, stream=True))
    assert whole["stop_reason"] == told[-2]["delta"]["stop_reason"] == "max_tokens"
    assert [one["type"] for one in whole["content"]] == [
        one["content_block"]["type"] for one in told if one["type"] == "content_block_start"
    ]
    assert all(isinstance(one["input"], dict) for one in whole["content"] if one["type"] == "tool_use")


@pytest.mark.parametrize(
    ("stops", "text", "reason"),
    [
        (["three", " two"], "one", ("stop_sequence", " two")),
        (["e two t", "e"], "on", ("stop_sequence", "e")),
        (["four"], "one two three", ("end_turn", None)),
        ([], "one two three", ("end_turn", None)),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_sequence_is_named(served, stops, text, reason, stream):
    given = {"messages": [{"role": "user", "content": "stop: x"}], "stop_sequences": stops, "stream": stream}
    found = post(served, **given)
    message = built(events(found)) if stream else found.json()
    assert "".join(part["text"] for part in message["content"]) == text
    assert (message["stop_reason"], message["stop_sequence"]) == reason


def test_nothing_is_written_where_no_token_is_asked_for(url):
    found = post(url, max_tokens=0).json()
    assert (found["content"], found["stop_reason"], found["usage"]["output_tokens"]) == ([], "max_tokens", 0)


def test_an_answer_that_fills_the_model_says_so(url):
    found = post(url, messages=[{"role": "user", "content": "x" * 2000}], max_tokens=64_000).json()
    assert found["stop_reason"] == "model_context_window_exceeded"


def test_a_form_holds(url):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    config = {"format": {"type": "json_schema", "schema": schema}, "effort": "high"}
    found = post(url, output_config=config, max_tokens=200).json()
    assert set(json.loads(found["content"][0]["text"])) == {"a"}


def test_a_call_is_forced(url):
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
              "additionalProperties": False}  # fmt: skip
    tools = [{"name": name, "input_schema": schema} for name in ("look", "list")]
    for choice in ({"type": "tool", "name": "list", "disable_parallel_tool_use": True}, {"type": "any"}):
        found = post(url, tools=tools, tool_choice=choice, max_tokens=200).json()
        assert found["stop_reason"] == "tool_use"
        assert found["content"][0]["name"] in ("list", choice.get("name", "look"))
        assert isinstance(found["content"][0]["input"]["a"], bool)


# What a request is as a chat.

CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "é"}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "eA=="}}
DOCUMENT = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "d"}}
CACHED = {"cache_control": {"type": "ephemeral"}}


def chat(**more):
    """A request as a chat, and what of it was left out."""
    parts, request = PartReader(), MessagesRequest(**asked(**more))
    found = request.chat(parts)
    return found, [*request.ignored, *parts.left_out]


def text(some, **more):
    return {"type": "text", "text": some, **more}


def test_blocks_become_messages():
    result = {"type": "tool_result", "tool_use_id": "toolu_1"}
    found, left = chat(
        system=[text("be "), text("brief", **CACHED)],
        messages=[
            {"role": "user", "content": [text("see"), IMAGE, DOCUMENT]},
            {"role": "system", "content": "agents: none"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"}, text("I look."), CALL,
            ]},
            {"role": "user", "content": [
                {**result, "content": "gone", "is_error": True, **CACHED},
                {**result, "content": [text("a"), IMAGE]}, result, text("and?"),
            ]},
            {"role": "assistant", "content": [CALL]},
            {"role": "user", "content": [result]},
            {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "x", "input": {}}]},
            {"role": "user", "content": []},
        ],
    )  # fmt: skip
    call = {"id": "toolu_1", "type": "function", "function": {"name": "look", "arguments": '{"at": "é"}'}}
    tool = {"role": "tool", "tool_call_id": "toolu_1"}
    assert found.messages == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "see[image left out: this model reads text]T\nd"},
        {"role": "system", "content": "agents: none"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": [call]},
        {**tool, "content": "Error: gone"},
        {**tool, "content": "a[image left out: this model reads text]"},
        {**tool, "content": ""},
        {"role": "user", "content": "and?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {**tool, "content": ""},
        {"role": "assistant", "content": "[server_tool_use left out: this model reads text]"},
        {"role": "user", "content": ""},
    ]
    assert left == [
        "messages.0.content.1", "messages.2.content.1", "messages.3.content.1.content.1", "messages.6.content.0"
    ]  # fmt: skip


def test_texts_of_documents_and_searches_are_read():
    results = {"type": "search_result", "title": "T", "source": "https://x", "content": [text("a"), text("b")]}
    parts = {"type": "document", "source": {"type": "content", "content": "c"}, "context": "of"}
    found, left = chat(messages=[{"role": "user", "content": [results, parts]}])
    assert (found.messages[0]["content"], left) == ("T\nhttps://x\na\nbof\nc", [])


BILLING = "x-anthropic-billing-header: cc_version=2.1.197; cch=0a1b2;"


@pytest.mark.parametrize(
    ("system", "said"),
    [
        ([text(BILLING), text("You are", **CACHED), text("\nkind.")], "You are\nkind."),
        (f"{BILLING}\nYou are kind.", "You are kind."),
        (f"Not {BILLING}", f"Not {BILLING}"),
        (BILLING, None),
        ([], None),
        (None, None),
    ],
)
def test_a_line_that_changes_with_every_request_is_left_out(system, said):
    (first, *others) = chat(system=system)[0].messages
    assert (first["content"] if others else None) == said


@pytest.mark.parametrize(
    ("user_id", "user"),
    [
        ('{"device_id":"d","account_uuid":"","session_id":"1-2"}', '{"account_uuid":"","device_id":"d"}'),
        ("user_0af_account__session_12ab-34", "user_0af_account_"),
        ("somebody", "somebody"),
        ("[1]", "[1]"),
        (None, None),
    ],
)
def test_sessions_of_one_user_are_one_user(user_id, user):
    assert chat(metadata={"user_id": user_id})[0].user == user


def test_tools_of_the_client_are_functions_and_others_are_named():
    choice = {"type": "tool", "name": "look", "disable_parallel_tool_use": True}
    tools = [{"type": "web_search_20250305", "name": "web_search"}, {**TOOLS[0], "type": "custom", **CACHED}]
    found, left = chat(tools=tools, tool_choice=choice, context_management={}, betas=["x"])
    assert left == ["betas", "context_management", "tools.0"]
    assert [one.function.name for one in found.tools] == ["look"]
    assert found.tool_choice.function.name == "look"
    assert found.parallel_tool_calls is False
    kinds = {"auto": "auto", "any": "required", "none": "none"}
    assert {kind: chat(tools=TOOLS, tool_choice={"type": kind})[0].tool_choice for kind in kinds} == kinds


@pytest.mark.parametrize(("kind", "said"), [("enabled", "enabled"), ("between_tools", "disabled")])
def test_what_is_said_of_thinking_is_passed_on(kind, said):
    thinking = {"type": kind, "budget_tokens": 2000, "display": "omitted"}
    found = chat(thinking=thinking, output_config={"effort": "low"})[0].model_dump()
    assert (found["thinking"], found["reasoning_effort"]) == ({"type": said, "budget_tokens": 2000}, "low")


def test_a_name_of_a_tool_may_be_long():
    found, _ = chat(tools=[{"name": "mcp__server__" + "x" * 100, "input_schema": {}}])
    assert len(found.tools[0].function.name) == 113


# Errors.

BAD = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"messages": []}, "messages"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "choose user, assistant or system"),
    ({"messages": [{"role": "user"}]}, "messages.0.content: give a text or a list"),
    ({"messages": [{"role": "user", "content": [3]}]}, "messages.0.content.0"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages.0.content.0"),
    ({"messages": [*HELLO, {"role": "assistant", "content": "I"}]}, "end with the user's"),
    ({"messages": [{"role": "assistant", "content": [{**CALL, "input": "x"}]}, *HELLO]}, "content.0.input"),
    ({"messages": [{"role": "assistant", "content": [{**CALL, "name": 3}]}, *HELLO]}, "content.0.name"),
    ({"messages": [{"role": "assistant", "content": [{"type": "thinking"}]}, *HELLO]}, "content.0.thinking"),
    ({"system": [{"type": "text", "text": 3}]}, "system.0"),
    ({"system": 3}, "system"),
    ({"tools": [{"name": "look"}]}, "tools.0.input_schema"),
    ({"tools": [{"name": "not a name!", "input_schema": {}}]}, "tools.0.name"),
    ({"tool_choice": {"type": "tool"}}, "tool_choice: a choice of type 'tool' needs the name"),
    ({"tool_choice": {"type": "some"}}, "tool_choice.type"),
    ({"tool_choice": {"type": "any"}}, "there are no tools"),
    ({"tools": TOOLS, "tool_choice": {"type": "tool", "name": "other"}}, "none of the tools"),
    ({"stop_sequences": [""]}, "stop_sequences: a stop string is empty"),
    ({"thinking": {"type": "yes"}}, "thinking.type"),
    ({"output_config": {"format": {"type": "json"}}}, "output_config.format.type"),
    ({"metadata": {"user_id": "x" * 600}}, "metadata.user_id"),
    ({"temperature": 5}, "temperature"),
    ({"model": "x" * 600}, "model"),
]


@pytest.mark.parametrize(("change", "said"), BAD)
def test_what_a_message_cannot_be_is_refused_in_its_own_form(url, change, said):
    found = post(url, **change)
    assert found.status_code == 400, found.text
    body = found.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert said in body["error"]["message"]
    assert body["request_id"] == found.headers["request-id"]


@pytest.mark.parametrize("length", [3000, 3_000_000])
def test_a_prompt_that_is_too_long_is_told_in_the_words_that_claude_code_looks_for(url, length):
    found = post(url, messages=[{"role": "user", "content": "x" * length}]).json()["error"]["message"]
    assert found.startswith("prompt is too long: ")
    assert "shorten the prompt" in found
    assert ("tokens > 2048 maximum" in found) == (length == 3000)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"messages": 3}', b'{"a": "\\ud800"}'])
def test_bodies_that_are_no_request(url, body):
    for path in (MESSAGES, COUNT):
        found = httpx.post(f"{url}{path}", content=body, headers={"content-type": "application/json"})
        assert (found.status_code, found.json()["type"]) == (400, "error")


def test_errors_of_all_kinds_have_the_form_of_the_route():
    with running(
        toy("none", "goodput"), keys=("sesame",), most_bytes=10_000, most_running=1, most_waiting=0
    ) as one:
        key = {"x-api-key": "sesame"}
        told = [
            (401, "authentication_error", post(one.url)),
            (401, "authentication_error", post(one.url, headers={"x-api-key": "nonsense"})),
            (403, "permission_error", post(one.url, headers={**key, "host": "evil.example"})),
            (404, "not_found_error", post(one.url, f"{MESSAGES}/batches", key)),
            (405, "invalid_request_error", httpx.get(f"{one.url}{MESSAGES}", headers=key)),
            (413, "request_too_large", post(one.url, headers=key, system="x" * 20_000)),
        ]
        with httpx.stream("POST", f"{one.url}{MESSAGES}", json=asked(max_tokens=60_000, stream=True), headers=key):
            full = post(one.url, headers=key)
            told.append((429, "rate_limit_error", full))
            assert full.headers["retry-after"] == "1"
        for status, kind, found in told:
            assert (found.status_code, found.json()["error"]["type"]) == (status, kind)
            assert found.headers["request-id"] == found.json()["request_id"]
        assert httpx.get(f"{one.url}/v1/models", headers=key).status_code == 200


def test_a_stream_that_fails_ends_with_an_error():
    from draftwood.errors import DraftwoodError

    setup = toy("none", "goodput")
    extend = setup.target.extend

    def failing(*given):
        raise DraftwoodError("out of memory")

    with running(setup) as server:
        setup.target.extend = failing
        told = events(post(server.url, stream=True))
        assert (told[-1]["type"], told[-1]["error"]["type"]) == ("error", "api_error")
        setup.target.extend = extend


def test_counting_needs_no_limit_and_names_what_it_ignores(url):
    given = {"messages": HELLO, "tools": TOOLS, "speed": "fast", "system": [text("be brief")], "model": "x"}
    found = httpx.post(f"{url}{COUNT}?beta=true", json=given)
    assert found.headers["x-draftwood-ignored"] == "speed"
    whole = post(url, **given).json()["usage"]
    assert found.json() == {"input_tokens": whole["input_tokens"] + whole["cache_read_input_tokens"]}
    assert httpx.head(url).status_code == 200


def test_silence_is_broken_by_pings():
    assert MessageForm.alive == b'event: ping\ndata: {"type":"ping"}\n\n'


def test_a_count_may_end_with_the_assistant():
    said = [*HELLO, {"role": "assistant", "content": "I"}]
    assert CountRequest(messages=said).chat(PartReader()).messages[-1] == said[-1]
    with pytest.raises(ApiError, match="end with the user's"):
        MessagesRequest(messages=said, max_tokens=1).chat(PartReader())
