"""What was found on this machine: small files, bounded, whole or not there, worth nothing where broken."""

import json
import logging
import os
from types import SimpleNamespace

import pytest
import torch

from draftwood.local import findings
from draftwood.local import machine as machine_module
from draftwood.local.find import model_folder
from draftwood.local.findings import TRIAL, Setting, newest_profile, profile_path, setting_of, stamp
from draftwood.local.machine import machine, processor


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path))
    monkeypatch.setattr(findings, "folder", lambda: tmp_path / "found")
    monkeypatch.setattr(findings, "_said", set())
    monkeypatch.setattr("draftwood.files.paths._SAID", set())
    return tmp_path


def put(content, key="a"):
    """Write a file as if it were what a trial found under this key."""
    path = findings.place_of(TRIAL, key)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return path


def test_what_was_remembered_is_there_again():
    assert findings.remembered("a") is None
    findings.remember("a", 2)
    findings.remember("a", 1)
    findings.remember("b", [3, 0, 5])
    assert (findings.remembered("a"), findings.remembered_list("a")) == (1, None)
    assert (findings.remembered("b"), findings.remembered_list("b")) == (None, [3, 0, 5])


@pytest.mark.parametrize("broken", [[1, -2], [1, "x"], [1.5], [True], [[1]], "x", -1, True, {}])
def test_anything_else_is_ignored(broken):
    put(json.dumps(broken).encode())
    assert (findings.remembered("a"), findings.remembered_list("a")) == (None, None)


@pytest.mark.parametrize("broken", [b"", b"{", b"\xff", b"[" * 100_000, b" " * (1 << 21)])
def test_a_broken_file_costs_one_note_and_is_written_anew(broken, caplog):
    path = put(broken)
    with caplog.at_level(logging.WARNING, logger="draftwood"):
        assert [findings.remembered("a"), findings.remembered("a")] == [None, None]
    assert [str(path) in message for message in caplog.messages] == [True]
    findings.remember("a", 1)
    assert findings.remembered("a") == 1


def test_a_folder_that_cannot_be_written_to_keeps_nothing_and_costs_one_note(cache, caplog):
    (cache / "found").write_text("a file")
    for name in "abc":
        findings.remember(name, 1)
        assert findings.remembered(name) is None
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text


def test_the_oldest_of_a_kind_go_but_not_what_was_just_written():
    findings.write(findings.place_of("learned", "kept"), {})
    for n in range(66):
        findings.remember(str(n), n)
        os.utime(findings.place_of(TRIAL, str(n)), (n + 1, 4e9 + n))  # the clock is set back now
    findings.remember("new", 7)
    assert [findings.remembered(name) for name in ("2", "3", "65", "new")] == [None, 3, 65, 7]
    assert (len(findings.files(TRIAL)), len(findings.files("learned"))) == (64, 1)


def test_the_stamp_changes_with_the_files_of_a_model(cache):
    model = cache / "model.gguf"
    model.write_bytes(b"GGUF")
    before = stamp(str(model))
    model.write_bytes(b"GGUF, another one")
    assert before
    assert stamp(str(model)) != before
    assert stamp("owner/name") == ()


def test_learning_can_be_switched_off(monkeypatch):
    for said, kept in (("off", False), ("0", False), ("on", True), ("", True)):
        monkeypatch.setenv("DRAFTWOOD_LEARNED", said)
        assert findings.learning_is_kept() == kept
    findings.keep_no_learning()
    assert not findings.learning_is_kept()


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
    paths[0].parent.mkdir()
    paths[0].touch()
    assert newest_profile("smollm2") == paths[0]
    assert newest_profile("owner/model") is None
    assert newest_profile("owner") is None, "a name that another one begins with"
    other = profile_path("owner", "float32", 2)
    other.with_stem(other.stem.replace("owner", "owner-b")).touch()
    assert newest_profile("owner") is None


def test_a_fetched_model_goes_by_its_name_however_it_was_loaded(cache):
    folder = model_folder("smollm2")
    folder.mkdir(parents=True)
    assert profile_path(str(folder), "float32", 2) == profile_path("smollm2", "float32", 2)
    assert setting_of(model(str(folder))).model == "smollm2"
    elsewhere = cache / "smollm2"
    elsewhere.mkdir()
    assert profile_path(str(elsewhere), "float32", 2) != profile_path("smollm2", "float32", 2)


@pytest.mark.parametrize("given", ["made/model", "made/../made/model", ".", "link"])
def test_a_profile_of_a_relative_folder_is_found_from_anywhere(cache, monkeypatch, given):
    folder = cache / "made" / "model"
    folder.mkdir(parents=True)
    (cache / "link").symlink_to(folder)
    monkeypatch.chdir(folder if given == "." else cache)
    assert profile_path(given, "float32", 2) == profile_path(str(folder), "float32", 2)


def test_the_setting_of_a_loaded_model():
    found = setting_of(model("owner/tiny", torch.bfloat16))
    assert found == Setting("owner/tiny", "bfloat16", torch.get_num_threads(), "cpu")
    assert setting_of(model("")) is None


def test_the_newest_profile_may_be_of_any_device_of_this_machine():
    for device in ("cpu", "cuda", "mps"):
        path = profile_path("owner/model", "float32", 2, device)
        path.parent.mkdir(exist_ok=True)
        path.touch()
        assert newest_profile("owner/model") is not None
        path.unlink()
    foreign = profile_path("owner/model", "float32", 2)
    foreign.with_stem(foreign.stem[:-8] + "01234567").touch()
    assert newest_profile("owner/model") is None


def test_the_machine_has_a_short_name_with_its_graphics_card(monkeypatch):
    assert processor()
    assert len(machine()) == 8
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    names = set()
    for card in ("one card", "another"):
        machine_module._card.cache_clear()
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda card=card: card)
        names |= {machine("cuda"), profile_path("m", "float32", 2, "cuda").stem[-8:]}
        assert machine("cpu") == machine()
    machine_module._card.cache_clear()
    assert len(names) == 2
    assert machine() not in names
