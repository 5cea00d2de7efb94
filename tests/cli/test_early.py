"""What is wrong is told before a model is loaded, and runs without meaning are refused."""

import sys
from time import monotonic

import pytest

from draftwood.errors import FileFormatError
from draftwood.files.paths import alone

NOWHERE = "/proc/draftwood"  # a folder in which nobody can make a file, whoever he is
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a folder that nobody can write to")
PLAIN = "is plain decoding"
WRONG = [
    # Words that are no names.
    ("generate x --model smolm2", "did you mean 'smollm2'"),
    ("generate x --drafters ngran", "did you mean 'ngram'"),
    ("generate x --drafters ngram,lookup", "one set of drafters"),
    ("generate x --planner fixd:3", "did you mean 'fixed'"),
    ("generate x --rule treshold", "did you mean 'threshold'"),
    ("drift --tasks chatt", "did you mean 'chat'"),
    ("drift x --drafters ngran", "did you mean 'ngram'"),
    ("drift x --planner fixd:3", "did you mean 'fixed'"),
    ("drift x --rule treshold", "did you mean 'threshold'"),
    ("profile --model smolm2", "did you mean 'smollm2'"),
    ("bench --tasks chess", "unknown task 'chess'"),
    ("bench --drafters ngran", "did you mean 'ngram'"),
    ("bench --peers vllm", "unknown peer 'vllm'"),
    ("bench --peers transformers:assistant=smolm2", "did you mean 'smollm2'"),
    ("bench --planner clever", "unknown planner"),
    ("simulate --live --tasks chess", "unknown task 'chess'"),
    ("explain --live x --planner nobody", "unknown planner"),
    ("serve --drafters nonsense", "nonsense"),
    ("serve --planner nonsense", "nonsense"),
    # Values that cannot be.
    ("generate x --temperature -1", "temperature must"),
    ("generate x --temperature nan", "temperature must"),
    ("drift x --temperature inf", "temperature must"),
    ("bench --temperature nan", "temperature must"),
    ("generate x --repetition-penalty 0", "repetition_penalty must"),
    ("generate x --drafters jacobi:block=0 --show-iterations", "block must lie between"),
    ("generate x --drafters jacobi:start=nowhere --show-iterations", "start must be one of"),
    ("generate x --regex (", "cannot be used"),
    ("generate x --json-schema {", "no JSON"),
    ("generate x --max-new-tokens 0", "--max-new-tokens"),
    ("drift x --rule threshold:tau=2", "tau must lie in"),
    ("profile --sizes 1,x", "--sizes '1,x' is no list"),
    ("profile --contexts ,", "--contexts ',' is no list"),
    ("profile --rounds 0", "--rounds"),
    ("bench --rounds 0", "Invalid value for '--rounds'"),
    ("serve --host not.a.host", "cannot listen"),
    ("serve --port 99999", "port"),
    # Things that do not go together, or mean nothing.
    ("generate x --compare --drafters none", PLAIN),
    ("generate x --compare --planner off", "--planner off never drafts"),
    ("generate x --compare --planner fixed:0", "--planner fixed:0 never drafts"),
    ("explain --live x --planner off", "--planner off never drafts"),
    ("explain --live x --drafters none", PLAIN),
    ("drift x --drafters none", PLAIN),
    ("drift x --planner off", "never drafts"),
    ("bench --planner off", "never drafts"),
    ("bench --planner fixed:0", "never drafts"),
    ("bench --sustain 5 --rounds 3", "which --rounds cannot count"),
    ("bench --tasks chat --raw", "tasks say it themselves"),
    ("bench --tasks chat --prompts x.jsonl", "give one of them"),
    ("generate x --raw --system y", "which --raw leaves out"),
    ("generate x --rounds 3", "give --compare"),
    ("generate x --compare -o rows.jsonl", "draftwood bench keeps them all"),
    ("generate x --regex a --grammar b", "one of them"),
    ("generate x --show-iterations", "give --drafters jacobi"),
    ("generate x --show-iterations --drafters ngram+lookup", "give --drafters jacobi"),
    ("generate x --show-iterations --drafters jacobi --json", "leave out --compare and --json"),
    ("generate x --show-iterations --drafters jacobi --compare", "leave out --compare and --json"),
    ("drift x --tasks chat", "exclude each other"),
    ("simulate", "give one of them"),
    ("simulate x.jsonl --live", "give one of them"),
    ("simulate --live --ngram-min 5 --ngram-max 4", "--ngram-min 5 is above --ngram-max 4"),
    ("simulate --live --tasks chat --prompts x", "give one of them"),
    ("simulate --live --tokenizer x", "--tokenizer is for recorded answers: leave it out"),
    ("simulate x.jsonl --tasks chat", "--tasks is for --live: leave it out"),
    ("simulate x.jsonl -m smollm2", "--model is for --live: leave it out"),
    ("explain", "give one of them"),
    ("explain rows --live x", "unexpected extra argument"),
    ("explain rows --temperature 1", "--temperature is for an answer written now"),
    ("explain rows -m x", "--model is for an answer written now"),
    ("explain --live x --answer 1", "leave it out with --live"),
    ("explain --live x --raw --system y", "--raw leaves out"),
    ("serve --prediction x", "clients of a server send their own"),
    ("serve --api-key one --api-key=", "an API key is empty"),
    # Texts that are none, and files that are not there.
    ("generate \t", "the prompt has nothing but blanks"),
    ("generate @", "(no name)"),
    ("generate @nowhere.txt", "nowhere.txt cannot be read"),
    ("explain --live", "standard input is empty"),
    ("generate x --prediction=", "the prediction is empty"),
    ("generate x --context=", "the context is empty"),
    ("chat --prediction=", "the prediction is empty"),
    ("generate x --stop=", "a stop string is empty"),
    ("generate x\udcff", "the prompt is no UTF-8 text"),
    ("generate x --context \udcff", "the context is no UTF-8 text"),
    ("generate x --system caf\udce9", "the system message is no UTF-8 text: its bytes look like WIND"),
    ("generate x --stop \ud83d", "a stop string holds half a character"),
    ("generate x --json-schema @nowhere.json", "nowhere.json"),
    ("drift --prompts nowhere.jsonl", "nowhere.jsonl cannot be read"),
    ("bench --prompts nowhere.jsonl", "nowhere.jsonl cannot be read"),
    ("explain missing.jsonl", "cannot be read"),
    ("serve --corpus /nowhere/at/all", "nowhere"),
    ("profile -o .", "is a folder"),
]


@pytest.mark.parametrize(("line", "said"), WRONG, ids=[ascii(line) for line, _ in WRONG])
def test_what_is_wrong_is_told_before_a_model_is_loaded(unloaded, line, said):
    assert said in unloaded(*line.split(" "))


@linux
@pytest.mark.parametrize(
    "line",
    [
        "profile -o {}.jsonl", "simulate --live --trace {}.jsonl", "bench -o {}.jsonl", "generate x -o {}.jsonl",
        "generate x --memory {}.dwm", "chat --memory {}.dwm", "corpus build . -o {}.dwc",
    ],
)  # fmt: skip
def test_places_that_cannot_be_written(unloaded, line):
    said = unloaded(*line.format(NOWHERE).split())
    assert f"{NOWHERE}." in said
    assert "cannot be written (" in said


@pytest.mark.parametrize("verb", ["profile", "bench", "generate x"])
def test_names_that_are_too_long(unloaded, verb):
    assert "File name too long" in unloaded(*verb.split(), "-o", "a" * 250 + ".jsonl")


@pytest.mark.parametrize("verb", ["bench", "generate x"])
def test_files_of_something_else(unloaded, tmp_path, verb):
    path = tmp_path / "thesis.jsonl"
    path.write_text("years of work")
    name, *more = verb.split()
    assert f"was not written by draftwood {name}" in unloaded(name, *more, "-o", path)
    assert path.read_text() == "years of work"


@pytest.mark.parametrize("verb", ["generate -", "explain --live -", "bench", "simulate --live", "drift"])
def test_prompts_that_are_too_long(draftwood, tiny, tmp_path, verb):
    (tmp_path / "long.txt").write_text("x" * 2048)
    own = () if verb.endswith("-") else ("--prompts", tmp_path / "long.txt")
    ran = draftwood(*verb.split(), *own, "-m", tiny, "--raw", stdin=b"x" * 2048, code=2)
    assert ran.out.strip() == ""
    assert "has 2048 tokens, the model takes 2048 with its answer: shorten the prompt" in ran.err


def test_settings_of_a_prompt_in_a_file(unloaded, tmp_path):
    (tmp_path / "p.jsonl").write_text('{"prompt": "x", "temperature": -3}\n')
    assert "p.jsonl, line 1: temperature must" in unloaded("bench", "--prompts", tmp_path / "p.jsonl")
    (tmp_path / "empty").write_text("\n")
    said = unloaded("generate", "x", "--prediction", f"@{tmp_path / 'empty'}")
    assert "is empty: give some text, or leave it out" in said


@linux
def test_a_lock_that_cannot_be_made_is_told_at_once(tmp_path):
    begun = monotonic()
    place = tmp_path.__class__(f"{NOWHERE}.dwm")
    with pytest.raises(FileFormatError, match="cannot be written"), alone(place, 20.0):
        pass
    assert monotonic() - begun < 10


@pytest.mark.parametrize("verb", ["generate x", "chat", "bench --tasks chat", "simulate --live", "profile"])
def test_a_device_that_is_not_here(unloaded, tiny, verb):
    import torch

    if torch.cuda.is_available():
        pytest.skip("it is here")
    said = unloaded(*verb.split(), "-m", tiny, "--device", "cuda")
    assert "device 'cuda' is not available here: choose one of cpu" in said
    assert "there are 1, from cpu:0" in unloaded(*verb.split(), "-m", tiny, "--device", "cpu:3")
