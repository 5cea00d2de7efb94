"""``draftwood generate`` on a tiny random model."""

import re
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from draftwood.api.generation import Generation
from draftwood.cli.given import Given, Loaded
from draftwood.cli.opening import Opening
from draftwood.cli.prompt import only
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import PromptError
from draftwood.step import SourceStep, Step
from draftwood.testing import ToyTarget
from tests.cli.conftest import Terminal

ESCAPE = "\x1b["
PROMPT = "abcabcabcabc"


def flags(model, tokens=40):
    return ["--raw", "--model", model, "--max-new-tokens", str(tokens)]


@pytest.fixture
def generate(draftwood, tiny):
    """Answer the prompt on the tiny model, with further arguments."""
    return lambda *more, **how: draftwood("generate", PROMPT, *flags(tiny), *more, **how)


def test_a_pipe_gets_the_text_and_nothing_else(generate):
    ran = generate()
    document = generate("--json").document
    assert ran.out == document["text"].removesuffix("\n") + "\n"
    assert ESCAPE not in ran.out + ran.err
    assert re.search(r"written by the model \d+ %\n", ran.err)
    assert "40 tokens · " in ran.err
    assert "tokens per pass" in ran.err


def test_a_terminal_gets_colours_and_everything_on_one_stream(generate):
    ran = generate(terminal=True)
    assert ESCAPE in ran.out
    assert "■ written by the model" in ran.out
    assert "acceptance rate" in ran.out
    plain = generate().out
    assert plain in re.sub(r"\x1b\[[0-9;]*m", "", ran.out)


def test_json_is_one_document(generate):
    ran = generate("--json", "--seed", "5")
    found = ran.document
    assert ran.err == ""
    assert len(found["ids"]) == len(found["sources"]) == 40
    assert 1 + sum(len(step["emitted"]) for step in found["steps"]) == 40
    assert (found["identical"], found["speedup"]) == (None, None)
    assert (found["seed"], found["finish_reason"], found["prompt_tokens"]) == (5, "length", len(PROMPT))
    assert found["mean_acceptance_length"] >= 1
    for name in ("acceptance_rate", "draft_coverage", "tokens_per_second", "model", "drafters", "planner", "text"):
        assert name in found


@pytest.mark.parametrize("sampling", [[], ["--temperature", "0.8", "--top-p", "0.9"]])
def test_compare(generate, sampling):
    ran = generate(*sampling, "--compare", "--json", "--rounds", "3")
    found = ran.document
    assert ran.err == ""
    assert found["identical"] is True
    assert found["rounds"] in (3, 4)  # one more where the times cannot be
    assert found["speedup"] == pytest.approx(found["plain_seconds"] / found["drafted_seconds"])


def test_stop_ends_the_text(generate):
    whole = generate().out
    assert generate("--stop", whole[10:13], "--stop", "never").out == whole[: whole.index(whole[10:13])] + "\n"


def test_prompts_from_files_and_standard_input(generate, draftwood, tiny, tmp_path):
    file = tmp_path / "prompt.txt"
    file.write_bytes(b"\xef\xbb\xbf" + PROMPT.encode() + b"\r\n")
    expected = generate().out
    assert draftwood("generate", f"@{file}", *flags(tiny)).out == expected
    for given in (["-"], [], ["-p", "-"]):
        assert draftwood("generate", *given, *flags(tiny), stdin=PROMPT.encode() + b"\n").out == expected
    for given in (["-p", PROMPT], ["--prompt", f"@{file}"], ["-f", file]):
        assert draftwood("generate", *given, *flags(tiny)).out == expected


@pytest.mark.parametrize(("is_chat", "expected"), [(True, (4096, 0.7)), (False, (4096, 0.0))])
def test_answers_are_whole_and_chats_are_sampled_unless_the_model_says_otherwise(tiny_gguf, is_chat, expected):
    target, given = CpuTarget(tiny_gguf(), threads=1), Given()
    plain = Loaded(given, target, None, [])
    found = plain.to_the_end(is_chat=is_chat)
    assert (found.settings["max_new_tokens"], found.settings["temperature"]) == expected
    assert (plain.settings["max_new_tokens"], plain.settings["temperature"]) == (None, None)
    vars(target)["generation_config"] = SimpleNamespace(temperature=0.3, do_sample=True, max_new_tokens=9)
    found = plain.to_the_end(is_chat=is_chat).request([1, 2])
    assert (found.limit, found.sampling.temperature) == (9, 0.3)
    found = Loaded(replace(given, max_new_tokens=5, temperature=0.0), target, None, []).to_the_end(is_chat=is_chat)
    assert (found.settings["max_new_tokens"], found.settings["temperature"]) == (5, 0)


def test_a_session_begins_with_a_line_that_says_what_one_wants_to_know(draftwood, tiny, tiny_gguf, monkeypatch):
    monkeypatch.setattr("draftwood.local.memory_speed.remembered", lambda _: 3_000_000_000)
    call = ("generate", PROMPT, "--raw", "-n", "2", "--threads", "1", "-m", tiny_gguf())
    said = draftwood(*call, terminal=True).err
    assert re.search(
        r"cpu \([\w-]+, 1 thread\), memory 3.0 GB/s, at best \d+ tokens/s undrafted, context [\d,]+, "
        "drafts from ngram, temperature 0\n", said,
    )  # fmt: skip
    assert "drafts from" not in draftwood(*call).err
    assert "drafts from" not in draftwood(*call, "--quiet", terminal=True).err
    monkeypatch.setattr("draftwood.local.memory_speed.remembered", lambda _: None)
    assert "before draftwood info MODEL, context" in draftwood(*call, terminal=True).err
    said = str(Opening("cpu", "avx512", 64, 10**11, 10**8, 10**6, ["ngram"] * 40, 0.7))
    assert (len(said), said[-1]) == (159, "…")


def test_what_cuts_an_answer_is_said(generate, draftwood, interrupt, tiny):
    assert "\ncut after 40 tokens: -n N allows N tokens" in generate().err
    assert "by a stop string" in generate("--stop", generate().out[10:13]).err
    assert generate("--quiet").err == ""
    full = draftwood("generate", "a" * 2040, *flags(tiny))
    assert "cut after 8 tokens: the context of 2,048 tokens is full" in full.err
    interrupt(4)
    assert re.search(r"\nstopped by Ctrl-C after \d+ tokens", generate(code=130).err)


def test_one_prompt_is_needed(refused, monkeypatch):
    assert "give some text" in refused("generate")
    assert "several prompts" in refused("generate", "a", "-p", "b")
    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(PromptError, match="there is no prompt"):
        only(None, None, None)


def test_spellings_of_llama_cpp(draftwood, tiny):
    own = ["--max-new-tokens", "9", "--temperature", "0.8", "--seed", "4", "--repetition-penalty", "1.1"]
    theirs = ["-n", "9", "--temp", "0.8", "-s", "4", "--repeat-penalty", "1.1", "-c", "100", "-q"]
    call = ("generate", "-p", PROMPT, "--raw", "-m", tiny, "--engine", "transformers")
    assert draftwood(*call, *theirs[:-3], "-q").err == ""
    assert draftwood(*call, *own).out == draftwood(*call, *theirs[:-3]).out


def test_a_context_bounds_a_text_with_its_answer(draftwood, refused, tiny_gguf, tiny):
    call = ("generate", PROMPT, "--raw", "-m", tiny_gguf(), "--json", "-n", "-1")
    for size in (30, 1000):
        found = draftwood(*call, "-c", size).document
        assert found["prompt_tokens"] + len(found["ids"]) == size
    assert "--ctx-size is for" in refused("generate", "a", "-m", tiny, "--engine", "transformers", "-c", 9)
    assert "give at least 1, or -1" in refused("generate", "a", "-n", 0)


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe\x00", b"a\0b"])
def test_files_without_text_are_refused(refused, tmp_path, content):
    file = tmp_path / "prompt.txt"
    file.write_bytes(content)
    for said in (refused("generate", f"@{file}"), refused("generate", "-", stdin=content)):
        assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [[], ["--compare"]])
def test_ctrl_c_keeps_what_was_produced(generate, interrupt, arguments):
    whole = generate().out
    interrupt(12)
    ran = generate(*arguments, code=130)
    text = ran.out.removesuffix("\n")
    assert 0 < len(text) < 40
    assert whole.startswith(text)
    assert "tokens per pass" in ran.err


def test_control_characters_of_a_model_do_not_reach_the_terminal(monkeypatch):
    from draftwood.api.text import Piece
    from draftwood.cli.answering import AnswerWriter
    from tests.cli.conftest import Terminal

    out = Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setenv("NO_COLOR", "1")
    writer = AnswerWriter(["ngram"])
    writer.piece(Piece("a\x1b[2Jb\tc\r\x7f\x9b", "ngram"))
    writer.end("a\x1b[2Jb\tc\r\x7f\x9b")
    assert out.getvalue() == "a␛[2Jb\tc␍␡\ufffd\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT to another process")
def test_sigint_in_a_process_of_its_own(tiny):
    listening = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    command = [sys.executable, "-m", "draftwood", "generate", PROMPT, *flags(tiny, 2000), "--drafters", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        signal.signal(signal.SIGINT, listening)
        begun = child.stdout.read(5)
        child.send_signal(signal.SIGINT)
        rest, err = child.communicate(timeout=120)
    assert child.returncode == 130
    assert 5 <= len(begun + rest) < 2000
    assert rest.endswith(b"\n")
    assert b"tokens per pass" in err
    assert b"Traceback" not in err


LOSSY = ("--drafters", "ngram", "--planner", "fixed:8", "--rule", "top-k:k=99")


def test_a_lossy_rule_is_said(generate):
    plain = generate("--json").document
    assert (plain["rule"], plain["lossy"]) == ("exact", False)
    found = generate(*LOSSY, "--json").document
    assert (found["rule"], found["lossy"]) == ("top-k:k=99", True)
    assert found["ids"] != plain["ids"]
    said = "lossy: by the rule top-k:k=99 this text may differ from that of plain decoding"
    assert generate(*LOSSY).err.count(said) == 1
    compared = generate(*LOSSY, "--compare").err
    assert "changed by the lossy rule top-k:k=99 from token" in compared.replace("\n", " ")
    assert "NOT identical" not in compared


SCHEMA = '{"type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"], "additionalProperties": false}'


def test_an_answer_is_held_to_a_form(draftwood, tiny, tmp_path):
    (tmp_path / "schema.json").write_text(SCHEMA)
    for form, text in (
        (["--json-schema", SCHEMA], '{"a": 1}'),
        (["--json-schema", f"@{tmp_path / 'schema.json'}"], '{"a": 1}'),
        (["--regex", "abc"], "abc"),
        (["--grammar", 'start: "abc"'], "abc"),
    ):
        found = draftwood("generate", "hello", "--model", tiny, *form, "--json").document
        assert found["text"].replace(" ", "") == text.replace(" ", "")


def test_where_a_head_would_pay_it_is_said_how_one_is_made(draftwood, tiny, tiny_gguf, monkeypatch):
    given = SimpleNamespace(model="my model.gguf", drafters="default")
    cpu, toy = CpuTarget(tiny_gguf("llama", "F32"), threads=1), ToyTarget()

    def said(speedup=None, *, model=cpu, drafters="default", seconds=0.02, passes=32, emitted=(1,), asked=4):
        given.drafters = drafters
        source = SourceStep(asked=asked)
        steps = [Step(i, i, emitted, score_s=seconds, by_source=(source,)) for i in range(passes)]
        return Loaded(given, model, None, []).head_note(Generation(steps=steps), speedup)

    told = "(draftwood train head 'my model.gguf' -o head.safetensors)"
    for alike in ({}, {"speedup": 1.1}, {"speedup": 1.0, "emitted": (1, 2)}, {"drafters": "ngram"}):
        assert said(**alike).endswith(told)
    for little in ({"speedup": 1.2}, {"emitted": (1, 2)}, {"seconds": 0.002}, {"passes": 31}, {"asked": 0}):
        assert not said(**little)
    assert not said(drafters="ngram+head:file=mine"), "who has one knows how"
    assert not said(model=toy), "it can have none"
    monkeypatch.setattr(Loaded, "head_note", lambda *_: "make one")
    assert draftwood("generate", "hi", "--model", tiny, "--max-new-tokens", "4").err.count("make one\n") == 1
    assert draftwood("chat", "-m", tiny, "-n", "4", stdin=b"hi\nyes\n").err.count("make one\n") == 1
