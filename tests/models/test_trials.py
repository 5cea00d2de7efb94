"""The file of remembered trials: bounded, whole or not there, and worth nothing where it is broken."""

from __future__ import annotations

import json

import pytest

from draftwood.models import trials


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(trials, "place", lambda: tmp_path / "folder" / "trials.json")
    return trials.place()


def test_what_was_remembered_is_there_again(file):
    assert trials.remembered("a") is None
    trials.remember("a", 2)
    trials.remember("b", 0)
    trials.remember("a", 1)
    assert (trials.remembered("a"), trials.remembered("b"), trials.remembered("c")) == (1, 0, None)


def test_lists_are_kept_too_and_are_no_numbers(file):
    trials.remember("a", [3, 0, 5])
    trials.remember("b", 4)
    assert (trials.remembered_list("a"), trials.remembered("a")) == ([3, 0, 5], None)
    assert (trials.remembered_list("b"), trials.remembered("b")) == (None, 4)


@pytest.mark.parametrize("broken", [[1, -2], [1, "x"], [1.5], [True], list(range(33)), [[1]]])
def test_lists_of_anything_else_are_ignored(file, broken):
    file.parent.mkdir()
    file.write_text(json.dumps({"a": broken, "b": 1}))
    assert (trials.remembered_list("a"), trials.remembered("b")) == (None, 1)


def test_the_oldest_go(file):
    for number in range(trials._MOST + 5):
        trials.remember(str(number), 0)
    kept = json.loads(file.read_text())
    assert len(kept) == trials._MOST
    assert "0" not in kept
    assert str(trials._MOST + 4) in kept


@pytest.mark.parametrize(
    "broken",
    [b"", b"{", b"\xff", b"[]", b"5", b'{"a": "x"}', b'{"a": -1}', b'{"a": true}', b"[" * 60000, b" " * 70000],
)
def test_a_broken_file_is_ignored_and_replaced(file, broken):
    file.parent.mkdir()
    file.write_bytes(broken)
    assert trials.remembered("a") is None
    trials.remember("a", 1)
    assert json.loads(file.read_text()) == {"a": 1}


def test_a_folder_that_cannot_be_written_to_keeps_nothing_and_costs_one_note(file, monkeypatch, caplog):
    monkeypatch.setattr("draftwood.files.unkept._SAID", set())
    file.parent.write_text("a file")
    for name in "abc":
        trials.remember(name, 1)
        assert trials.remembered(name) is None
    assert len(caplog.records) == 1
    assert "cannot be written" in caplog.text


def test_entries_of_a_newer_version_are_left_as_they_are(file):
    newer = {"new": {"kind": [1.5, None]}, "words": "x", "a": 3}
    file.parent.mkdir()
    file.write_text(json.dumps(newer))
    trials.remember("b", 1)
    assert json.loads(file.read_text()) == newer | {"b": 1}
    assert (trials.remembered("new"), trials.remembered_list("words"), trials.remembered("a")) == (None, None, 3)
