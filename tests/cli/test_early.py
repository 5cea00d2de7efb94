"""What is wrong is told before a model is loaded, and runs without meaning are refused."""

from __future__ import annotations

import sys

import pytest

from draftwood.errors import FileFormatError
from draftwood.files.paths import alone

NOWHERE = "/proc/draftwood"  # a folder in which nobody can make a file, whoever he is


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.txt"
    path.write_text("one two one\n")
    return str(path)


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a folder that nobody can write to")


@linux
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("profile", "-o", f"{NOWHERE}.jsonl"), 2),
        (("simulate", "--live", "--trace", f"{NOWHERE}.jsonl"), 2),
        (("simulate", "--live", "-o", f"{NOWHERE}.jsonl"), 1),
        (("bench", "-o", f"{NOWHERE}.jsonl"), 1),
        (("generate", "x", "-o", f"{NOWHERE}.jsonl"), 1),
        (("generate", "x", "--memory", f"{NOWHERE}.dwm"), 2),
        (("chat", "--memory", f"{NOWHERE}.dwm"), 2),
        (("corpus", "build", ".", "-o", f"{NOWHERE}.dwc"), 2),
    ],
)
def test_places_that_cannot_be_written(unloaded, tiny, arguments, code):
    model = () if arguments[0] == "corpus" else ("-m", tiny)
    said = unloaded(*arguments, *model, code=code)
    assert f"{NOWHERE}." in said
    assert "cannot be written (" in said


@pytest.mark.parametrize("verb", ["profile", "bench", "generate"])
def test_names_that_are_too_long(unloaded, tiny, verb):
    prompt = {"generate": ["x"], "simulate": ["--live"]}.get(verb, [])
    said = unloaded(verb, *prompt, "-m", tiny, "-o", "a" * 250 + ".jsonl", code=2 if verb == "profile" else 1)
    assert "File name too long" in said


@pytest.mark.parametrize("verb", ["bench", "simulate", "generate"])
def test_files_of_something_else(unloaded, tiny, tmp_path, verb):
    path = tmp_path / "thesis.jsonl"
    path.write_text("years of work")
    prompt = {"generate": ["x"], "simulate": ["--live"]}.get(verb, [])
    assert f"was not written by draftwood {verb}" in unloaded(verb, *prompt, "-m", tiny, "-o", str(path))
    assert path.read_text() == "years of work"


@pytest.mark.parametrize(
    "verb",
    [
        ("generate", "-"),
        ("explain", "--live", "-"),
        ("drift", "-"),
        ("bench",),
        ("simulate", "--live"),
        ("drift",),
    ],
)
def test_prompts_that_are_too_long(unloaded, tiny, tmp_path, verb):
    (tmp_path / "long.txt").write_text("x" * 2048)
    own = () if "-" in verb else ("--prompts", str(tmp_path / "long.txt"))
    said = unloaded(*verb, *own, "-m", tiny, stdin=b"x" * 2048)
    assert "has 2048 tokens, the model takes 2048 with its answer: shorten the prompt" in said


@pytest.mark.parametrize("value", ["nan", "-1", "inf"])
def test_temperatures(unloaded, tiny, prompts, value):
    for verb in (("bench", "--prompts", prompts), ("drift", "x"), ("generate", "x")):
        assert "temperature must" in unloaded(*verb, "-m", tiny, "--temperature", value)


def test_settings_of_a_prompt_in_a_file(unloaded, tiny, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "x", "temperature": -3}\n')
    said = unloaded("bench", "--prompts", str(tmp_path / "p.jsonl"), "-m", tiny)
    assert "p.jsonl, line 1: temperature must" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("generate", "x", "--compare", "--drafters", "none"), "--drafters none is plain decoding"),
        (("generate", "x", "--compare", "--planner", "off"), "--planner off never drafts"),
        (("generate", "x", "--compare", "--planner", "fixed:0"), "--planner fixed:0 never drafts"),
        (("generate", "  \t "), "the prompt has nothing but blanks"),
        (("generate", "x", "--prediction", ""), "the prediction is empty"),
        (("generate", "x", "--context", ""), "the context is empty"),
        (("chat", "--prediction", ""), "the prediction is empty"),
        (("explain", "--live", "x", "--planner", "off"), "--planner off never drafts"),
        (("explain", "--live", "x", "--drafters", "none"), "is plain decoding"),
        (("drift", "x", "--drafters", "none"), "is plain decoding"),
        (("drift", "x", "--planner", "off"), "never drafts"),
        (("drift", "x", "--against-dtype", "float32"), "both sides would be computed in float32"),
        (("drift", "x", "--against-dtype", "bfloat16", "--drafters", "suffix"), "without --drafters"),
        (("bench", "--planner", "off"), "never drafts"),
        (("bench", "--draft", "0"), "never drafts"),
        (("bench", "--sustain", "5", "--rounds", "3"), "which --rounds cannot count"),
        (("generate", "x", "--raw", "--system", "y"), "which --raw leaves out"),
        (("generate", "x\udcff"), "the prompt is no UTF-8 text"),
        (("generate", "x", "--context", "\udcff"), "the context is no UTF-8 text"),
        (
            ("generate", "x", "--system", "caf\udce9"),
            "the system message is no UTF-8 text: its bytes look like WIND",
        ),
        (("generate", "x", "--stop", "\ud83d"), "a stop string holds half a character"),
    ],
)
def test_runs_without_meaning(unloaded, tiny, arguments, said):
    assert said in unloaded(*arguments, "-m", tiny)


def test_an_empty_file_is_no_prediction(unloaded, tiny, tmp_path):
    (tmp_path / "empty").write_text("\n")
    said = unloaded("generate", "x", "-m", tiny, "--prediction", f"@{tmp_path / 'empty'}")
    assert "is empty, so nothing can be drafted from it" in said


def test_the_same_number_format_by_another_name(draftwood, tiny):
    ran = draftwood("drift", "x", "-m", tiny, "--against-dtype", "auto", "--max-new-tokens", "4")
    assert ran.code == 2
    assert "both sides would be computed in float32" in ran.err


@linux
def test_a_lock_that_cannot_be_made_is_told_at_once(tmp_path):
    from time import monotonic

    begun = monotonic()
    with (
        pytest.raises(FileFormatError, match="cannot be written"),
        alone(tmp_path.__class__(f"{NOWHERE}.dwm"), 20.0),
    ):
        pass
    assert monotonic() - begun < 10


@pytest.mark.parametrize(
    "verb",
    [
        ("generate", "x"),
        ("chat",),
        ("bench", "--tasks", "chat"),
        ("simulate", "--live"),
        ("drift", "x"),
        ("profile",),
    ],
)
def test_a_device_that_is_not_here(unloaded, tiny, verb):
    import torch

    if torch.cuda.is_available():
        pytest.skip("it is here")
    assert "device 'cuda' is not available here: choose one of cpu" in unloaded(
        *verb, "-m", tiny, "--device", "cuda"
    )
    assert "there are 1 of this kind" in unloaded(*verb, "-m", tiny, "--device", "cpu:3")


def test_the_device_that_is_always_here(draftwood, tiny):
    ran = draftwood("generate", "x", "-m", tiny, "--max-new-tokens", "2", "--device", "cpu")
    assert ran.code == 0
