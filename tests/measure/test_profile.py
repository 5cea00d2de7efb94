"""Profiles of toys: what is visited, what is kept, what is written."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from draftwood.api.learned import read_profile
from draftwood.errors import RecordError, UsageError
from draftwood.local import crowding
from draftwood.measure.profile.rows import PassCase, Profile, spread, write_profile
from draftwood.measure.profile.sweep import CONTEXTS, ROUNDS, SIZES, profile
from draftwood.testing import ToyTarget

SETTINGS = {"model": "toy", "dtype": "float32", "threads": 1, "device": "cpu"}


class Watched(ToyTarget):
    """A toy that notes what it scores."""

    def __init__(self, **options):
        super().__init__(**options)
        self.seen = []
        self.fails_at = None

    def score(self, requests):
        ((session, _, tree),) = requests
        self.seen.append(PassCase(session.length, 1 + len(tree)))
        if len(self.seen) == self.fails_at:
            raise KeyboardInterrupt
        return super().score(requests)


def made():
    """A profile whose numbers are known."""
    result = Profile()
    for context, k in ((128, 1), (512, 2)):
        for n in (1, 16):
            result.passes[PassCase(context, n)] = [k * n * s for s in (0.01, 0.03, 0.02)]
    result.prefill = {128: [0.5], 512: [2.0]}
    return result


def test_every_round_visits_every_case_once_in_another_order():
    target = Watched()
    result = profile(target, sizes=(1, 4, 16), contexts=(8, 32), rounds=4)
    cases = [PassCase(c, n) for c in (8, 32) for n in (1, 4, 16)]
    rounds = np.reshape([cases.index(case) for case in target.seen], (5, len(cases))).tolist()
    assert all(sorted(one) == list(range(len(cases))) for one in rounds)
    assert rounds[0] == sorted(rounds[0]), "the first one warms up"
    assert len({tuple(one) for one in rounds}) == 5
    assert {len(seconds) for seconds in result.passes.values()} == {4}
    assert set(result.passes) == set(cases)
    assert result.rounds == 4
    assert target.open_sessions == 0


def test_defaults_fit_the_model():
    result = profile(ToyTarget(max_positions=600, max_pass=32), rounds=1)
    assert result.contexts == [128, 512]
    assert list(result.line(128)) == [n for n in SIZES if n <= 32]
    assert CONTEXTS[-1] > 600
    assert profile(ToyTarget(max_positions=64), rounds=1).contexts == [31]


def test_a_target_that_takes_nothing_back_is_measured_token_by_token():
    result = profile(ToyTarget(rollback="none"), contexts=(8,), rounds=1)
    assert list(result.line(8)) == [1]


def test_rounds_end_with_the_time_or_the_limit(monkeypatch):
    clock = iter(range(10**9))
    monkeypatch.setattr("draftwood.measure.profile.sweep.perf_counter", lambda: float(next(clock)))
    few = profile(ToyTarget(), sizes=(1,), contexts=(8,), seconds=1)
    assert few.rounds == 3
    assert profile(ToyTarget(), sizes=(1,), contexts=(8,), seconds=10**6).rounds == ROUNDS


def test_an_interrupt_keeps_finished_rounds():
    target, result = Watched(), Profile()
    target.fails_at = 2 + 2 * 3 + 1  # warming up, three rounds of two, one more pass
    with pytest.raises(KeyboardInterrupt):
        profile(target, sizes=(1, 2), contexts=(8,), rounds=9, into=result)
    assert result.rounds == 3
    assert {len(seconds) for seconds in result.passes.values()} == {3}
    assert target.open_sessions == 0


@pytest.mark.parametrize(("options", "said"), [
    ({"sizes": (0, 1)}, "sizes from 1 on"), ({"contexts": (0,)}, "context length 0"),
    ({"contexts": (5000,)}, "nothing to measure"), ({"sizes": ()}, "nothing to measure"),
    ({"rounds": 0}, "rounds is 0"), ({"seconds": 0}, "seconds is 0"),
])  # fmt: skip
def test_what_cannot_be_measured(options, said):
    with pytest.raises(UsageError, match=said):
        profile(ToyTarget(), **({"contexts": (8,), "sizes": (1,)} | options))


def test_figures_of_known_seconds():
    result = made()
    medians = [(row["context"], row["n"], row["median_s"]) for row in result.rows() if row["row"] == "pass"]
    assert medians == [(128, 1, 0.02), (128, 16, 0.32), (512, 1, 0.04), (512, 16, 0.64)]
    assert spread([1.0, 2.0, 3.0, 4.0, 5.0]) == {"median_s": 3.0, "q1_s": 2.0, "q3_s": 4.0, "rounds": 5}
    assert spread([2.0]) == {"median_s": 2.0, "q1_s": 2.0, "q3_s": 2.0, "rounds": 1}


def test_what_is_written_is_read_as_the_same_curve(tmp_path):
    path, result = tmp_path / "deep" / "p.jsonl", made()
    write_profile(path, result, SETTINGS)
    assert list(read_profile(path)[1].points()) == [
        (128, 1, 0.02),
        (128, 16, 0.32),
        (512, 1, 0.04),
        (512, 16, 0.64),
    ]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert (rows[0]["verb"], rows[0]["settings"]) == ("profile", SETTINGS)
    assert rows[0]["provenance"]["cores"]
    assert {row["row"] for row in rows[1:]} == {"pass", "prefill"}
    assert [path.name for path in path.parent.iterdir()] == ["p.jsonl"]


@pytest.fixture
def _a_quiet_machine():
    """Here the machine is what a test makes it."""


def test_noise_is_told(monkeypatch):
    monkeypatch.setattr(crowding, "_processor_times", dict)  # of a system that does not say what others took
    result = made()
    assert result.doubt(2) == "equal passes took unequal times"
    result.passes = {case: [s[2]] * 3 for case, s in result.passes.items()}
    assert result.doubt(2) == ""
    times = iter([{"idle": 0.0, "user": 0.0}, {"idle": 0.5, "user": 1.5}, {"idle": 0.5, "user": 1.5}])
    monkeypatch.setattr(crowding, "_processor_times", lambda: next(times))
    monkeypatch.setattr(crowding, "_ALLOWED", [0, 5])
    monkeypatch.setattr(os, "times", lambda: (0.0,) * 5)
    result.others = crowding.Others()
    assert result.doubt(2) == "other programs took 1.5 of 2 cores meanwhile"


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "p.jsonl").mkdir()
    with pytest.raises(RecordError, match="cannot be written"):
        write_profile(tmp_path / "p.jsonl", made(), SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["p.jsonl"]
