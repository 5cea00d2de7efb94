"""Files that are there: replaced only where the user said so, shared by processes, read as far as they go.

Pipes and devices are written to, read once and never replaced.
"""

import json
import os
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest

from draftwood.measure.records.records import read_records
from tests.cli.test_generate import PROMPT, flags

SHORT = ("--max-new-tokens", "6")


@pytest.fixture
def prompts(tmp_path):
    path = tmp_path / "prompts.txt"
    path.write_text("one two one two one\nthree four three four\n")
    return path


@pytest.fixture
def rows(draftwood, tiny, tmp_path):
    path = tmp_path / "rows.jsonl"
    for _ in range(2):
        draftwood("generate", PROMPT, *flags(tiny, 8), "-o", path)
    return path


def writing(verb, tiny, prompts, rows, place):
    """The arguments with which a verb writes a whole file."""
    return {
        "profile": ("profile", "-m", tiny, "--sizes", "1,2", "--contexts", "16", "--rounds", "1", "-o", place),
        "trace": ("simulate", "--live", "-m", tiny, "--prompts", prompts, *SHORT, "--trace", place),
        "report": ("report", rows, "-o", place),
        "generate": ("generate", PROMPT, *flags(tiny, 8), "-o", place),
        "bench": ("bench", "-m", tiny, "--prompts", prompts, *SHORT, "--rounds", "1", "-o", place),
        "corpus": ("corpus", "build", prompts, "--tokenizer", tiny, "-o", place),
        "train": ("train", "head", "-m", tiny, "-o", place),
        "memory": ("generate", PROMPT, *flags(tiny, 8), "--memory", place),
        "counts": ("generate", PROMPT, *flags(tiny, 8), "--drafters", f"ngram-cache:save=true:dynamic={place}"),
    }[verb]


WRITERS = ("profile", "trace", "report", "generate", "bench", "corpus")
REFUSED = ("train", "memory", "counts")
"""What these write is read again, or has a folder beside it."""


def of_engine(verb, engine):
    return ("--engine", engine) if verb not in ("corpus", "report") else ()


@contextmanager
def sent():
    """Give the name of a pipe, and a list that holds what was sent through it afterwards."""
    end, begin = os.pipe()
    got: list[bytes] = []
    with os.fdopen(end, "rb") as reader:
        with os.fdopen(begin, "wb"):
            yield f"/dev/fd/{begin}", got
        got.append(reader.read())


@pytest.fixture
def device(tmp_path):
    """Make copies of devices, so that a mistake replaces no real one."""
    (folder := tmp_path / "devices").mkdir()

    def make(minor):
        try:
            os.mknod(folder / "it", 0o600 | stat.S_IFCHR, os.makedev(1, minor))
            (folder / "it").open("rb").close()
        except (AttributeError, OSError):
            pytest.skip("may make no devices here")
        return folder / "it"

    return make


@pytest.mark.parametrize("verb", [*WRITERS, *REFUSED])
def test_devices_are_written_to_or_refused_and_never_replaced(draftwood, tiny, prompts, rows, device, verb):
    place = device(3)  # as /dev/null
    ran = draftwood(*writing(verb, tiny, prompts, rows, place), code=2 if verb in REFUSED else 0)
    assert ("it is a pipe or a device" in ran.err or "is a pipe or a device, and" in ran.err) == (verb in REFUSED)
    assert place.is_char_device()
    assert list(place.parent.iterdir()) == [place], "nothing is left beside it"


@pytest.mark.parametrize("verb", WRITERS)
def test_full_devices_and_readers_that_left_are_told_in_a_sentence(draftwood, tiny, prompts, rows, device, verb):
    end, begin = os.pipe()
    os.close(end)
    for place, why in ((f"/dev/fd/{begin}", "Broken pipe"), (str(device(7)), "No space left on device")):
        ran = draftwood(*writing(verb, tiny, prompts, rows, place), code=1)
        said = f"error: {place} cannot be written ({why}): choose another place"
        assert ran.err.splitlines()[-1] == said
        assert bool(ran.out) == (verb in ("generate", "profile")), "what was made is shown"
    os.close(begin)


@pytest.mark.parametrize("verb", WRITERS)
def test_pipes_get_the_whole_file_to_its_end(draftwood, tiny, prompts, rows, tmp_path, verb):
    with sent() as (pipe, got):
        draftwood(*writing(verb, tiny, prompts, rows, pipe))
    (tmp_path / "got").write_bytes(got[0])
    if verb == "report":
        assert got[0].endswith(b"</html>")
    elif verb == "corpus":
        draftwood("corpus", "stats", tmp_path / "got")
    else:
        first, *others = [json.loads(line) for line in got[0].splitlines()]
        assert first["row"] == "header"
        assert "header" not in [line.get("row") for line in others or [first]]


@pytest.mark.parametrize("arguments", [
    ("explain", "PIPE"), ("report", "PIPE", "-o", "OUT"), ("simulate", "PIPE", "--planner", "fixed:8"),
    ("simulate", "ROWS", "--profile", "PIPE"), ("generate", "@PIPE", *SHORT),
    ("simulate", "--live", "--prompts", "PIPE"),
])  # fmt: skip
def test_pipes_are_read_to_their_end(draftwood, tiny, rows, tmp_path, arguments):
    profile = (
        '{"row": "header", "verb": "profile", "format": 1}\n{"row": "pass", "context": 1, "n": 1, "median_s": 1}\n'
    )
    given = rows.read_bytes() if "PIPE" in arguments[:2] else profile.encode()
    end, begin = os.pipe()
    assert os.write(begin, given) == len(given)
    os.close(begin)
    known = {"PIPE": f"/dev/fd/{end}", "@PIPE": f"@/dev/fd/{end}", "OUT": str(tmp_path / "o"), "ROWS": str(rows)}
    model = ("-m", tiny) if "@PIPE" in arguments or "--live" in arguments else ()
    draftwood(*(known.get(word, word) for word in arguments), *model)
    os.close(end)


@pytest.mark.parametrize(("code", "line"), [
    (2, "generate @ZERO"), (2, "generate hi --context @ZERO"), (2, "simulate --live --prompts ZERO"),
    (1, "simulate ZERO"), (1, "explain ZERO"), (2, "generate hi --corpus ZERO"), (1, "generate hi -m ZERO"),
])  # fmt: skip
def test_what_has_no_end_is_a_sentence(refused, device, monkeypatch, code, line):
    monkeypatch.setattr("draftwood.files.paths.MOST", 1 << 20)
    monkeypatch.setattr("draftwood.files.lines._LONGEST", 1 << 20)
    place = str(device(5))  # as /dev/zero
    said = refused(*line.replace("ZERO", place).split(), code=code)
    assert place in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("arguments", [
    ("--corpus", "PIPE"), ("--memory", "PIPE"), ("--drafters", "corpus:file=PIPE"), ("-m", "PIPE"), ("-m", "GGUF"),
    ("--drafters", "ngram-cache:static=PIPE"), ("-m", "GGUF", "--engine", "llama.cpp"),
])  # fmt: skip
def test_pipes_without_a_writer_do_not_hold_up_what_needs_a_file(unloaded, tmp_path, arguments):
    for name in ("pipe", "pipe.gguf"):
        os.mkfifo(tmp_path / name)
    known = {"PIPE": str(tmp_path / "pipe"), "GGUF": str(tmp_path / "pipe.gguf")}
    given = [word.replace("PIPE", known["PIPE"]).replace("GGUF", known["GGUF"]) for word in arguments]
    assert str(tmp_path / "pipe") in unloaded("generate", "hi", *given, code=1 if "-m" in given else 2)


@pytest.mark.parametrize("engine", ["cpu", "llama.cpp"])
def test_names_that_are_no_utf_8(draftwood, tiny_gguf, tmp_path, engine):
    if engine != "cpu":
        pytest.importorskip("xllamacpp")
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    folder.mkdir()
    model, prompts, rows = (folder / name for name in ("m.gguf", "prompts.txt", "rows.jsonl"))
    model.symlink_to(tiny_gguf())
    prompts.write_text("one two one two one\n")
    for verb in ("generate", "generate", "bench", "bench", "profile", "trace", "corpus", "report"):
        place = rows if verb == "generate" else folder / verb
        draftwood(*writing(verb, model, prompts, rows, place), *of_engine(verb, engine))
    assert [answer.id for answer in read_records(rows).answers] == [0, 1], "the second call goes on"
    assert "caf\ufffd" in read_records(rows).header["settings"]["model"]


@pytest.mark.parametrize("verb", ["profile", "trace", "report"])
def test_what_is_there_is_replaced_only_by_force(draftwood, tiny, prompts, rows, tmp_path, verb):
    ending = {"profile": "jsonl", "trace": "jsonl", "report": "html"}[verb]
    place = tmp_path / f"thesis.{ending}"
    place.write_text("years of work")
    arguments = writing(verb, tiny, prompts, rows, place)
    refused = draftwood(*arguments, code=2)
    assert refused.err.endswith("or replace it with --force\n")
    assert refused.err.count("\n") == 1
    assert place.read_text() == "years of work"
    draftwood(*arguments, "--force")
    assert place.read_bytes() != b"years of work"
    place.write_text("")  # an empty file is nothing
    draftwood(*arguments)
    assert not list(tmp_path.glob(".*")), "nothing is left beside it"


def test_rows_that_are_no_profile_are_not_to_be_destroyed(draftwood, rows):
    before = rows.read_bytes()
    ran = draftwood("simulate", rows, "--profile", rows, "--planner", "fixed:8", code=1)
    assert f"profile -o {rows}" not in ran.err
    assert "draftwood profile -o NEW.jsonl" in ran.err
    assert rows.read_bytes() == before


def test_every_verb_says_that_the_last_record_is_torn_and_goes_on(draftwood, tiny, rows, tmp_path):
    whole = rows.read_bytes()
    torn = whole[: whole.rstrip().rindex(b"\n") + 30]  # amid the last step of the second answer

    def ran(*arguments, said="ends in a record that was cut off"):
        rows.write_bytes(torn)
        found = draftwood(*arguments)
        assert found.err.count(said) == 1
        return found

    page = tmp_path / "page.html"
    ran("report", rows, "-o", page)
    ran("explain", rows)
    ran("simulate", rows, "--planner", "fixed:8", said="1 lines of 3 are left out (line 18: no JSON")
    ran("generate", PROMPT, *flags(tiny, 8), "-o", rows)
    assert [answer.id for answer in read_records(rows).answers] == [0, 1]
