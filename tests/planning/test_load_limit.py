"""Load: the more texts want the machine, the shorter their drafts."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import greedy_truth, write_batch
from tests.planning.scripted import Clock
from tests.planning.states import FakeState

from draftwood.decoding.request import Request
from draftwood.errors import UsageError
from draftwood.planning.base import Limit
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.load_limit import LoadLimit
from draftwood.testing import SameDrafter, ToyTarget


class Server:
    """A policy on a server whose load is set by hand."""

    def __init__(self, **options):
        self.clock, self.waiting = Clock(), 0
        self.policy = LoadLimit(queue=lambda: self.waiting, clock=self.clock, **options)

    def step(self, seconds, rows, waiting=0):
        """The limit of a step of so many rows after which so many wait."""
        self.clock.now += seconds
        state = FakeState()
        limit = self.policy.limit(state, rows, 9).nodes
        self.waiting = waiting
        for _ in range(rows):
            self.policy.learn(state)
        return limit


def test_one_text_is_free_and_sixteen_draft_nothing():
    limits = [LoadLimit().limit(FakeState(), rows, 9).nodes for rows in (1, 2, 4, 8, 12, 14, 15, 16, 99)]
    assert limits == [None, 7, 6, 4, 2, 1, 0, 0, 0]


def test_texts_that_wait_count_as_those_that_run():
    server = Server()
    assert [server.step(0.1, 1, waiting) for waiting in (0, 3, 15, 15)] == [None, None, 6, 0]


def test_it_shortens_at_once_and_lengthens_when_the_load_has_stayed_low():
    server = Server()
    found = [server.step(0.5, rows) for rows in (1, 16, *[1] * 6)]
    assert found == [None, 0, 0, 0, 0, 0, None, None]


def test_a_load_that_jumps_about_does_not_make_it_flap():
    server = Server()
    assert {server.step(0.1, rows) for rows in [5, *[1, 5] * 50]} == {5}


def test_a_clock_that_was_set_back_does_not_hold_it_for_ever():
    server = Server()
    server.step(1000, 16)
    server.step(-900, 1)
    assert server.step(0.1, 1) is None


@pytest.mark.parametrize("broken", [lambda: 1 / 0, lambda: "many", lambda: None, lambda: -5, lambda: float("nan")])
def test_a_queue_that_cannot_be_asked_is_an_empty_one(broken):
    policy = LoadLimit(queue=broken)
    policy.limit(FakeState(), 1, 9)
    policy.learn(FakeState())
    assert policy.limit(FakeState(), 1, 9).nodes is None
    assert policy.limit(FakeState(), 1, 9).why == "1 running and 0 waiting"


def test_the_queue_is_asked_once_per_pass():
    asked = []
    policy = LoadLimit(queue=lambda: asked.append(1) or 2)
    states = [FakeState() for _ in range(4)]
    for _ in range(3):
        for state in states:
            policy.limit(state, 4, 9)
        for state in states:
            policy.learn(state)
    assert len(asked) == 3


def test_it_says_why():
    policy, state = LoadLimit(queue=lambda: 0), FakeState()
    assert policy.limit(state, 8, 9) == Limit(4, None, "8 running and 0 waiting")
    policy.learn(state)
    assert policy.limit(state, 3, 9) == Limit(4, None, "3 running and 0 waiting, 8 within the last 2 s")
    server = Server()
    server.step(0.1, 2, waiting=3)
    assert server.policy.limit(state, 2, 9).why == "2 running and 3 waiting"


@given(st.integers(1, 20), st.integers(0, 64))
def test_more_load_never_means_longer_drafts(full, most):
    limits = [LoadLimit(full, most).limit(FakeState(), rows, 9).nodes for rows in range(1, 25)]
    sizes = [most if limit is None else limit for limit in limits]
    assert all(before >= after for before, after in itertools.pairwise(sizes))
    assert set(sizes[full - 1 :]) == {0}


def test_in_a_batch_it_changes_speed_and_no_text():
    target = ToyTarget()
    prompts = [(1, 2, 0, 1, 2), (3, 4), (5,), (1, 1)]
    requests = [Request(prompt, 40 + 30 * i) for i, prompt in enumerate(prompts)]
    planner = FixedPlanner(5, policies=[LoadLimit(full=4, most=4, dwell=0)])
    written = write_batch(target, [SameDrafter(target)], requests, planner)
    for one, prompt, request in zip(written, prompts, requests, strict=True):
        assert one.ids == greedy_truth(target, prompt, request.limit)
    last = written[-1].steps
    assert last[0].drafted == 0
    assert last[0].held == ("load",)
    assert max(step.drafted for step in last) == 5
    sizes = [step.drafted for step in last[:-1]]
    assert sizes == sorted(sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"full": 0}, "full is 0"), ({"most": -1}, "most is -1"), ({"dwell": -1}, "dwell is -1"),
     ({"dwell": float("nan")}, "dwell is nan")],
)  # fmt: skip
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        LoadLimit(**options)
