"""Ollama's routes: what editors look for, chats and texts, whole and as lines, tools, and errors."""

from __future__ import annotations

import json
import random

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.serve.errors import ApiError
from draftwood.serve.ollama import OllamaChat, OllamaText
from draftwood.serve.ollama_form import OllamaForm
from draftwood.serve.parts import PartReader
from tests.serve.conftest import running
from tests.serve.session import acting
from tests.serve.test_calls import SHAPES, read

HELLO = [{"role": "user", "content": "hello hello"}]
GREEDY = {"temperature": 0, "num_predict": 24}
THINKS = '<think>\nWhere is it?\n</think>\n\nSo:<tool_call>{"name": "look", "arguments": {"at": 3}}</tool_call>'
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("look", "list")
]


def post(url, path, **more):
    return httpx.post(f"{url}/api/{path}", json=more, timeout=60)


def lines(found):
    """The lines of a stream; all but the last are not done."""
    assert found.headers["content-type"] == "application/x-ndjson"
    told = [json.loads(line) for line in found.text.splitlines()]
    assert [one["done"] for one in told] == [False] * (len(told) - 1) + [True]
    return told


def built(told):
    """The message that a client makes of lines."""
    found = {"role": "assistant", "content": ""}
    for one in told:
        assert one["message"]["role"] == "assistant"
        for name in one["message"].keys() - {"role"}:
            found[name] = found[name] + one["message"][name] if name in found else one["message"][name]
    return found


def said(message):
    """What two answers to one question have in common."""
    calls = [call["function"] for call in message.get("tool_calls", ())]
    return message["content"], message.get("thinking"), calls


@pytest.mark.parametrize("more", [{}, {"temperature": 0.8, "seed": 7, "top_p": 0.9, "top_k": 5, "min_p": 0.01}])
def test_answers_are_the_text_of_generate(url, alone, more):
    theirs, options = alone(HELLO, **more), GREEDY | more
    chat = post(url, "chat", model="tiny:latest", messages=HELLO, options=options)
    text = post(url, "generate", model="tiny", prompt="hello hello", options=options)
    told, (*pieces, end) = lines(chat), lines(text)
    assert built(told)["content"] == "".join(one["response"] for one in pieces) == theirs.text
    whole = post(url, "chat", messages=HELLO, options=options, stream=False).json()
    assert (whole["message"]["content"], whole["model"], told[0]["model"]) == (theirs.text, "tiny", "tiny")
    for last in (whole, told[-1], end):
        assert (last["done"], last["done_reason"]) == (True, "length")
        assert (last["prompt_eval_count"], last["eval_count"]) == (theirs.prompt_tokens, len(theirs.ids))
        assert last["total_duration"] >= last["eval_duration"] > 0


def test_a_raw_prompt_stands_as_it_is(url, alone):
    found = post(url, "generate", prompt="hello hello", raw=True, stream=False, options=GREEDY).json()
    assert found["response"] == alone("hello hello").text
    assert "format" in post(url, "generate", prompt="a", raw=True, format="json").json()["error"]


@pytest.fixture(scope="module")
def served():
    scripts = {str(number): [text] for number, text in enumerate(SHAPES)}
    more = {"think": [THINKS], "lines": ["one\u2028two\x85three\U0001f600"], "last": ["was: ECHO"]}
    with running(acting(scripts | more), strict_model=True) as server:
        yield server.url


@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_streams_are_whole_answers(served, number):
    given = {
        "messages": [{"role": "user", "content": f"{number}: x"}],
        "tools": TOOLS,
        "options": {"num_predict": 500},
    }
    whole, told = post(served, "chat", **given, stream=False).json(), lines(post(served, "chat", **given))
    assert said(built(told)) == said(whole["message"])
    content, _, calls = said(whole["message"])
    parts = read(SHAPES[number])
    assert content == "".join(part for part in parts if isinstance(part, str))
    assert [(call["name"], call["arguments"]) for call in calls] == [
        (part[0], json.loads(part[1], parse_float=lambda text: None if text == "1e999" else float(text)))
        for part in parts
        if not isinstance(part, str)
    ]
    assert whole["done_reason"] == told[-1]["done_reason"] == "stop"


def test_thoughts_and_line_ends(served):
    given = {
        "messages": [{"role": "user", "content": "think: x"}],
        "tools": TOOLS,
        "options": {"num_predict": 500},
    }
    content, thought, (call,) = said(built(lines(post(served, "chat", **given))))
    assert (content, thought, call["name"], call["arguments"]) == ("So:", "Where is it?", "look", {"at": 3})
    found = post(served, "generate", prompt="think: x", stream=False, options={"num_predict": 500}).json()
    assert found["thinking"] == "Where is it?"
    pieces = lines(post(served, "generate", prompt="lines: x"))
    assert "".join(one["response"] for one in pieces) == "one\u2028two\x85three\U0001f600"


@pytest.mark.parametrize("room", range(75, 100, 7))
def test_a_call_that_the_limit_cuts_is_told_as_far_as_it_goes(served, room):
    given = {
        "messages": [{"role": "user", "content": "think: x"}],
        "tools": TOOLS,
        "options": {"num_predict": room},
    }
    whole, told = post(served, "chat", **given, stream=False).json(), lines(post(served, "chat", **given))
    assert said(built(told)) == said(whole["message"])
    assert whole["done_reason"] == told[-1]["done_reason"] == "length"


@pytest.mark.parametrize(
    ("form", "fits"),
    [
        ("json", lambda value: isinstance(value, dict)),
        ({"type": "object", "properties": {"a": {"const": 5}}, "required": ["a"], "additionalProperties": False},
         lambda value: value == {"a": 5}),
    ],
)  # fmt: skip
def test_answers_have_the_form_that_is_asked_for(url, form, fits):
    options = {"temperature": 0, "num_predict": 400, "seed": 1}
    for path, asked in (("chat", {"messages": HELLO}), ("generate", {"prompt": "hello"})):
        found = post(url, path, **asked, format=form, stream=False, options=options).json()
        text = found["response"] if path == "generate" else found["message"]["content"]
        assert found["done_reason"] == "length" or fits(json.loads(text))


def test_conversations_become_chats():
    calls = [{"function": {"name": name, "arguments": {"at": 1}}} for name in ("look", "list", "look")]
    results = [{"role": "tool", "tool_name": name, "content": name} for name in ("list", "look", "look", "look")]
    messages = [
        {"role": "user", "content": "what?", "images": ["aGk=", "aGk="]},
        {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": calls},
        *results,
    ]
    parts = PartReader()
    options = {"num_predict": -1, "repeat_penalty": 1.5, "stop": ["a"], "num_ctx": 9, "seed": -1}
    asked = OllamaChat(messages=messages, options=options, think="low", keep_alive="5m", truncate=True)
    given = asked.chat(parts)
    user, assistant, *tools = given.messages
    line = "[image left out: this model reads text]\n"
    assert user["content"] == f"{line}{line}what?"
    assert parts.left_out == ["messages.0.images.0", "messages.0.images.1"]
    assert assistant["reasoning_content"] == "hm"
    ids = [call["id"] for call in assistant["tool_calls"]]
    assert len(set(ids)) == 3
    assert [one["tool_call_id"] for one in tools] == [ids[1], ids[0], ids[2], None]
    assert (given.limit, given.repetition_penalty, given.stop, given.seed) == (None, 1.5, ["a"], None)
    assert set(asked.ignored) == {"truncate", "options.num_ctx"}
    text = OllamaText(prompt="a", system="b", options={"num_predict": 3}).chat(parts)
    assert [one["role"] for one in text.messages] == ["system", "user"]
    assert text.limit == 3


def test_what_the_model_is(url, served):
    assert tuple(map(int, httpx.get(f"{url}/api/version").json()["version"].split("."))) >= (0, 6, 4)
    (listed,) = httpx.get(f"{url}/api/tags").json()["models"]
    assert (listed["name"], listed["details"]["family"]) == ("tiny", "llama")
    (loaded,) = httpx.get(f"{url}/api/ps").json()["models"]
    assert loaded == listed | {"expires_at": "9999-12-31T23:59:59Z", "context_length": 2048}
    shown = post(url, "show", model=listed["name"]).json()
    assert shown["model_info"]["llama.context_length"] == 2048
    assert shown["capabilities"] == ["completion", "tools"]
    assert post(served, "show", model="tiny:latest").status_code == 200
    assert post(served, "show", name="other").status_code == 404


@pytest.mark.parametrize("path", ["chat", "generate"])
def test_a_request_without_a_question_loads_the_model(url, path):
    assert post(url, path, model="tiny").json()["done_reason"] == "load"
    assert post(url, path, model="tiny", keep_alive=0).json()["done_reason"] == "unload"


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("chat", {"messages": [{"role": "x", "content": "a"}]}, 400, "role 'x'"),
        ("chat", {"messages": [{"role": "user", "content": 3}]}, 400, "content"),
        ("chat", {"messages": [{"role": "user", "content": "a", "images": "b"}]}, 400, "images"),
        ("chat", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, 400, "messages.0.tool_calls.0"),
        ("chat", {"messages": HELLO, "options": {"temperature": -1}}, 400, "options.temperature"),
        ("chat", {"messages": HELLO, "format": "xml"}, 400, "format"),
        ("chat", {"messages": HELLO, "think": "hardly"}, 400, "think"),
        ("chat", {"model": "other", "messages": HELLO}, 404, "no model 'other'"),
        ("generate", {"prompt": ["a"]}, 400, "prompt"),
        ("pull", {"model": "x"}, 404, "/api/pull is not served"),
    ],
)
def test_errors_are_one_sentence(served, path, body, status, says):
    found = post(served, path, **body)
    assert found.status_code == status
    assert set(found.json()) == {"error"}
    assert says in found.json()["error"]
    assert json.loads(OllamaForm("m", None, traced=None).failed(ApiError("no"))) == {"error": "no"}


ODD = [None, True, 0, -1, 1e308, "", "a", "json", [], {}, [{}], [[]], ["a"], {"a": []}, {"function": None}]
FIELDS = {
    "chat": ("messages", "tools", "format", "options", "think", "stream", "keep_alive", "draftwood", "model"),
    "generate": ("prompt", "system", "images", "raw", "format", "options", "think", "suffix", "model"),
    "show": ("model", "name", "verbose"),
}
INNER = ("role", "content", "images", "tool_calls", "thinking", "tool_name", "function", "name", "arguments")


@pytest.mark.parametrize("path", FIELDS)
def test_odd_bodies_are_no_error_of_the_server(url, path):
    drawn = random.Random(5)
    for _ in range(100):
        body = {name: drawn.choice(ODD) for name in drawn.sample(FIELDS[path], drawn.randint(0, 3))}
        if path == "chat" and drawn.random() < 0.7:
            message = {name: drawn.choice(ODD) for name in drawn.sample(INNER, 3)}
            body["messages"] = [{"role": drawn.choice(("user", "assistant", "tool")), **message}]
        if body.get("options") in (None, {}):
            body["options"] = {
                "num_predict": 2,
                drawn.choice(("stop", "seed", "top_k", "top_p")): drawn.choice(ODD),
            }
        found = post(url, path, **body)
        assert found.status_code in (200, 400, 404), (body, found.text)
