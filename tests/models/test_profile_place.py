"""Where profiles are kept: a file per model, number format, threads, device and machine."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from draftwood.models.find import model_folder
from draftwood.models.machine import machine, processor
from draftwood.models.profile_place import (
    Setting,
    cached_profile,
    curve_of,
    newest_profile,
    profile_path,
    setting_of,
    tuned_path,
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
    assert cached_profile(*keys[0]) is None
    paths[0].parent.mkdir()
    paths[0].write_text("")
    assert cached_profile(*keys[0]) == paths[0]
    assert [cached_profile(*key) for key in keys[1:]] == [None] * (len(keys) - 1)
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
    assert tuned_path(model("owner/tiny")).name.startswith("owner_tiny-float32-")


@pytest.mark.parametrize("what", [model(""), model(None), SimpleNamespace(), SimpleNamespace(config=None)])
def test_what_does_not_say_what_it_is_has_none(what):
    assert setting_of(what) is None


def test_a_cache_folder_that_cannot_be_read_is_no_error(cache, monkeypatch):
    def refused(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.is_file", refused)
    assert curve_of(Setting("smollm2", "float32", 2)) is None


def test_the_machine_has_a_short_name():
    assert processor()
    assert machine() == machine()
    assert len(machine()) == 8
