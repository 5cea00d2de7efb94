"""Drafters that need scores rest while they save less than they take."""

from __future__ import annotations

import pytest
from tests.planning.states import FakeState

from draftwood.contracts import Needs
from draftwood.drafters.base import BaseDrafter
from draftwood.planning import watching
from draftwood.planning.watching import Watching

TAKES = 0.0004


class Recycler(BaseDrafter):
    name = "recycler"

    @property
    def needs(self):
        return Needs(top_k=4)

    def open(self, prompt, noise):
        raise NotImplementedError


class Copier(Recycler):
    name = "copier"

    @property
    def needs(self):
        return Needs()


@pytest.fixture
def saves(monkeypatch):
    """Seconds that each drafter saves in a step, to be changed by the test."""
    now = [0.0]
    monkeypatch.setattr(watching, "gain", lambda *_: now[0])
    return now


def steps(budget: Watching, count: int, state: FakeState) -> list[bool]:
    """Take steps; returns in which of them the recycler rested."""
    found = []
    for _ in range(count):
        budget.begin([state])
        resting = "recycler" in {label.partition(" ")[0] for label in budget.resting}
        found.append(resting)
        if not resting:
            budget.learn([state], [], [0.01, 0.011], 1)
        state.step.emitted = (1,)
        state.step.learn_s = 0.0 if resting else TAKES
    return found


def made() -> FakeState:
    return FakeState(drafters=[Copier(), Recycler()])


def test_one_that_saves_nothing_rests_ever_longer(saves):
    found = steps(Watching(), 2000, made())
    assert not any(found[:24]), "it is tried first"
    assert sum(found) > 0.9 * len(found)
    assert not all(found[-600:]), "and is tried again"


def test_one_that_saves_more_than_it_takes_never_rests(saves):
    saves[0] = 2 * TAKES
    assert not any(steps(Watching(), 1000, made()))


def test_one_that_has_become_useful_is_asked_again(saves):
    budget, state = Watching(), made()
    assert any(steps(budget, 200, state))
    saves[0] = 5 * TAKES
    steps(budget, 600, state)
    assert not any(steps(budget, 200, state))


def test_one_that_needs_no_scores_is_none_of_its_business(saves):
    budget, state = Watching(), FakeState(drafters=[Copier(), None])
    steps(budget, 500, state)
    assert not budget.resting
    assert not budget.why()


def test_it_says_who_rests_and_names_no_options(saves):
    budget = Watching()
    assert steps(budget, 26, made())[-1]
    assert budget.why() == ["recycler rests for 31 steps: it takes more time than it saves"]


def test_steps_that_are_traced_take_longer_and_do_not_count(saves):
    state = made()
    state.traced = True
    assert not any(steps(Watching(), 200, state))
