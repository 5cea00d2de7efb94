"""``draftwood profile`` on a tiny random model."""

from __future__ import annotations

import inspect

import pytest

from draftwood.api.learned import read_profile
from draftwood.cli import profile as verb
from draftwood.measure.profile.sweep import SECONDS

ESCAPE = "\x1b["


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("draftwood.measure.profile.rows.Profile.doubt", lambda *_: "")
    return tmp_path / "cache" / "profiles"


NOT_KEPT = "not kept in the cache folder, because of --sizes, --contexts, --rounds"


def flags(model, *more):
    return ["--model", model, "--sizes", "1,4,16", "--contexts", "8,32", "--rounds", "2", *more]


@pytest.fixture
def profile(draftwood, tiny):
    """Profile the tiny model, with further arguments."""
    return lambda *more, **how: draftwood("profile", *flags(tiny), *more, **how)


def test_a_table_for_people(profile):
    ran = profile()
    assert ran.err == NOT_KEPT + "; -o FILE.jsonl keeps it\n"
    assert ESCAPE not in ran.out
    for said in ("quartiles", "tokens per", "2 rounds"):
        assert said in ran.out
    assert ["pass", "8", "32"] in [line.split() for line in ran.out.splitlines()]


def test_json_is_one_document(profile, tiny):
    ran = profile("--json")
    found = ran.document
    assert (found["model"], found["dtype"], found["device"], found["rounds"]) == (tiny, "float32", "cpu", 2)
    assert {(row["context"], row["n"]) for row in found["pass"]} == {(c, n) for c in (8, 32) for n in (1, 4, 16)}
    assert [row["tokens"] for row in found["prefill"]] == [8, 32]
    assert {"provenance", "threads"} <= set(found)


def test_files(profile, tmp_path, alone):
    rows = tmp_path / "new" / "rows.jsonl"
    ran = profile("-o", rows)
    assert ran.err == f"written: {rows}\n{NOT_KEPT}\n"
    assert read_profile(rows)[1].contexts == (8, 32)
    assert not alone.exists(), "only a profile of the usual sizes is kept for planners"


def test_a_usual_profile_is_kept_in_the_cache(draftwood, tiny, alone):
    ran = draftwood("profile", "--model", tiny, "--seconds", "1", "--json")
    (kept,) = alone.iterdir()
    assert ran.err == f"written: {kept}\n"
    assert read_profile(kept)[1].contexts == (128, 512)


def test_a_noisy_profile_is_marked_and_not_used_without_a_word(draftwood, tiny, alone, monkeypatch, tmp_path):
    noisy, rows, trace = "other programs took 1.3 of 2 cores meanwhile", tmp_path / "p.jsonl", tmp_path / "t.jsonl"
    monkeypatch.setattr("draftwood.measure.profile.rows.Profile.doubt", lambda *_: noisy)
    ran = draftwood("profile", "--model", tiny, "--seconds", "1", "-o", rows)
    assert "not kept in the cache folder, because of noise\n" in ran.err
    assert "NOISY" in ran.out
    assert all(len(line) <= 80 for line in ran.out.splitlines()[1:])
    assert not alone.exists()
    trace.write_text('{"ids": [1, 2, 1, 2], "prompt_ids": [1], "output_ids": [2, 1, 2]}\n')
    assert f"warning: {rows} is noisy ({noisy})" in draftwood("simulate", trace, "--profile", rows).err


def test_ctrl_c_keeps_finished_rounds(profile, interrupt, tmp_path, alone):
    interrupt(6 + 2 * 6 + 3)  # six passes a round, and one that warms up
    ran = profile("--rounds", "9", "--json", "-o", tmp_path / "p.jsonl", code=130)
    assert ran.document["rounds"] == 2
    assert read_profile(tmp_path / "p.jsonl")[1].contexts == (8, 32)
    assert not alone.exists()


def test_the_default_is_that_of_the_instrument():
    assert inspect.signature(verb.profile).parameters["seconds"].default == SECONDS


def test_a_profile_that_was_not_kept_is_not_looked_for_in_vain(profile, draftwood, tiny, tmp_path, alone):
    trace = tmp_path / "t.jsonl"
    trace.write_text('{"ids": [1, 2, 1, 2], "prompt_ids": [1], "output_ids": [2, 1, 2]}\n')
    assert "because of --sizes" in profile().err
    ran = draftwood("simulate", trace, "--profile", tiny, code=2)
    assert "none was kept of a model of this name" in ran.err
    assert "without --sizes" in ran.err
