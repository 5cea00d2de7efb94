"""Verbs on a GGUF file, in one thread; what needs transformers says so."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx  # comes with the openai package
import pytest

from draftwood import generate, load
from draftwood.api.setup import Setup
from draftwood.engines.cpu.code.instructions import SWITCH, runnable
from draftwood.local.find import gguf_file
from draftwood.local.findings import profile_path
from draftwood.measure.records.provenance import provenance
from tests.serve.conftest import running

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.smollm2

SHORT = ("--threads", "1", "--max-new-tokens", "4")
OF_OTHER_EXTRAS = ("torch", "transformers", "gguf", "scipy", "zstandard", "pydivsufsort")


@pytest.fixture(scope="module")
def gguf(tmp_path_factory) -> str:
    """A GGUF file in a folder of its own."""
    link = tmp_path_factory.mktemp("gguf") / "model.gguf"
    link.symlink_to(gguf_file("smollm2"))
    return str(link)


@pytest.fixture
def small(tiny_gguf) -> str:
    """A random model of smollm2's type of weights, which takes a hundredth of its time."""
    return str(tiny_gguf("llama", "Q4_1"))


def with_the_extra_llama_alone(model: str, *arguments: str) -> str:
    """Run a command in a process that has no package of other extras; returns what it printed."""
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({OF_OTHER_EXTRAS}))\n"
        "from draftwood.local.crowding import Others; Others.cores = 0.0\n"  # a quiet machine
        f"from draftwood.cli import demo; demo._MODEL = {model!r}\n"
        "from draftwood.cli.main import run\n"
        f"sys.exit(run({[*arguments, '--threads', '1', '--engine', 'llama.cpp']}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_the_demo_needs_the_extra_llama_alone(small):
    shown = with_the_extra_llama_alone(small, "demo", "--max-new-tokens", "4")
    assert "the engine llama.cpp, plainly and with drafts" in shown.replace("\n", " ")
    assert shown.count("identical to the last token") == 3
    assert shown.count("--engine llama.cpp\n") == 3


def test_bench_needs_the_extra_llama_alone_but_for_intervals(small):
    short = ("-m", small, "--tasks", "chat", "--limit", "2", "--rounds", "1", "--max-new-tokens", "4")
    shown = with_the_extra_llama_alone(small, "bench", *short)
    assert "geometric mean" in shown
    assert 'Intervals need scipy: run pip install "draftwood[measure]".' in shown


def test_generate_records_what_ran_and_the_text_is_the_file_s(draftwood, gguf, tmp_path):
    kept = tmp_path / "kept.jsonl"
    draftwood("generate", "Hi", "-m", gguf, *SHORT, "-o", kept)
    settings = json.loads(kept.read_text().splitlines()[0])["settings"]
    assert (settings["model"], bool(re.fullmatch(r"Q4_1 \S+ exact", settings["dtype"]))) == (gguf, True)
    for engine in ("cpu", "llama.cpp"):
        call = ("generate", "Hi", "--engine", engine, *SHORT, "--temp", "0", "--json")
        chosen, named = (draftwood(*call, "-m", model) for model in ("smollm2", str(Path(gguf).parent)))
        assert chosen.document["ids"] == named.document["ids"]


@pytest.mark.parametrize("engine", ["cpu", "llama.cpp"])
def test_a_file_s_own_settings_of_sampling_are_followed_through_every_door(engine, draftwood, refused, tiny_gguf):
    said = {"temp": 0.9, "top_k": 6, "top_p": 0.95, "penalty_repeat": 1.2, "penalty_last_n": -1}
    more = tuple((f"general.sampling.{name}", value) for name, value in said.items())
    path, chosen = str(tiny_gguf("llama", "Q8_0", more=more)), {"seed": 3, "max_new_tokens": 24}
    model, tokenizer = load(path, engine=engine, threads=1)
    own = generate(model, "ab", tokenizer=tokenizer, drafters="none", **chosen)
    assert generate(model, "ab", tokenizer=tokenizer, planner="fixed:6", **chosen).ids == own.ids
    call = ("generate", "ab", "--raw", "-m", path, "--engine", engine, "--threads", "1", "--json", "--seed", "3")
    flags = ("--temperature", "0.9", "--top-k", "6", "--top-p", "0.95", "--repetition-penalty", "1.2")
    without = str(tiny_gguf("llama", "Q8_0"))
    for asked in (call, [without if one == path else one for one in (*call, *flags)]):
        assert draftwood(*asked, "--max-new-tokens", "24").document["ids"] == own.ids
    with running(Setup(model, tokenizer, "ngram", "fixed:6")) as server:
        body = {"prompt": "ab", "seed": 3, "max_tokens": 24}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json()
        assert answer["choices"][0]["text"] == own.text
        greedy = httpx.post(f"{server.url}/v1/completions", json=body | {"temperature": 0}, timeout=60).json()
    by_hand = generate(model, "ab", tokenizer=tokenizer, temperature=0, **chosen).text
    assert greedy["choices"][0]["text"] == by_hand != own.text
    bad = str(tiny_gguf("llama", "Q8_0", more=(*more, ("general.sampling.mirostat", 2))))
    said = refused("serve", "-m", bad, "--engine", engine, "--threads", "1", "--port", "0")
    assert "sets mirostat=2, which draftwood does not apply" in said


@pytest.mark.parametrize("engine", ["cpu", "llama.cpp"])
@pytest.mark.parametrize(("verb", "more"), [
    (("bench", "--tasks", "chat", "--limit", "1", "--rounds", "1"), SHORT), (("drift", "Say hi"), SHORT),
    (("explain", "--live", "Hi"), SHORT), (("simulate", "--live", "--limit", "1"), SHORT),
    (("profile", "--sizes", "1,2", "--contexts", "16", "--rounds", "1"), SHORT[:2]), (("chat",), SHORT),
])  # fmt: skip
def test_every_verb(draftwood, small, engine, verb, more):
    as_json = () if verb == ("chat",) else ("--json",)
    ran = draftwood(*verb, "-m", small, "--engine", engine, *more, *as_json, stdin=b"Hi\nAnd you?\n/stats\n")
    if verb[0] == "chat":
        assert "turn 2: read" in ran.out
    if verb[0] in ("simulate", "profile"):
        found = ran.document
        found = found.get("probe", found)
        assert (found["dtype"].partition(" ")[0], found["threads"]) == ("Q4_1", 1)


def test_logs_of_llama_cpp_s_server_say_which_of_its_types_would_pay(draftwood, gguf, tmp_path):
    said = "one two three four five six seven eight nine ten " * 4
    body = {"messages": [{"role": "user", "content": said}], "max_tokens": 8, "stream": False}
    log = tmp_path / "log.jsonl"
    log.write_text(json.dumps({"request": body, "response": {"choices": [{"message": {"content": said}}]}}))
    ran = draftwood("simulate", "--live", "-m", gguf, *SHORT, "--prompts", log, "--json")
    assert ran.document["probe"]["prompts"][0]["targets"] == 3, ran.err
    types = "ngram,ngram-simple,ngram-cache"
    flags = ("--tokenizer", gguf, "--drafters", types, "--cost", "1=6.8,4=10.7,16=32", "--json")
    ran = draftwood("simulate", log, *flags)
    assert {row["drafter"] for row in ran.document["rows"]} == set(types.split(","))


def test_the_profile_of_a_file_is_found_under_its_name(draftwood, gguf, tmp_path, monkeypatch):
    log = tmp_path / "log.jsonl"
    log.write_text('{"prompt_ids": [1, 2, 1, 2], "output_ids": [1, 2, 1, 2, 1, 2]}')
    assert "draftwood profile" in draftwood("simulate", log, "--profile", gguf, code=2).err
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    place = profile_path(gguf, "Q4_1 fast", 1)
    draftwood("profile", "-m", gguf, "--fast", "--sizes", "1,4", "--contexts", "16", "--rounds", "1",
                     "--threads", "1", "-o", place)  # fmt: skip
    found = draftwood("simulate", log, "--profile", gguf, "--json")
    assert found.document["rows"][0]["predicted_speedup"] > 0, found.err


def test_a_corpus_is_built_with_the_file_s_tokenizer(draftwood, gguf, tmp_path):
    text, corpus = tmp_path / "text.txt", tmp_path / "text.dwc"
    text.write_text("a short text, and again a short text")
    draftwood("corpus", "build", text, "-o", corpus, "--tokenizer", gguf)
    draftwood("generate", "Hi", "-m", gguf, "--corpus", corpus, *SHORT)


@pytest.mark.parametrize(("line", "sentence"), [
    ("generate Hi --dtype bfloat16", "keeps its own number format: leave dtype out"),
    ("generate Hi --device cuda", "say by gpu_layers, not device, what a card computes"),
    ("generate Hi --weights int4", "has no floats that could become int4: leave weights out"),
    ("generate Hi --engine transformers", "is a GGUF file, which the engines cpu and llama.cpp read"),
    ("bench --tasks chat --limit 1 --peers transformers:lookup", "needs a model of transformers"),
])  # fmt: skip
def test_what_does_not_fit_a_gguf_file_is_said(refused, gguf, line, sentence):
    (said,) = refused(*line.split(), "-m", gguf, "--threads", "1").splitlines()
    assert sentence in said


def test_info_names_the_instructions_of_our_own_engine(draftwood, monkeypatch):
    for name in runnable():
        monkeypatch.setenv(SWITCH, name)
        assert re.search(rf"CPU +\d+ cores, instructions: {name}\n", draftwood("info").out)
        assert provenance()["instructions"] == name
    monkeypatch.setenv(SWITCH, "mmx")
    assert "instructions: unknown value of DRAFTWOOD_INSTRUCTIONS 'mmx': known: " in draftwood("info").out


def test_info_says_which_engines_there_are(draftwood, monkeypatch):
    from draftwood.engines.llama_cpp import library

    def said():
        return draftwood("info", "--json").document["engines"]["llama.cpp"]

    assert said().endswith((", processor", ", graphics card"))
    monkeypatch.setattr(library, "SOURCES", [replace(source, good=("0.0.1",)) for source in library.SOURCES])
    library.library.cache_clear()
    assert "this llama.cpp cannot be used safely" in said()
    monkeypatch.setattr("draftwood.models.engine.is_installed", lambda _: False)
    assert re.search(r'engine llama.cpp +not installed: pip install "draftwood\[llama\]"\n', draftwood("info").out)
