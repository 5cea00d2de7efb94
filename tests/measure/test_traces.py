"""Traces: any JSONL of prompts and answers, and what is wrong with the ones that are refused."""

from __future__ import annotations

import json

import pytest
from tests.measure.test_records import answer, filled

from draftwood.engines.tokens.fingerprint import tokenizer_fingerprint
from draftwood.errors import RecordError, VocabularyError
from draftwood.measure.records.traces import Trace, read_traces, write_traces


class Words:
    """A tokenizer of three words."""

    WORDS = ("a", "b", "c")

    def __len__(self) -> int:
        return len(self.WORDS)

    def get_vocab(self):
        return {word: i for i, word in enumerate(self.WORDS)}

    def __call__(self, text, add_special_tokens):
        known = [self.WORDS.index(word) for word in text.split() if word in self.WORDS]
        return {"input_ids": [0] * add_special_tokens + known}


class Others(Words):
    WORDS = ("c", "b", "a", "d")


def file(tmp_path, *rows, name="trace.jsonl"):
    path = tmp_path / name
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def test_text_needs_a_tokenizer(tmp_path):
    path = file(tmp_path, {"task": "t", "prompt": "a b", "output": "c c", "turn": 3})
    with pytest.raises(RecordError, match=r"line 1: holds text and no ids: .*--tokenizer"):
        read_traces(path)
    (trace,) = read_traces(path, Words())
    assert (trace.prompt_ids, trace.output_ids) == ([0, 0, 1], [2, 2])


class Chatting(Words):
    chat_template = "words"

    def apply_chat_template(self, messages, **how):
        assert how == {"add_generation_prompt": True, "return_dict": False}
        return [i for message in messages for i in self(message["content"], False)["input_ids"]]


ODD = ("text", [None], [3], ["a"], {"text": "a"}, 7, [{"message": {"content": [{"type": "image"}]}}])
"""What a response may hold as ``choices``."""

MESSAGES = [{"role": "user", "content": "a b"}, {"role": "user", "content": [{"type": "text", "text": "c"}]}]


@pytest.mark.parametrize(("request_body", "response", "prompt"), [
    ({"messages": MESSAGES}, {"choices": [{"message": {"role": "assistant", "content": "b c"}}]}, [0, 1, 2]),
    ({"prompt": "a b", "max_tokens": 9}, {"choices": [{"text": "b c"}, {"text": "a"}]}, [0, 0, 1]),
    ({"prompt": [1, 1], "n_predict": 9}, {"content": "b c", "timings": {}}, [1, 1]),
])  # fmt: skip
def test_bodies_of_requests_and_responses_are_read(tmp_path, request_body, response, prompt):
    path = file(tmp_path, {"time": 1, "request": request_body, "response": response, "task": "t"})
    (trace,) = read_traces(path, Chatting())
    assert (trace.task, trace.prompt_ids, trace.output_ids) == ("t", prompt, [1, 2])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (
            {"request": {"messages": MESSAGES}, "response": {"choices": [{"message": {"tool_calls": []}}]}},
            "its output",
        ),
        ({"request": {"messages": MESSAGES}}, "lacks"),
        ({"request": {"messages": [{"role": "user"}]}, "response": {"content": "a"}}, "message 1 .* no content"),
        ({"prompt": 3, "output": "a"}, "a prompt of int cannot be read"),
        *(
            ({"request": {"prompt": "a"}, "response": {"choices": odd}}, "its output is no text|lacks")
            for odd in ODD
        ),
        (
            {"messages": [{"role": "user", "content": None, "tool_calls": 3}, None], "output": "a"},
            "message 2 is of",
        ),
        ({"prompt": "a", "output": {"tool": 1}}, "its output is no text"),
        ({"prompt": "a", "output": "b", "limit": "64"}, "limit is '64': write a whole number"),
        ({"prompt": "a", "output": "b", "limit": 0}, "limit is 0: write"),
    ],
)
def test_a_log_without_any_text_is_refused_with_its_lines(tmp_path, row, said):
    with pytest.raises(RecordError, match=rf"trace.jsonl, line 1: .*{said}"):
        read_traces(file(tmp_path, row), Chatting())


def test_there_and_back_compressed(tmp_path):
    traces = [Trace("t", "a", [0, 1], [2], 5, "eos"), Trace("u", "b", [1], [1])]
    write_traces(tmp_path / "t.jsonl.zst", traces, {"command": "x"}, Words())
    found = read_traces(tmp_path / "t.jsonl.zst", Words())
    assert found == traces


def test_a_trace_of_another_tokenizer_is_refused(tmp_path):
    write_traces(tmp_path / "t.jsonl", [Trace("t", "a", [0], [1])], {}, Words())
    with pytest.raises(VocabularyError, match="made with another tokenizer"):
        read_traces(tmp_path / "t.jsonl", Others())
    assert tokenizer_fingerprint(Words()) != tokenizer_fingerprint(Others())
    assert len(read_traces(tmp_path / "t.jsonl")) == 1


def test_ids_beyond_the_vocabulary_are_refused_only_where_it_is_known(tmp_path):
    path = file(tmp_path, {"prompt_ids": [1], "output_ids": [2]}, {"prompt_ids": [1], "output_ids": [70000]})
    assert len(read_traces(path)) == 2
    with pytest.raises(VocabularyError, match="line 2: id 70000 is outside the vocabulary of 3 tokens"):
        read_traces(path, Words())


@pytest.mark.parametrize(("row", "said"), [
    ({"prompt_ids": [1]}, "lacks prompt_ids and output_ids"),
    ({"prompt_ids": [], "output_ids": [1]}, "prompt_ids is empty"),
    ({"prompt_ids": [1], "output_ids": []}, "output_ids is empty"),
    ({"prompt_ids": [1], "output_ids": [-1]}, "output_ids is no list of token ids"),
    ({"prompt_ids": [1.5], "output_ids": [1]}, "prompt_ids is no list of token ids"),
    ({"prompt_ids": [True], "output_ids": [1]}, "prompt_ids is no list of token ids"),
    ({"prompt_ids": "12", "output_ids": [1]}, "prompt_ids is no list of token ids"),
    ({"prompt_ids": [1], "output_ids": [1], "limit": "64"}, "limit is '64'"),
])  # fmt: skip
def test_lines_that_cannot_be_used_are_left_out_and_named(tmp_path, row, said, caplog):
    path = file(tmp_path, {"prompt_ids": [1], "output_ids": [2]}, *[row] * 4)
    assert len(read_traces(path)) == 1
    (message,) = caplog.messages
    assert f"trace.jsonl: 4 lines of 5 are left out (lines 2, 3, 4: {said}" in message
    assert "line 5" not in message, "three reasons are enough"


@pytest.mark.parametrize(("row", "said"), [
    ("{", "no JSON"), ('{"a": ' + "[" * 100_000, "JSON that is nested too deeply"),
    ("[" * 100_000 + "]" * 100_000, "JSON that is nested too deeply"), ("[1]", "list instead of an object"),
])  # fmt: skip
def test_what_is_no_json_is_left_out_and_named_by_number(tmp_path, row, said, caplog):
    path = file(tmp_path, {"prompt_ids": [1], "output_ids": [2]}, row, {"prompt_ids": [1], "output_ids": [2]})
    assert len(read_traces(path)) == 2
    assert f"1 lines of 3 are left out (line 2: {said}" in caplog.text


def test_a_file_without_answers_is_refused(tmp_path):
    for rows in ((), ({"row": "header", "format": 1},)):
        with pytest.raises(RecordError, match="holds no recorded answer"):
            read_traces(file(tmp_path, *rows))


def test_rows_of_a_bench_are_a_trace_too_and_plains_answer_counts(tmp_path):
    peer, ours, plain = answer(0, arm="llama.cpp", engine="llama.cpp"), answer(1), answer(2, arm="none")
    empty = answer(3, name="c")
    empty.output_ids, empty.steps = [], []
    path = filled(tmp_path / "rows.jsonl", peer, ours, plain, answer(4), answer(5, name="b"), empty)
    traces = read_traces(path)
    assert [t.name for t in traces] == ["a", "b"]
    assert traces[0].output_ids == plain.output_ids
    (only,) = read_traces(filled(tmp_path / "peer.jsonl", peer))
    assert only.output_ids == peer.output_ids
