"""--prediction, --memory, --corpus and --context in generate, chat and bench, on a tiny random model."""

import io
import json
from contextlib import redirect_stdout

import pytest

from draftwood.cli.main import run
from draftwood.drafters.memory.memory import Memory
from draftwood.measure.records.records import read_records

PROMPT = "abcabcabcabc"
PLAIN = ("--drafters", "lookup:length=1")
SHORT = ("--max-new-tokens", "40", "--threads", "1", "--planner", "fixed:16")  # counts passes, not seconds
RAW = ("--raw", *SHORT)


@pytest.fixture(scope="module")
def answered(tiny):
    """What the model answers, and in how many passes it does with next to no drafting."""
    with redirect_stdout(io.StringIO()) as out:
        assert run(["generate", PROMPT, "-m", tiny, *PLAIN, *RAW, "--json"]) == 0
    return json.loads(out.getvalue())


@pytest.fixture(scope="module")
def corpus(tiny, answered, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "texts").mkdir()
    (folder / "texts" / "answer.txt").write_text(answered["text"])
    assert run(["corpus", "build", str(folder / "texts"), "-o", str(folder / "c.dwc"), "--tokenizer", tiny]) == 0
    return str(folder / "c.dwc")


def document(ran):
    assert ran.err == ""
    return ran.document


def write(path, text):
    path.write_text(text)
    return f"@{path}"


@pytest.fixture
def generate(draftwood, tiny):
    """Answer the prompt on the tiny model with next to no drafting, with further flags."""
    return lambda *more, **how: draftwood("generate", PROMPT, "-m", tiny, *PLAIN, *RAW, *more, **how)


# --- generate ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prediction", "context", "corpus"])
def test_further_text_is_drafted_from(generate, answered, corpus, tmp_path, name):
    text = answered["text"]
    flags = {"corpus": [corpus, corpus]}.get(name, ["other", write(tmp_path / "t", text + "\n")])
    flags = [word for given in flags for word in (f"--{name}", given)]
    found = document(generate(*flags, "--json"))
    assert found["ids"] == answered["ids"]
    assert found["passes"] < answered["passes"] / 2
    drafter = {"context": "ngram"}.get(name, name)
    assert found["drafters"] == f"lookup:length=1+{drafter}"
    assert drafter in found["sources"]


def test_a_memory_is_made_used_and_kept(generate, answered, tmp_path):
    path = tmp_path / "folder" / "m.dwm"
    flags = ("--memory", path, "--json")
    first, second = document(generate(*flags)), document(generate(*flags))
    assert first["ids"] == second["ids"] == answered["ids"]
    assert second["passes"] < first["passes"]
    (only,) = Memory.open(path).answers()
    assert only.ids.tolist() == answered["ids"]


def test_a_folder_is_no_memory(unloaded, tmp_path):
    assert f"--memory {tmp_path} is a folder: name a file" in unloaded("generate", "x", "--memory", tmp_path)


def test_a_memory_keeps_what_was_written_before_an_interrupt(generate, answered, tmp_path, interrupt):
    interrupt(9)
    generate("--memory", tmp_path / "m.dwm", code=130)
    (only,) = Memory.open(tmp_path / "m.dwm").answers()
    assert 2 <= len(only.ids) < 40
    assert answered["ids"][: len(only.ids)] == only.ids.tolist()


def test_the_legend_and_the_rows_name_what_drafted(draftwood, tiny, answered, tmp_path):
    rows = tmp_path / "rows.jsonl"
    flags = ("--prediction", answered["text"], "-o", rows)
    ran = draftwood("generate", PROMPT, "-m", tiny, "--drafters", "ngram", *RAW, *flags)
    assert "drafted by prediction" in ran.err
    (kept,) = read_records(rows).answers
    assert set(read_records(rows).header["provenance"]["sources"]) == {"prediction"}
    assert (kept.arm, kept.drafters) == ("ngram+prediction", ["ngram", "prediction"])


def test_a_comparison_begins_every_run_with_the_memory_as_it_stood(generate, answered, tmp_path, corpus):
    path = tmp_path / "m.dwm"
    call = ("--memory", path, "--compare", "--json")
    found = document(generate(*call))
    assert found["identical"] is True
    assert found["passes"] == answered["passes"]
    assert not path.exists()
    found = document(generate(*call, "--prediction", answered["text"], "--corpus", corpus, "--context", "abc"))
    assert found["identical"] is True
    assert found["passes"] < answered["passes"] / 2


# --- bench ---------------------------------------------------------------------------------------------------


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "mine.jsonl"
    rows = [{"task": "mine", "name": name, "prompt": PROMPT} for name in ("a", "again")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def bench(draftwood, tiny, prompts):
    """Bench the prompts on the tiny model, with further flags."""
    call = ("bench", "-m", tiny, "--prompts", prompts, *PLAIN, *RAW, "--json")
    return lambda *more, **how: draftwood(*call, *more, **how)


def passes(rows):
    return {(a.arm, a.round, a.name): len(a.steps) for a in rows.answers if a.arm != "none"}


def test_a_bench_adds_sources_to_every_arm_but_plain(bench, corpus, answered, tmp_path):
    flags = ("--prediction", answered["text"], "--corpus", corpus, "--context", "abc")
    flags = (*flags, "-o", tmp_path / "r.jsonl")
    arms = ("--drafters", "lookup:length=1,ngram+prediction:length=4", "--rounds", "1")
    found = document(bench(*flags, *arms))
    assert {row["drafter"] for row in found["rows"]} == {
        "none", "lookup:length=1+prediction+corpus+ngram", "ngram+prediction:length=4+corpus",
    }  # fmt: skip
    assert all(row["identical"] for row in found["rows"])
    settings = found["header"]["settings"]
    assert {"prediction", "corpus", "context"} <= set(settings)
    assert "memory" not in settings
    assert "was written with prediction" in bench(*flags, *arms, "--prediction", "more", code=2).err


def test_a_memory_goes_from_prompt_to_prompt_and_begins_rounds_anew(bench, answered, tmp_path):
    path, rows = tmp_path / "m.dwm", tmp_path / "r.jsonl"
    arms = ("--drafters", "lookup:length=1,lookup:length=2", "--memory", path, "-o", rows)
    found = document(bench(*arms))
    assert found["header"]["settings"]["memory"] == "0 answers"
    assert not path.exists()
    counts = passes(read_records(rows))
    for arm in ("lookup:length=1+memory", "lookup:length=2+memory"):
        assert counts[arm, 0, "again"] < counts[arm, 0, "a"], "what it wrote helps with the next prompt"
        assert counts[arm, 1, "a"] == counts[arm, 0, "a"], "a round knows nothing of the one before"
    assert counts["lookup:length=1+memory", 0, "a"] == answered["passes"], (
        "an arm knows nothing of another's answers"
    )


def test_a_bench_starts_from_a_memory_file_and_leaves_it(draftwood, bench, tiny, answered, tmp_path):
    path = tmp_path / "m.dwm"
    document(draftwood("generate", PROMPT, "-m", tiny, *RAW, "--memory", path, "--json"))
    before = path.read_bytes()
    for way in (["--memory", str(path)], ["--drafters", f"lookup:length=1+memory:file={path}"]):
        rows = tmp_path / f"{len(way[1])}.jsonl"
        document(bench(*way, "--rounds", "1", "-o", rows))
        counts = passes(read_records(rows))
        assert max(counts.values()) < answered["passes"]
        assert path.read_bytes() == before


# --- mistakes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["generate abc", "chat", "bench"])
def test_wrong_files_are_told_before_anything_is_loaded(unloaded, tmp_path, verb):
    (tmp_path / "binary").write_bytes(b"a\0b" * 100)
    (tmp_path / "latin").write_bytes("é".encode("latin-1"))
    binary, folder = str(tmp_path / "binary"), str(tmp_path)
    for name in ("prediction", "context"):
        for given, said in (
            (f"{folder}/nothing", f"the {name} file {folder}/nothing cannot be read (No such file or directory)"),
            (folder, "cannot be read (Is a directory): check its name"),
            (binary, "is binary: give a text file"),
            (str(tmp_path / "latin"), "is no UTF-8 text: its bytes look like WINDOWS-1252"),
            ("", "(no name)"),
        ):
            assert said in unloaded(*verb.split(), f"--{name}", f"@{given}")
    for name in ("memory", "corpus"):
        assert unloaded(*verb.split(), f"--{name}", folder)
        assert binary in unloaded(*verb.split(), f"--{name}", binary, code=1)
    assert "nothing.dwc" in unloaded(*verb.split(), "--corpus", "nothing.dwc")
    said = unloaded(*verb.split(), "--drafters", "none", "--prediction", "abc")
    assert "leave prediction out, or name drafters other than 'none'" in said
