"""Asking sources has to pay, or they rest."""

from __future__ import annotations

import math

import pytest
from tests.planning.states import FakeState

from draftwood.planning.cooldown import Cooldown

PLAIN, UNASKED, ASKED = 0.010, 0.0001, 0.0004


def steps(rest, count, gain, state=None):
    """Take steps whose drafts save so many seconds; returns in which of them sources were asked."""
    state, found = state or FakeState(), [True]
    for _ in range(count):
        found.append(rest.begin([state], asked=found[-1]))
        if found[-1]:
            rest.learn(gain, PLAIN, keep_on=False)
        state.step.draft_s = ASKED if found[-1] else UNASKED
    return found[1:]


def test_what_saves_more_than_it_takes_is_asked_in_every_step():
    assert all(steps(Cooldown(), 100, 0.0005))


def test_what_saves_nothing_is_asked_ever_more_rarely():
    rest = Cooldown()
    steps(rest, 100, 0.0)
    assert 0.0002 < rest.cost < 0.0004
    assert 5 <= sum(steps(rest, 100, 0.0)) <= 9, "a quarter of a percent of the time: one step in 13"


def test_one_step_that_saves_much_ends_the_cooldown():
    rest, state = Cooldown(), FakeState()
    steps(rest, 100, 0.0, state)
    steps(rest, 20, 0.02, state)
    assert all(steps(rest, 10, 0.0, state)), "and some more are asked"


def test_where_a_pass_takes_long_nobody_rests():
    rest, state = Cooldown(), FakeState()
    for _ in range(100):
        assert rest.begin([state], asked=True)
        rest.learn(0.0, 100 * PLAIN, keep_on=False)
        state.step.draft_s = ASKED


def test_who_has_to_be_asked_is_asked():
    rest = Cooldown()
    for _ in range(100):
        assert rest.begin([FakeState()], asked=True)
        rest.learn(0.0, PLAIN, keep_on=True)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0])
def test_odd_seconds_change_nothing(seconds):
    rest, state = Cooldown(), FakeState()
    steps(rest, 10, 0.0005, state)
    before = rest.overhead
    state.step.draft_s = seconds
    rest.begin([state], asked=True)
    assert rest.overhead == before


def test_seconds_of_a_traced_step_are_not_believed():
    rest, state = Cooldown(), FakeState(traced=True)
    steps(rest, 10, 0.0005, state)
    assert rest.overhead == 0.0


def test_steps_in_which_the_text_repeats_itself_are_counted_apart():
    """Copies pay and nothing else does: drafters are asked where the text repeats itself, hardly elsewhere."""
    rest, state, asked = Cooldown(), FakeState(), {True: [], False: []}
    was = True
    for step in range(600):
        repeating = step % 5 == 0
        was = rest.begin([state], asked=was, repeating=repeating)
        asked[repeating].append(was)
        if was:
            rest.learn(0.002 if repeating else 0.0, PLAIN, keep_on=False)
        state.step.draft_s = ASKED if was else UNASKED
    assert all(asked[True])
    assert sum(asked[False][100:]) < 0.1 * len(asked[False][100:])
