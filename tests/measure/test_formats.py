"""Logs and sessions of other programs: what is read of each shape, and what is done with broken ones."""

from __future__ import annotations

import json
import random
from contextlib import suppress

import pytest

from draftwood.cli.main import run
from draftwood.errors import RecordError, UsageError
from draftwood.files import lines
from draftwood.measure.records import conversations
from draftwood.measure.records.formats import FORMATS, SHAPES
from draftwood.measure.records.traces import read_traces


class Letters:
    """A tokenizer of a token per letter whose template says role and text."""

    chat_template = "role>text|"

    def __len__(self):
        return 0x110000

    def __call__(self, text, add_special_tokens=False):
        return {"input_ids": [ord(letter) for letter in text]}

    def apply_chat_template(self, messages, tokenize=True, **how):
        text = "".join(f"{m['role']}>{m['content']}|" for m in messages)
        return self(text)["input_ids"] if tokenize else text


def said(ids):
    return "".join(map(chr, ids))


def answers(path):
    """Prompt and output of each answer, as text."""
    return [(said(t.prompt_ids), said(t.output_ids)) for t in read_traces(path, Letters())]


def written(tmp_path, *rows, name="log"):
    path = tmp_path / name
    text = "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    return path


def messages(*texts, **more):
    return {
        "messages": [{"role": ("user", "assistant")[i % 2], "content": t} for i, t in enumerate(texts)],
        **more,
    }


def claude(number, role, content, parent=None, **more):
    return {
        "parentUuid": parent and f"u{parent}", "uuid": f"u{number}", "isSidechain": False, "type": role,
        "message": {"role": role, "content": content}, **more,
    }  # fmt: skip


CLAUDE = [
    {"type": "summary", "summary": "A fix", "leafUuid": "u5"},
    claude(1, "user", "mend a.py"),
    claude(2, "assistant", [{"type": "thinking", "thinking": "look first", "signature": "x"}], 1),
    claude(3, "assistant", [{"type": "tool_use", "id": "t", "name": "Read", "input": {"path": "a.py"}}], 2),
    {"parentUuid": "u3", "uuid": "u4", "type": "system", "content": "took 3 s"},
    claude(
        5, "user", [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x=1"}]}], 4
    ),
    claude(6, "assistant", [{"type": "text", "text": "x is 1"}], 5),
    claude(7, "assistant", "API Error: 500", 6, isApiErrorMessage=True),
    claude(8, "user", "again", 1),  # the user went back
    claude(9, "assistant", [{"type": "text", "text": "no"}], 8),
]
OF_CLAUDE = [
    ("user>mend a.py|", 'look first\n{"name": "Read", "arguments": {"path": "a.py"}}'),
    ('user>mend a.py|assistant>{"name": "Read", "arguments": {"path": "a.py"}}|tool>x=1|', "x is 1"),
    ("user>mend a.py|user>again|", "no"),
]


def item(**payload):
    return {"timestamp": "2026-01-01T00:00:00Z", "type": "response_item", "payload": payload}


CODEX = [
    {"type": "session_meta", "payload": {"id": "1", "cwd": "/src", "cli_version": "0.77.0"}},
    item(type="message", role="user", content=[{"type": "input_text", "text": "list"}]),
    {"type": "event_msg", "payload": {"type": "user_message", "message": "list"}},
    {"type": "turn_context", "payload": {"model": "gpt-5"}},
    item(type="reasoning", summary=[], encrypted_content="gAAA"),
    item(type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="c"),
    item(type="function_call_output", call_id="c", output="a.py"),
    item(type="custom_tool_call", name="apply_patch", input="*** Begin", call_id="d"),
    item(type="custom_tool_call_output", call_id="d", output={"content": "done"}),
    item(type="message", role="assistant", content=[{"type": "output_text", "text": "One file."}]),
]
LISTED = 'assistant>{"name": "shell", "arguments": {"command":["ls"]}}|tool>a.py|'
PATCHED = '{"name": "apply_patch", "arguments": "*** Begin"}'
OF_CODEX = [
    ("user>list|", '{"name": "shell", "arguments": {"command":["ls"]}}'),
    (f"user>list|{LISTED}", PATCHED),
    (f"user>list|{LISTED}assistant>{PATCHED}|tool>done|", "One file."),
]

CHAT = {"id": "1", "title": "t", "chat": {"title": "t", "history": {"currentId": "d", "messages": {
    "a": {"id": "a", "parentId": None, "role": "user", "content": "hi", "childrenIds": ["b", "c"]},
    "b": {"id": "b", "parentId": "a", "role": "assistant", "content": "hello"},
    "c": {"id": "c", "parentId": "a", "role": "assistant",
          "content": '<details type="reasoning" done="true">\n> hm\n</details>\nhey'},
    "d": {"id": "d", "parentId": "c", "role": "user", "content": "bye"},
    "e": {"id": "e", "parentId": "d", "role": "assistant", "content": ""},
}}}}  # fmt: skip
OF_CHAT = [("user>hi|", "hello"), ("user>hi|", "hey")]

VLLM = [
    "INFO 11-28 10:00:00 [api_server.py:1] vLLM API server version 0.11.0",
    "(APIServer pid=1) INFO 11-28 10:00:01 [logger.py:39] Received request cmpl-1-0: prompt: 'a\\nb', params: "
    "SamplingParams(n=1), prompt_token_ids: [1], prompt_embeds shape: None, lora_request: None.",
    '(APIServer pid=1) DEBUG 11-28 10:00:01 [logger.py:45] Request chatcmpl-2 details: prompt: "don\'t", '
    "prompt_token_ids: None, prompt_embeds shape: None.",
    "INFO 11-28 10:00:02 [loggers.py:1] Engine 000: Avg generation throughput: 7.0 tokens/s",
    "INFO 11-28 10:00:02 [logger.py:92] Generated response cmpl-1: output: 'c', output_token_ids: [3], "
    "finish_reason: stop",
    "\x1b[32mINFO\x1b[0m 11-28 [logger.py:92] Generated response chatcmpl-2 (streaming delta): output: 'sto', x",
    "INFO 11-28 [logger.py:92] Generated response chatcmpl-2 (streaming delta): output: 'p', finish_reason: None",
    "INFO 11-28 [logger.py:92] Generated response chatcmpl-2 (streaming complete): output: "
    "'<streaming_complete: 2 tokens>', output_token_ids: None, finish_reason: streaming_complete",
]

BODY = json.dumps(messages("hi"))


def piece(name, **delta):
    made = {"id": name, "choices": [{"index": 0, "delta": delta}]}
    return f"0.1.2 D srv    operator(): http: streamed chunk: data: {json.dumps(made)}"


LLAMA = [
    "build: 7000 (abc) with gcc", "llama_model_loader: loaded meta data", piece("old", content="torn"),
    "srv  log_server_r: request: POST /v1/chat/completions 127.0.0.1 200",
    f"srv  log_server_r: request:  {BODY}",
    'srv  log_server_r: response: {"choices":[{"message":{"role":"assistant","content":"yes"}}]}',
    "0.00.1 D srv  log_server_r: request:  ", "0.00.1 D srv  log_server_r: response: {}",
    '0.00.1 D srv  log_server_r: request:  {"prompt": "a", "stream": true}',
    "0.00.1 D srv  log_server_r: response: ", piece("new", role="assistant", content=None),
    piece("new", reasoning_content="hm "), piece("new", content="so"), "", "data: [DONE]",
    "srv  update_slots: all slots are idle",
]  # fmt: skip


@pytest.mark.parametrize(("rows", "expected"), [
    ([messages("a", "b", "c", "d")], [("user>a|", "b"), ("user>a|assistant>b|user>c|", "d")]),
    ([{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}]}]}],
     [("user>a|", '{"name": "f", "arguments": {"x": 1}}')]),
    ([messages("a", "b", output="c")], [("user>a|assistant>b|", "c")]),
    ([{"prompt": "a", "completion": "b"}], [("a", "b")]),
    (CLAUDE, OF_CLAUDE), (CODEX, OF_CODEX),
    ([row["payload"] for row in CODEX if row["type"] == "response_item"], OF_CODEX),
    ([[CHAT]], OF_CHAT), ([CHAT], OF_CHAT), ([json.dumps([CHAT, CHAT], indent=2)], OF_CHAT * 2),
    (VLLM, [("a\nb", "c"), ("don't", "stop")]), (LLAMA, [("user>hi|", "yes"), ("a", "hm so")]),
], ids=[
    "openai", "calls", "ours", "completion", "claude", "codex", "old codex", "chats", "chat", "indented", "vllm",
    "llama.cpp",
])  # fmt: skip
def test_every_shape_is_read(tmp_path, rows, expected, caplog):
    path = written(tmp_path, *rows)
    assert answers(path) == expected
    assert caplog.messages == []
    assert [len(t.name) > 0 and t.task for t in read_traces(path, Letters())] == ["log"] * len(expected)


def test_a_folder_is_one_task_and_what_goes_on_in_another_file_counts_once(tmp_path, caplog):
    written(tmp_path, *CLAUDE, name="all/p/1.jsonl")
    more = claude(11, "assistant", [{"type": "text", "text": "fine"}], 10)
    written(tmp_path, *CLAUDE, claude(10, "user", "and now?", 6), more, name="all/p/2.jsonl")
    written(tmp_path, *CODEX, name="all/rollout-1.jsonl")
    written(tmp_path, messages("secret", "x"), name="all/.hidden/3.jsonl")
    (tmp_path / "all" / "a.png").write_bytes(b"\x89PNG\0\0\n\0\n")
    written(tmp_path, '{"version": 1,', '"entries": 3}', name="all/index.json")
    found = read_traces(tmp_path / "all", Letters())
    assert {t.task for t in found} == {"all"}
    outputs = [said(t.output_ids) for t in found]
    assert sorted(outputs) == sorted([out for _, out in OF_CLAUDE + OF_CODEX] + ["fine"])
    (told,) = caplog.messages
    assert "a.png" in told or "index.json" in told


def test_broken_lines_are_counted_and_the_rest_is_read(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST", 1 << 12)
    good = json.dumps(CODEX[1]), json.dumps(CODEX[-1])
    torn = json.dumps(CODEX[0])[:40]
    latin = '{"type": "response_item", "payload": "\udce9"}'
    path = written(tmp_path, torn, "", good[0], latin, "[1]", "{" * 3000, "x" * 9000, good[1], good[1][:70])
    assert answers(path) == [("user>list|", "One file.")]
    assert any("a line of more than 4,096 characters: it is left out" in told for told in caplog.messages)
    assert "5 lines of 6 are left out (line 1: no JSON" in caplog.messages[-1]
    assert "line 4: is no UTF-8 text" in caplog.messages[-1]


@pytest.mark.parametrize(("rows", "said"), [
    ([], "holds no recorded answer: simulate takes"), (["hello", "world"], "line 1: no JSON .*; simulate takes"),
    ([{"a": 1}], "lacks .*; simulate takes"), (["[", "{}", "]"], "holds no chats: simulate takes"),
    (['[{"chat": {"history"'], "no JSON"), (["[" * 100_000], "no JSON|nested too deeply"),
    (["\xff\xfe".encode("latin-1").decode("utf-8", "surrogateescape")], "no UTF-8 text.*; simulate takes"),
    ([messages("a")], "simulate takes"), (CLAUDE[:2], "simulate takes"),
    ([VLLM[0], VLLM[4]], "log of vLLM holds no prompts: start it with"),
    (VLLM[:3], "log of vLLM holds no answers: .*--enable-log-outputs"),
    ([VLLM[0], "INFO [logger.py:1] Received request a: params: SamplingParams(n=1)."], "no prompts"),
    (LLAMA[:4], "log of llama.cpp holds no answers: .* -v"),
])  # fmt: skip
def test_a_refusal_says_what_is_taken_or_what_to_do(tmp_path, rows, said):
    with pytest.raises((RecordError, UsageError), match=said):
        read_traces(written(tmp_path, *rows), Letters())


def test_the_shapes_are_those_of_the_table():
    assert all(kind.told and kind.told in SHAPES for kind in FORMATS)


ODD = (
    None,
    3,
    True,
    "text",
    [],
    {},
    [None],
    [3],
    {"a": 1},
    [{"type": "text", "text": 3}],
    [{"type": "tool_result"}],
    "\ud800",
)


def spoiled(value, chance):
    """The same JSON with one value somewhere replaced."""
    places = []

    def visit(node):
        if isinstance(node, dict | list):
            places.extend((node, key) for key in (node if isinstance(node, dict) else range(len(node))))
            for child in node.values() if isinstance(node, dict) else node:
                visit(child)

    value = json.loads(json.dumps(value))
    visit(value)
    node, key = chance.choice(places)
    node[key] = chance.choice(ODD)
    return value


@pytest.mark.parametrize(
    "rows", [CLAUDE, CODEX, [[CHAT]], [messages("a", "b")]], ids=["claude", "codex", "chats", "openai"]
)
def test_no_value_of_another_type_stops_the_reading(tmp_path, rows):
    for seed in range(120):
        path = written(tmp_path, *spoiled(rows, random.Random(seed)))
        with suppress(RecordError, UsageError):
            assert all(prompt and output for prompt, output in answers(path))


@pytest.mark.parametrize("text", ["\n".join(LLAMA), "\n".join(VLLM)], ids=["llama.cpp", "vllm"])
def test_a_log_that_is_cut_anywhere_is_read_as_far_as_it_goes(tmp_path, text):
    for end in range(0, len(text), 7):
        with suppress(RecordError, UsageError):
            answers(written(tmp_path, text[:end]))


def test_sessions_with_long_prompts_are_thinned_out(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(conversations, "MOST", 2000)
    found = answers(written(tmp_path, messages(*["x" * 10] * 40)))
    assert 0 < len(found) < 20
    assert f"{len(found)} answers of 20 are taken, evenly spread" in caplog.text


@pytest.mark.parametrize(("output", "arguments", "word"), [
    ([1, 2, 3] * 30, (), "Yes: "), (list(range(100, 190)), (), "Hardly: "),
    ([1, 2, 3] * 30, ("--cost", "1=10,64=11"), "Yes: by these costs such answers are written "),
])  # fmt: skip
def test_the_last_line_answers_whether_it_would_help(tmp_path, capsys, output, arguments, word):
    path = written(tmp_path, {"prompt_ids": [1, 2, 3] * 3, "output_ids": output})
    assert run(["simulate", str(path), *arguments]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"Would it help you? {word}")
    assert run(["simulate", str(path), *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"].startswith("Would it help you?")
