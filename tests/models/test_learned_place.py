"""The files of what was learnt: one per setting, bounded, whole or not there, and worth nothing where broken."""

from __future__ import annotations

import json
import logging
import os

import pytest

from draftwood.models import learned_place
from draftwood.models.learned_place import files, folder, place_of, read, write
from draftwood.models.profile_place import Setting
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import FORMAT, Learned

CURVE = CostCurve.parse("1=20,2=21,4=22,8=25,16=30")
SETTING = Setting("owner/tiny", "float32", 2)


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(learned_place, "_SAID", set())
    monkeypatch.setattr("draftwood.files.unkept._SAID", set())


def taught():
    learned = Learned(curve=CURVE)
    for _ in range(20):
        learned.cost(1).learn(1, 64, 0.03)
    return learned


def test_what_was_written_is_read():
    path = place_of(SETTING, packed=True)
    assert read(path, CURVE) is None
    write(path, taught())
    assert read(path, CURVE).cost(1).passes == 20
    assert files() == [path]


def test_every_setting_has_a_file_of_its_own(tmp_path, monkeypatch):
    model = tmp_path / "model.gguf"
    model.write_bytes(b"GGUF")
    other = [SETTING._replace(threads=1), SETTING._replace(dtype="bfloat16"), SETTING._replace(model=str(model))]
    places = {place_of(setting, packed=True) for setting in (SETTING, *other)}
    places.add(place_of(SETTING, packed=False))
    model.write_bytes(b"GGUF, another one")
    places.add(place_of(other[-1], packed=True))
    monkeypatch.setattr(learned_place, "version", lambda _: "99")
    places.add(place_of(SETTING, packed=True))
    assert len(places) == 7


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"format": 2}', b"\xff", b"[" * 100_000, b" " * (1 << 21)]
)
def test_a_broken_file_costs_one_note_and_is_written_anew(content, caplog):
    path = place_of(SETTING, packed=True)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="draftwood"):
        assert read(path, CURVE) is None
        assert read(path, CURVE) is None
    assert len(caplog.messages) == 1
    write(path, taught())
    assert read(path, CURVE) is not None


def test_a_folder_that_cannot_be_written_to_costs_one_note(caplog, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("DRAFTWOOD_CACHE", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, logger="draftwood"):
        for _ in range(3):
            write(place_of(SETTING, packed=True), taught())
    assert len(caplog.messages) == 1
    assert "cannot be written" in caplog.text


def test_a_clock_that_went_back_does_not_lose_what_was_just_written(monkeypatch):
    monkeypatch.setattr(learned_place, "_MOST_FILES", 3)
    for n in range(3):
        write(path := folder() / f"{n}.json", taught())
        os.utime(path, (4e9 + n, 4e9 + n))
    write(path := folder() / "new.json", taught())
    assert path in files()
    assert [path.name for path in files()] == ["new.json", "1.json", "2.json"]


def test_the_oldest_files_go(monkeypatch):
    monkeypatch.setattr(learned_place, "_MOST_FILES", 3)
    for n in range(5):
        write(path := folder() / f"{n}.json", taught())
        os.utime(path, (n + 1, n + 1))
    assert [path.name for path in files()] == ["2.json", "3.json", "4.json"]


def test_it_can_be_switched_off(monkeypatch):
    for said, kept in (("off", False), ("0", False), ("on", True), ("", True)):
        monkeypatch.setenv("DRAFTWOOD_LEARNED", said)
        assert learned_place.is_kept() == kept


def test_a_written_file_is_plain_json():
    write(path := place_of(SETTING, packed=True), taught())
    assert json.loads(path.read_text())["format"] == FORMAT
