"""Prompts go through the model's chat template where it has one, unless --raw is given; which is said."""

import io
import json

import pytest

from draftwood.cli.given import SourceFlags
from draftwood.cli.prompt import read_prompt, read_system
from draftwood.measure.prompt_files import read_prompts
from draftwood.measure.records.records import read_records

SAID = "using the model's chat template; --raw continues the text instead\n"
SHORT = ("--max-new-tokens", "3", "--threads", "1")


def tokens(ran):
    assert ran.err == ""
    return ran.document["prompt_tokens"]


def test_generate_takes_the_template_and_says_so_once_unless_the_user_chose(draftwood, tiny, tmp_path):
    call = ("generate", "hello", "-m", tiny, *SHORT)
    found = [draftwood(*call, "--json", *flag).document for flag in ([], ["--chat"], ["--raw"])]
    assert [(one["prompt_tokens"], one["chat"]) for one in found] == [(8, True), (8, True), (5, False)]
    assert tokens(draftwood(*call, "--system", "be nice", "--json")) == 5 + 3 + 7 + 2
    assert draftwood(*call).err.count(SAID) == draftwood(*call, terminal=True).err.count(SAID) == 1
    assert not any(SAID in draftwood(*call, chosen).err for chosen in ("--chat", "--raw"))
    file = tmp_path / "prompt.txt"
    file.write_text("hello\n")
    for prompt, stdin in ((f"@{file}", b""), ("-", b"hello\n")):
        assert tokens(draftwood("generate", prompt, "-m", tiny, *SHORT, "--json", stdin=stdin)) == 5 + 3


@pytest.mark.parametrize(
    ("ends", "left"), [("", ""), ("\n", ""), ("\r\n", ""), ("\n\n", "\n"), (" \n", " "), ("\r", "\r")]
)
def test_of_a_file_one_line_end_at_its_end_is_left_out_everywhere(tmp_path, monkeypatch, ends, left):
    file, raw = tmp_path / "text", f"  one\r\ntwo{ends}".encode()
    file.write_bytes(raw)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(raw)))
    at = f"@{file}"
    given = SourceFlags(prediction=[at], context=[at]).sources
    read = [read_prompt(at), read_prompt("-"), read_system(at), *given["prediction"], *given["context"]]
    assert read == [f"  one\r\ntwo{left}"] * 5
    (job,) = read_prompts(file)
    assert job.prompt.rstrip() == "  one\r\ntwo"


def test_a_model_without_a_template_continues_silently(draftwood, tiny_without_template):
    call = ("generate", "hello", "-m", tiny_without_template, *SHORT)
    assert tokens(draftwood(*call, "--json")) == 5
    assert SAID not in draftwood(*call).err
    refused = draftwood(*call, "--system", "be nice", code=2)
    assert "no chat template" in refused.err


def test_explain_explains_an_answer_and_not_a_continuation(draftwood, tiny):
    call = ("explain", "--live", "hello", "-m", tiny, *SHORT)
    ran = draftwood(*call)
    assert SAID in ran.err
    context = draftwood(*call, "--json").document["steps"][0]["context"]
    assert context == draftwood(*call, "--json", "--raw").document["steps"][0]["context"] + 3


def test_prompts_of_text_files(draftwood, tiny, tmp_path):
    prompts, rows = tmp_path / "mine.jsonl", tmp_path / "rows.jsonl"
    messages = [{"role": "user", "content": "hello"}]
    prompts.write_text("".join(json.dumps(one) + "\n" for one in ({"prompt": "hello"}, {"messages": messages})))
    flags = ("--prompts", prompts, "-m", tiny, *SHORT, "-o", rows)
    ran = draftwood("bench", *flags)
    assert ran.err.count(SAID) == 1
    text, chat = [a.prompt_ids for a in read_records(rows).answers if a.round == 0 and a.arm != "none"]
    assert text == chat
    mixed = draftwood("bench", *flags, "--raw", code=2)
    assert "holds another prompt named" in mixed.err
