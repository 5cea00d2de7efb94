"""``draftwood profile --early-exit`` on a tiny random model of two layers."""

from __future__ import annotations

import json
import sys

import pytest

from draftwood.engines.transformers.partial_passes import PartialPasses
from draftwood.models.early_exit_place import choice_of
from draftwood.models.findings import Setting


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """Returns the folder of profiles."""
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "profiles"


def flags(model, *more):
    return ["profile", "--early-exit", "--model", model, "--seconds", "1", *more]


def test_a_table_for_people_and_a_file_for_the_drafter(draftwood, tiny, alone):
    ran = draftwood(*flags(tiny))
    (kept,) = alone.iterdir()
    assert (ran.code, ran.err) == (0, f"written: {kept}\n")
    for said in ("2 layers", "agreement", "draft pass", "expected speed-up", "of 192 tokens"):
        assert said in ran.out
    assert ("no choice of layers pays" in ran.out) != ("from now on" in ran.out)
    lines = kept.read_text().splitlines()
    settings = json.loads(lines[0])["settings"]
    assert settings["layers"] == 2
    choice = choice_of(Setting(tiny, "float32", settings["threads"]), 2)
    assert choice is not None
    assert choice.layers in ((0,), (1,))
    assert choice.pays == ("from now on" in ran.out)


def test_json_is_one_document(draftwood, tiny, tmp_path, alone):
    out = tmp_path / "found.jsonl"
    ran = draftwood(*flags(tiny, "--json", "--layers", "1-1", "-o", str(out)))
    found = json.loads(ran.out)
    assert ran.code == 0
    assert (found["model"], found["layers"], found["dtype"]) == (tiny, 2, "float32")
    assert {"1", "1-1"} == {choice["text"] for choice in found["choices"]}
    assert found["best"]["speedup"] == max(choice["speedup"] for choice in found["choices"])
    assert {"pays", "agreement", "pass_cost", "length", "tokens"} <= set(found["best"])
    assert {"costs", "search", "provenance", "threads"} <= set(found)
    assert json.loads(out.read_text().splitlines()[0])["verb"] == "early-exit"
    assert len(list(alone.iterdir())) == 1


def test_ctrl_c_keeps_nothing(draftwood, tiny, monkeypatch, tmp_path, alone):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PartialPasses, "shortlist", interrupted)
    ran = draftwood(*flags(tiny, "-o", str(tmp_path / "found.jsonl")))
    assert (ran.code, ran.out) == (130, "")
    assert "nothing was kept" in ran.err
    assert not alone.exists()
    assert not (tmp_path / "found.jsonl").exists()


def test_unpacked_passes_are_not_kept(draftwood, tiny, alone):
    ran = draftwood(*flags(tiny, "--no-pack"))
    assert ran.code == 0
    assert "because of --no-pack" in ran.err
    assert not alone.exists()
    assert "from now on" not in ran.out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--early-exit", "--sizes", "1,2"], "--sizes is for the cost of passes"),
        (["--early-exit", "--rounds", "3"], "--rounds is for the cost of passes"),
        (["--layers", "3"], "--layers says which layers --early-exit tries"),
        (["--early-exit", "-o", "found.jsonl.zst"], "FILE.jsonl"),
        (["--early-exit", "-o", "."], "is a folder"),
    ],
)
def test_wrong_words_are_refused_before_a_model_is_loaded(draftwood, monkeypatch, more, said):
    def loaded(*_):
        raise AssertionError("a model was read")

    monkeypatch.setattr(sys.modules["draftwood.models.load"], "_read", loaded)
    ran = draftwood("profile", *more)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


@pytest.mark.parametrize("layers", ["2", "0-1", "5", "x"])
def test_layers_outside_the_model_are_refused(draftwood, tiny, layers, alone):
    ran = draftwood(*flags(tiny, "--layers", layers))
    assert (ran.code, ran.out) == (2, "")
    assert "early-exit: layers" in ran.err
    assert not alone.exists()


def test_a_gguf_file_is_refused_in_one_sentence(draftwood, tmp_path):
    place = tmp_path / "model.gguf"
    place.write_bytes(b"GGUF")
    ran = draftwood(*flags(str(place)))
    assert (ran.code, ran.out) == (1, "")
    assert "early-exit works on models of transformers only" in ran.err
    assert ran.err.count("\n") == 1
