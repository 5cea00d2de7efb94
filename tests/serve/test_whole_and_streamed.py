"""An answer is the same whole and streamed, drafted and plain, in each API: its text, thoughts and calls."""

from __future__ import annotations

import json
from typing import NamedTuple

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood.serve.meanings import CHAT, MESSAGES, OLLAMA_CHAT, RESPONSES
from draftwood.serve.message_form import arguments_of
from tests.serve.conftest import running
from tests.serve.session import acting, call

LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
ODD = 'a\u2028b\x85 "q" \\ </think> \U0001f333'
SCRIPTS = [
    "plain text, and more of it",
    f"<think>\nWhere? {ODD}\n</think>\n\nIt is {ODD}",
    f"I look. {call('look', at=ODD)}\n{call('look', at='</tool_call>')}\nDone.",
    f"<think>so</think>{call('look', at='x')}",
    f"{call('other', at='x')} and <tool_call>no call",
    call("look", at=ODD)[:-20],
]


class Said(NamedTuple):
    """What an answer says, however it was sent; the calls' arguments as they are read."""

    text: str
    thought: str
    calls: list[tuple[str, dict]]
    reason: str


class Parts:
    """Takes in the parts of a streamed answer."""

    def __init__(self):
        self.text, self.thought, self.calls, self.reason = "", "", [], None

    def add(self, text=None, thought=None, name=None, arguments=None):
        self.text, self.thought = self.text + (text or ""), self.thought + (thought or "")
        if name is not None:
            self.calls.append([name, ""])
        if arguments:
            self.calls[-1][1] += arguments

    def said(self):
        return Said(self.text, self.thought, [(name, arguments_of(one)) for name, one in self.calls], self.reason)


def of_chat(whole, events):
    found = Parts()
    if whole is not None:
        (choice,) = whole["choices"]
        message = choice["message"]
        found.add(message["content"], message.get("reasoning_content"))
        for one in message.get("tool_calls", ()):
            found.add(name=one["function"]["name"], arguments=one["function"]["arguments"])
        found.reason = choice["finish_reason"]
    for event in events:
        delta = event["choices"][0]["delta"]
        found.add(delta.get("content"), delta.get("reasoning_content"))
        for one in delta.get("tool_calls", ()):
            found.add(name=one["function"].get("name"), arguments=one["function"]["arguments"])
        found.reason = event["choices"][0]["finish_reason"] or found.reason
    return found.said()


def of_response(whole, events):
    found = Parts()
    for event in events:
        kind, delta = event["type"].removeprefix("response."), event.get("delta")
        if kind == "output_item.added" and event["item"]["type"] == "function_call":
            found.add(name=event["item"]["name"])
        elif kind in FIELDS:
            found.add(**{FIELDS[kind]: delta})
        elif kind in ("completed", "incomplete"):
            found.reason = event["response"]["status"]
            assert of_response(event["response"], ()) == found.said(), "events and the whole at their end agree"
    for item in [] if whole is None else whole["output"]:
        if item["type"] == "function_call":
            found.add(name=item["name"], arguments=item["arguments"])
        else:
            found.add(**{"thought" if item["type"] == "reasoning" else "text": item["content"][0]["text"]})
    found.reason = found.reason or whole["status"]
    return found.said()


FIELDS = {
    "output_text.delta": "text", "reasoning_text.delta": "thought", "function_call_arguments.delta": "arguments",
}  # fmt: skip


def of_message(whole, events):
    found = Parts()
    for block in [] if whole is None else whole["content"]:
        name, given = block.get("name"), block.get("input")
        found.add(block.get("text"), block.get("thinking"), name, None if name is None else json.dumps(given))
        found.reason = whole["stop_reason"]
    for event in events:
        if event["type"] == "content_block_start":
            found.add(name=event["content_block"].get("name"))
        delta = event.get("delta", {})
        found.add(delta.get("text"), delta.get("thinking"), arguments=delta.get("partial_json"))
        found.reason = delta.get("stop_reason") or found.reason
    return found.said()


def of_ollama(whole, events):
    found = Parts()
    for one in (*([] if whole is None else [whole]), *events):
        found.add(one["message"]["content"], one["message"].get("thinking"))
        for asked in one["message"].get("tool_calls", ()):
            found.add(name=asked["function"]["name"], arguments=json.dumps(asked["function"]["arguments"]))
        found.reason = one.get("done_reason", found.reason)
    return found.said()


ASKED = {
    CHAT: lambda text, most: {
        "messages": [{"role": "user", "content": text}], "max_tokens": most,
        "tools": [{"type": "function", "function": LOOK}],
    },
    RESPONSES: lambda text, most: {
        "input": text, "max_output_tokens": most, "tools": [{"type": "function", **LOOK}]
    },
    MESSAGES: lambda text, most: {
        "messages": [{"role": "user", "content": text}], "max_tokens": most,
        "tools": [{"name": "look", "input_schema": LOOK["parameters"]}],
    },
    OLLAMA_CHAT: lambda text, most: {
        "messages": [{"role": "user", "content": text}], "options": {"num_predict": most},
        "tools": [{"type": "function", "function": LOOK}],
    },
}  # fmt: skip
READ = {CHAT: of_chat, RESPONSES: of_response, MESSAGES: of_message, OLLAMA_CHAT: of_ollama}


@pytest.fixture(scope="module")
def url():
    with running(acting({str(number): [text] for number, text in enumerate(SCRIPTS)})) as server:
        yield server.url


def answers(url, path, number, most):
    """What an API says: whole and streamed, drafted and plain."""
    for wish in ("", "plain"):
        for stream in (False, True):
            body = {**ASKED[path](f"{number}: go", most), "stream": stream}
            found = httpx.post(f"{url}{path}", json=body, headers={"x-draftwood": wish}, timeout=60)
            assert found.status_code == 200, found.text
            lines = [line.removeprefix("data: ") for line in found.text.split("\n") if line[:1] in ("{", "d")]
            events = [json.loads(line) for line in lines if line != "[DONE]"] if stream else ()
            yield READ[path](None if stream else found.json(), events)


@pytest.mark.parametrize("most", [999, 40, 13])
@pytest.mark.parametrize("path", ASKED)
def test_whole_is_streamed_and_drafted_is_plain(url, path, most):
    for number in range(len(SCRIPTS)):
        first, *others = answers(url, path, number, most)
        assert others == [first] * 3, SCRIPTS[number]
        assert any(first[:3])
        if path != CHAT and most == 999:
            assert first[:3] == next(answers(url, CHAT, number, most))[:3], "in each API"
