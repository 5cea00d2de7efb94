"""Back-off: a pause after three drafts that brought nothing. Load: the more texts, the shorter their drafts."""

import gc
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import go_on, greedy_truth, opened, write, write_batch
from tests.planning.scripted import Clock
from tests.planning.states import FakeState
from tests.toys import EmptyDrafter, RandomDrafter, SameDrafter

from draftwood.decoding.request import Request
from draftwood.planning.base import Limit
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.backoff_and_load import Backoff, LoadLimit
from draftwood.step import Step
from draftwood.testing import ToyTarget


def make_step(policy, state, accepted=0, depth=5, emitted=None):
    """One step of which so much came true; how many draft nodes it might have had."""
    limit = policy.limit(state, 1, 9).nodes
    drafted = depth if limit is None else min(depth, limit)
    accepted = min(accepted, drafted)
    tokens = accepted + 1 if emitted is None else emitted
    state.step = Step(0, 50, emitted=(1,) * tokens, drafted=drafted, depth=drafted, accepted=accepted)
    policy.learn(state)
    return drafted


@pytest.mark.parametrize(
    ("options", "steps", "drafts"),
    [
        ({}, [(1, 5)] * 105, [5] * 3 + [0] * 50 + [5] + [0] * 50 + [5]),
        ({"pause": 4}, [(n, 5) for n in (0, 0, 0, *[0] * 4, 2, 1, 1, 0, 0)], [5] * 3 + [0] * 4 + [5] * 4 + [0]),
        ({}, [(n, 5) for n in (1, 1, 2) * 20], [5] * 60),  # misses must be in a row
        ({"pause": 2}, [(0, n) for n in (5, 0, 5, 0, 5, 5, 5, 0, 5, 5)], [5, 0, 5, 0, 5, 0, 0, 0, 5, 0]),
        ({}, [(1, 1)] * 9 + [(0, 1)] * 5, [1] * 9 + [1, 1, 1, 0, 0]),  # accepted whole is no miss
    ],
)
def test_misses_in_a_row_switch_drafting_off_for_a_pause_and_one_draft_decides(options, steps, drafts):
    policy, state = Backoff(**options), FakeState()
    assert [make_step(policy, state, accepted, depth) for accepted, depth in steps] == drafts


def test_the_pause_is_counted_in_tokens():
    policy, state = Backoff(misses=1, pause=10), FakeState()
    assert [make_step(policy, state, emitted=5) for _ in range(5)] == [5, 0, 0, 5, 0]


def test_requests_are_judged_apart_and_forgotten_with_their_end():
    policy, lucky, poor = Backoff(), FakeState(), FakeState()
    for _ in range(4):
        make_step(policy, poor)
        make_step(policy, lucky, accepted=5)
    assert (policy.limit(lucky, 2, 9).nodes, policy.limit(poor, 2, 9).nodes) == (None, 0)
    del lucky, poor
    gc.collect()
    assert len(policy._turns) == 0


def test_backoff_says_why():
    policy, state = Backoff(pause=20), FakeState()
    policy.limit(state, 1, 9)
    assert policy.limit(state, 1, 9).why == "nothing drafted yet"
    make_step(policy, state, accepted=2)
    assert policy.limit(state, 1, 9).why == "the last draft was accepted"
    make_step(policy, state)
    assert policy.limit(state, 1, 9).why == "1 draft in a row failed"
    for _ in range(5):
        make_step(policy, state)
    policy.limit(state, 1, 9)
    assert policy.limit(state, 1, 9).why == "drafts kept failing, 17 tokens of the pause to go"
    for _ in range(16):
        make_step(policy, state)
    assert policy.limit(state, 1, 9).why == "drafts kept failing, 1 token of the pause to go"
    make_step(policy, state)
    policy.limit(state, 1, 9)
    assert policy.limit(state, 1, 9).why == "a pause is over, the next draft decides"
    make_step(policy, state, accepted=2)
    assert policy.limit(state, 1, 9).why == "the last draft was accepted"


def test_a_turn_that_is_as_long_as_the_last_one_is_known_by_its_first_step():
    policy, state = Backoff(pause=4), FakeState()
    for index in (0, 1, 2, 3):
        policy.limit(state, 1, 9)
        state.step = Step(index, 50, emitted=(1,), drafted=5 * (index < 3), depth=5)
        policy.learn(state)
    assert policy.limit(state, 1, 9).nodes == 0
    state.step = Step(0, 50, emitted=(1,))
    policy.learn(state)
    assert policy.limit(state, 1, 9).nodes is None


def test_in_a_conversation_no_turn_pays_for_the_last_one():
    target = ToyTarget()
    planner = FixedPlanner(5, policies=[Backoff(pause=1000)])
    with opened(target, [RandomDrafter()], Request((1, 2), 30)) as row:
        go_on(target, row, planner)
        assert row.step.held == ("backoff",) or not row.step.drafted
        row.turn(Request((3, 4, 5), 30))
        steps = go_on(target, row, planner).steps
    assert [bool(step.drafted) for step in steps[:4]] == [True, True, True, False]


def test_in_the_loop_backoff_changes_speed_and_no_text():
    target = ToyTarget()
    truth = greedy_truth(target, limit=200)
    written = write(target, [RandomDrafter()], FixedPlanner(5, policies=[Backoff()]), limit=200)
    assert written.ids == truth
    drafted = [step.drafted for step in written.steps]
    assert sum(map(bool, drafted)) <= 20
    assert all(step.held == ("backoff",) for step in written.steps if not step.drafted and step.context < 190)
    good = write(target, [SameDrafter(target)], FixedPlanner(5, policies=[Backoff()]), limit=200)
    assert good.ids == truth
    assert all(step.drafted for step in good.steps[:-1])
    assert write(target, [EmptyDrafter()], FixedPlanner(5, policies=[Backoff()]), limit=60).ids == truth[:60]


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=80),
    st.integers(1, 4), st.integers(0, 3), st.integers(1, 9),
)  # fmt: skip
def test_whatever_happens_backoff_tries_again_after_the_pause(steps, misses, accepted, pause):
    policy, state = Backoff(misses, accepted, pause), FakeState()
    off = 0
    for right, depth in steps:
        off = off + 1 if policy.limit(state, 1, 9).nodes == 0 else 0
        assert off <= pause
        make_step(policy, state, right, depth)


# --- load ------------------------------------------------------------------------------------------------------


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


def test_the_load_limit_shortens_drafts_at_once_and_lengthens_when_the_load_has_stayed_low():
    server = Server()
    found = [server.step(0.5, rows) for rows in (1, 16, *[1] * 6)]
    assert found == [None, 0, 0, 0, 0, 0, None, None]


def test_a_load_that_jumps_about_does_not_make_the_limit_flap():
    server = Server()
    assert {server.step(0.1, rows) for rows in [5, *[1, 5] * 50]} == {5}


def test_a_clock_that_was_set_back_does_not_hold_a_limit_for_ever():
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


def test_the_load_says_why():
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


def test_in_a_batch_the_load_limit_changes_speed_and_no_text():
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
