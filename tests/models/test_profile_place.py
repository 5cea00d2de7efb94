"""Where profiles are kept: a file per model, number format, threads, device and machine."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
import torch

from draftwood.models import machine as place
from draftwood.models.find import model_folder
from draftwood.models.machine import machine, processor
from draftwood.models.profile_place import (
    Setting,
    curve_of,
    newest_profile,
    profile_path,
    setting_of,
)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    return tmp_path


def model(name, dtype=torch.float32):
    return SimpleNamespace(config=SimpleNamespace(_name_or_path=name), dtype=dtype, device=torch.device("cpu"))


def test_profiles_stay_apart(cache):
    for folder in ("a", "b"):
        (cache / folder / "model").mkdir(parents=True)
    keys = [
        ("smollm2", "float32", 2), ("smollm2", "float32", 1), ("smollm2", "bfloat16", 2),
        ("smollm2", "float32", 2, "cuda"), ("owner/model", "float32", 2),
        (str(cache / "a" / "model"), "float32", 2), (str(cache / "b" / "model"), "float32", 2),
    ]  # fmt: skip
    paths = [profile_path(*key) for key in keys]
    assert len(set(paths)) == len(keys)
    assert {path.parent for path in paths} == {cache / "profiles"}
    assert not profile_path(*keys[0]).is_file()
    paths[0].parent.mkdir()
    paths[0].write_text("")
    assert [profile_path(*key).is_file() for key in keys] == [True] + [False] * (len(keys) - 1)
    assert newest_profile("smollm2") == paths[0]
    assert newest_profile("owner/model") is None


def test_a_fetched_model_goes_by_its_name_however_it_was_loaded(cache):
    folder = model_folder("smollm2")
    folder.mkdir(parents=True)
    assert profile_path(str(folder), "float32", 2) == profile_path("smollm2", "float32", 2)
    assert setting_of(model(str(folder))).model == "smollm2"
    elsewhere = cache / "smollm2"
    elsewhere.mkdir()
    assert profile_path(str(elsewhere), "float32", 2) != profile_path("smollm2", "float32", 2)


def test_the_setting_of_a_loaded_model():
    found = setting_of(model("owner/tiny", torch.bfloat16))
    assert found == Setting("owner/tiny", "bfloat16", torch.get_num_threads(), "cpu")


@pytest.mark.parametrize("what", [model(""), model(None), SimpleNamespace(), SimpleNamespace(config=None)])
def test_what_does_not_say_what_it_is_has_none(what):
    assert setting_of(what) is None


def test_a_cache_folder_that_cannot_be_read_is_no_error(cache, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_file", refused)
    assert curve_of(Setting("smollm2", "float32", 2)) is None


@pytest.mark.parametrize("given", ["made/model", "made/../made/model", ".", "link"])
def test_a_profile_of_a_relative_folder_is_found_again_from_anywhere(cache, monkeypatch, given):
    folder = cache / "made" / "model"
    folder.mkdir(parents=True)
    (cache / "link").symlink_to(folder)
    monkeypatch.chdir(folder if given == "." else cache)
    profiled = Setting(given, "float32", 2)
    path = profile_path(*profiled)
    path.parent.mkdir()
    header = {"row": "header", "verb": "profile", "format": 1, "settings": profiled._asdict()}
    rows = [header, {"row": "pass", "context": 128, "n": 1, "median_s": 0.02}]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert curve_of(profiled) is not None
    if given != "link":  # from elsewhere nobody knows where it led
        monkeypatch.chdir("/")
    assert curve_of(profiled._replace(model=str(folder))) is not None


def test_a_graphics_card_is_part_of_the_machine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    names = set()
    for card in ("one card", "another"):
        place._card.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda card=card: card)
        names |= {machine("cuda"), profile_path("m", "float32", 2, "cuda").stem[-8:]}
        assert machine("cpu") == machine()
    place._card.cache_clear()
    assert len(names) == 2
    assert machine() not in names


def test_the_newest_profile_may_be_of_any_device_of_this_machine(cache):
    for device in ("cpu", "cuda", "mps"):
        path = profile_path("owner/model", "float32", 2, device)
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        assert newest_profile("owner/model") is not None
        path.unlink()
    foreign = profile_path("owner/model", "float32", 2)
    foreign.with_stem(foreign.stem[:-8] + "01234567").write_text("")
    assert newest_profile("owner/model") is None


def test_the_machine_has_a_short_name():
    assert processor()
    assert machine() == machine()
    assert len(machine()) == 8


def test_the_profile_of_a_model_that_ollama_has_is_that_of_its_file(cache, monkeypatch, tmp_path):
    blob = tmp_path / "sha256-74701a8c"
    blob.write_bytes(b"GGUF")
    monkeypatch.setattr(sys.modules["draftwood.models.find"], "ollama_file", lambda _: blob)
    place = profile_path(str(blob), "Q4_0", 2)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("")
    assert newest_profile("ollama:llama3.2:1b") == place
