"""The file of what was learnt: back as it was, and clear words for whatever else a file can be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters.load import load as load_drafters
from draftwood.errors import FileFormatError, UsageError
from draftwood.planning.beliefs import Beliefs, Rates
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned
from draftwood.planning.learned_file import MAGIC, read_tuned, write_tuned
from draftwood.planning.load import load

SETTING = {"model": "owner/tiny", "threads": 2}
CURVE = CostCurve({128: {1: 0.02, 16: 0.04}})
(NGRAM,) = load_drafters("ngram")
LABELS = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=200)


def learnt(setting=SETTING, curve=CURVE):
    found = Learned(curve=curve, setting=setting)
    found.beliefs.rates(NGRAM, greedy=True).learn([0, 3, 3, 600], [True, False, True, True])
    return found


@pytest.fixture
def path(tmp_path):
    write_tuned(tmp_path / "new" / "tuned.json", learnt(), "tokens")
    return tmp_path / "new" / "tuned.json"


def edited(path, change):
    """Edit what a file says, with a checksum that fits."""
    from draftwood.planning.learned_file import _checksum

    found = json.loads(path.read_text())
    change(found)
    found["checksum"] = _checksum({name: found.get(name) for name in ("setting", "curve", "beliefs")})
    path.write_text(json.dumps(found))


@given(LABELS)
def test_rates_come_back_as_they_were(labels):
    rates = Rates(np.linspace(0.1, 0.9, 10, dtype=np.float32))
    for which, right in labels:
        rates.learn([which], [right])
    again = Rates(np.linspace(0.1, 0.9, 10, dtype=np.float32), json.loads(json.dumps(rates.to_json())))
    assert np.array_equal(again.accept_rates, rates.accept_rates)
    assert np.array_equal(again.hits, rates.hits)
    rates.learn([1], [True])
    again.learn([1], [True])
    assert np.array_equal(again.accept_rates, rates.accept_rates)


def test_rates_of_other_classes_are_left_alone():
    prior = np.full(4, 0.5, dtype=np.float32)
    assert not Rates(prior, {"classes": 5, "drift": 1.0, "labels": [[0, 1.0, 1.0]]}).totals.any()


def test_a_file_gives_back_what_was_learnt(path):
    found = Learned(setting=SETTING)
    read_tuned(path).start(found)
    assert found.curve == CURVE
    for greedy in (True, False):
        ours, theirs = (one.beliefs.rates(NGRAM, greedy=greedy) for one in (found, learnt()))
        assert np.array_equal(ours.accept_rates, theirs.accept_rates)
    assert json.loads(path.read_text())["tokenizer"] == "tokens"


def test_what_nobody_asked_for_is_kept_for_the_next_file(path, tmp_path):
    found = Learned(setting=SETTING)
    read_tuned(path).start(found)
    found.beliefs.rates(NGRAM, greedy=False).learn([1], [True])
    write_tuned(tmp_path / "again", found)
    assert {entry["greedy"] for entry in read_tuned(tmp_path / "again").beliefs} == {True, False}


def test_other_options_of_a_drafter_are_another_drafter(path):
    found = Learned(setting=SETTING)
    read_tuned(path).start(found)
    (other,) = load_drafters("ngram:length=5")
    assert not found.beliefs.rates(other, greedy=True).totals.any()


def test_what_is_known_already_stays(path):
    found = Learned(setting=SETTING)
    rates = found.beliefs.rates(NGRAM, greedy=True)
    rates.learn([5], [True])
    read_tuned(path).start(found)
    assert found.beliefs.rates(NGRAM, greedy=True) is rates
    assert rates.totals.sum() == 1


def test_costs_of_another_setting_are_left_out_and_beliefs_are_not(path):
    for setting in (None, {}, SETTING | {"threads": 4}):
        found = Learned(setting=setting)
        read_tuned(path).start(found)
        assert found.curve is None
        assert found.beliefs.rates(NGRAM, greedy=True).totals.sum() > 0


@pytest.mark.parametrize(
    "spec", ["goodput:tuned={}", "fixed:16:tuned={}", "off:tuned={}", "goodput:8: tuned = {}"]
)
def test_every_planner_takes_it(path, spec):
    learned = Learned(setting=SETTING)
    planner = load(spec.format(path), learned)
    assert planner.learned is learned
    assert learned.curve == CURVE


def test_a_planner_made_without_anything_takes_the_beliefs(path):
    assert load(f"fixed:tuned={path}").learned.beliefs.rates(NGRAM, greedy=True).totals.sum() > 0


def test_that_costs_are_left_out_is_said_once_and_only_where_there_is_a_target(tmp_path, caplog):
    path = tmp_path / "t"
    write_tuned(path, learnt(curve=CostCurve.of({1: 0.123})))
    load(f"fixed:tuned={path}")
    assert caplog.records == []
    for _ in range(2):
        load(f"fixed:tuned={path}", Learned())
    (record,) = caplog.records
    assert "nobody knows of which model and number format this target is" in record.getMessage()


def test_two_files_are_one_too_many(path):
    with pytest.raises(UsageError, match="given twice"):
        load(f"goodput:tuned={path}:tuned={path}")


def test_nothing_learnt_is_a_file_too(tmp_path):
    write_tuned(tmp_path / "t", Learned())
    found = read_tuned(tmp_path / "t")
    assert (found.curve, found.beliefs, found.setting) == (None, [], None)


@pytest.mark.parametrize("place", ["", "nowhere", "."])
def test_a_file_that_is_not_there(tmp_path, monkeypatch, place):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        load(f"goodput:tuned={place}")


@pytest.mark.parametrize(
    "data", [b"", b"\xff\xfe\x00", b"{}", b"[1]", b"[" * 100_000, b'{"magic": "other"}', b"null"]
)
def test_a_file_of_somebody_else(tmp_path, data):
    (tmp_path / "t").write_bytes(data)
    with pytest.raises(FileFormatError, match="is no file of draftwood tune"):
        read_tuned(tmp_path / "t")


def test_a_file_that_was_cut_or_changed(path):
    text = path.read_text()
    for broken in (text[: len(text) // 2], text.replace("600", "601"), text.replace("0.02", "0.03")):
        path.write_text(broken)
        with pytest.raises(FileFormatError, match="is damaged"):
            read_tuned(path)


def test_a_file_of_a_later_format(path):
    edited(path, lambda found: found.update(format=2))
    with pytest.raises(FileFormatError, match="has format 2, this version of draftwood reads 1"):
        read_tuned(path)


@pytest.mark.parametrize(
    "change",
    [
        {"curve": {"0": [[1, -1.0]]}}, {"curve": [1]}, {"curve": "x"}, {"beliefs": None}, {"beliefs": [{}]},
        {"beliefs": [3]}, {"setting": 5}, {"curve": {"0": [[1, float("nan")]]}},
    ],
)  # fmt: skip
def test_values_that_make_no_sense(path, change):
    edited(path, lambda found: found.update(change))
    with pytest.raises(FileFormatError, match="its values make no sense"):
        read_tuned(path)


@pytest.mark.parametrize(
    "change",
    [
        {"labels": [[700, 1.0, 1.0]]}, {"labels": [[-1, 1.0, 1.0]]}, {"labels": [[0, 2.0, 1.0]]},
        {"labels": [[0]]},
        {"labels": [[0.5, 1.0, 1.0]]}, {"drift": float("inf")}, {"drift": "x"}, {"classes": 0}, {"greedy": "yes"},
        {"weight": 0}, {"weight": None}, {"weight": float("nan")},
        {"labels": [[0, "a", 1.0]]}, {"labels": [[0, 1.0, float("inf")]]}, {"drafter": 3}, {"classes": 1 << 40},
    ],
)  # fmt: skip
def test_rates_that_make_no_sense(path, change):
    edited(path, lambda found: found["beliefs"][0].update(change))
    with pytest.raises(FileFormatError, match="its values make no sense"):
        read_tuned(path)


def test_a_place_that_cannot_be_written_leaves_nothing(tmp_path):
    (tmp_path / "t").mkdir()
    with pytest.raises(FileFormatError, match="cannot be written"):
        write_tuned(tmp_path / "t", learnt())
    assert [place.name for place in tmp_path.iterdir()] == ["t"]


def test_a_file_begins_with_its_magic(path):
    assert path.read_text().startswith('{"magic": "' + MAGIC)


def test_beliefs_of_nobody_are_none():
    assert Beliefs().to_json() == []
