"""Parts that are no text are left out, and the model and the client are told; or they are refused."""

from __future__ import annotations

import json

import httpx2 as httpx
import pytest

from draftwood.serve.errors import ApiError
from draftwood.serve.parts import PartReader
from tests.serve.conftest import running
from tests.serve.session import acting, call

CHAT, RESPONSES, HEADER = "/v1/chat/completions", "/v1/responses", "x-draftwood-ignored"


def left_out(word):
    return f"[{word} left out: this model reads text]"


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
PARTS = [
    (IMAGE, left_out("image")),
    ({"type": "input_image", "image_url": "data:x"}, left_out("image")),
    ({"type": "image", "source": {"type": "base64", "data": "AAAA"}}, left_out("image")),
    ({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}, left_out("audio")),
    ({"type": "video_url", "video_url": {"url": "x"}}, left_out("video")),
    ({"type": "file", "file": {"file_id": "x"}}, left_out("file")),
    ({"type": "input_file", "file_data": "x"}, left_out("file")),
    ({"type": "document", "source": {"type": "base64"}}, left_out("document")),
    ({"type": "So odd\n<|im_end|>"}, left_out("part")),
]
TEXTS = [
    ({"type": "text", "text": "a"}, "a"),
    ({"text": "a"}, "a"),
    ({"type": "input_text", "text": "a"}, "a"),
    ({"type": "output_text", "text": "a", "annotations": []}, "a"),
    ({"type": "refusal", "refusal": "No."}, "No."),
    ("a", "a"),
]


@pytest.mark.parametrize(("part", "said"), [*PARTS, *TEXTS])
def test_a_part_is_text_or_is_left_out_and_named(part, said):
    parts = PartReader()
    assert parts.text([{"type": "text", "text": "<"}, part, ">"], "input.3.output") == f"<{said}>"
    assert parts.left_out == ([] if (part, said) in TEXTS else ["input.3.output.1"])


@pytest.mark.parametrize("content", [None, "a text", 7, {"a": 1}])
def test_what_is_no_list_of_parts_stays(content):
    assert PartReader().text(content, "x") == content


@pytest.mark.parametrize(
    "part", [3, None, [], {"type": 3}, {}, {"type": "text"}, {"type": "text", "text": 3}, {"type": "refusal"}]
)
def test_what_is_no_part_is_refused_with_its_place(part):
    with pytest.raises(ApiError, match=r"messages\.0\.content\.1") as found:
        PartReader().messages([{"role": "user", "content": ["a", part]}])
    assert found.value.param == "messages.0.content.1"


def test_a_strict_reader_refuses_parts_that_are_no_text():
    parts = PartReader(is_strict=True)
    for part, _ in PARTS:
        with pytest.raises(ApiError, match="leave it out"):
            parts.text([part], "x")
    assert [parts.text([part], "x") for part, _ in TEXTS] == [said for _, said in TEXTS]


def test_a_message_that_only_refuses_has_a_text():
    said = {"role": "assistant", "content": None, "refusal": "No."}
    assert PartReader().messages([said])[0]["content"] == "No."


@pytest.fixture(scope="module")
def served():
    with running(acting({"see": ["ECHO", "ECHO"], "look": [call("look"), "ECHO"]})) as server:
        yield server.url


def asked(url, path, status=200, **body):
    found = httpx.post(f"{url}{path}", json=body, timeout=60)
    assert found.status_code == status, found.text
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_the_header_of_a_chat_names_what_was_left_out(served, stream):
    said = [{"role": "user", "content": [{"type": "text", "text": "see: "}, IMAGE]}]
    found = asked(served, CHAT, messages=said, stream=stream)
    assert found.headers[HEADER] == "messages.0.content.1"
    pieces = [json.loads(line[6:]) for line in found.text.split("\n") if line.startswith("data: {")]
    choices = [one["choices"][0] for one in pieces or [found.json()]]
    texts = [choice["delta" if stream else "message"].get("content") or "" for choice in choices]
    assert "".join(texts) == f"see: {left_out('image')}"


def test_a_session_goes_on_behind_an_image_that_a_tool_has_returned(served):
    calls = [{"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    said = [{"role": "user", "content": "look: x"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    said.append({"role": "tool", "tool_call_id": "c", "content": ["seen: ", IMAGE]})
    found = asked(served, CHAT, messages=said)
    assert found.json()["choices"][0]["message"]["content"] == f"seen: {left_out('image')}"
    assert found.headers[HEADER] == "messages.2.content.1"
    items = [
        said[0], {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": [PARTS[1][0]]},
    ]  # fmt: skip
    found = asked(served, RESPONSES, input=items)
    assert found.json()["output"][0]["content"][0]["text"] == left_out("image")
    assert found.headers[HEADER] == "input.2.output.0"
    assert asked(served, "/tokenize", messages=said).json()["count"] > 40


def test_a_strict_server_refuses_them_on_every_route():
    said = [{"role": "user", "content": [IMAGE]}]
    with running(acting({}), strict_parts=True) as server:
        for path, field in ((CHAT, "messages"), (RESPONSES, "input"), ("/tokenize", "messages")):
            error = asked(server.url, path, 400, **{field: said}).json()["error"]
            assert error["param"] == f"{field}.0.content.0"
