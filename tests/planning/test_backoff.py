"""Back-off: three drafts in a row that brought nothing are followed by a pause, then one draft decides."""

from __future__ import annotations

import gc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import greedy_truth, write
from tests.planning.states import FakeState

from draftwood.decoding import loop
from draftwood.decoding.opening import open_sequences
from draftwood.decoding.request import Request
from draftwood.errors import UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.policies.backoff import Backoff
from draftwood.step import RunningStep
from draftwood.testing import EmptyDrafter, RandomDrafter, SameDrafter, ToyTarget
from draftwood.verify.exact import SampleAndMatch


def make_step(policy, state, accepted=0, depth=5, emitted=None):
    """One step of which so much came true; how many draft nodes it might have had."""
    limit = policy.limit(state, 1, 9).nodes
    drafted = depth if limit is None else min(depth, limit)
    accepted = min(accepted, drafted)
    tokens = accepted + 1 if emitted is None else emitted
    state.step = RunningStep(0, 50, emitted=(1,) * tokens, drafted=drafted, depth=drafted, accepted=accepted)
    policy.learn(state)
    return drafted


def test_three_misses_in_a_row_switch_drafting_off_for_fifty_tokens_and_one_draft_decides():
    policy, state = Backoff(), FakeState()
    drafts = [make_step(policy, state, accepted=1) for _ in range(3 + 50 + 1 + 50 + 1)]
    assert drafts == [5] * 3 + [0] * 50 + [5] + [0] * 50 + [5]


def test_a_draft_that_was_right_after_the_pause_switches_it_on_again():
    policy, state = Backoff(pause=4), FakeState()
    drafts = [make_step(policy, state, accepted) for accepted in (0, 0, 0, *[0] * 4, 2, 1, 1, 0, 0)]
    assert drafts == [5] * 3 + [0] * 4 + [5] * 4 + [0]


def test_misses_must_be_in_a_row():
    policy, state = Backoff(), FakeState()
    assert [make_step(policy, state, accepted) for accepted in (1, 1, 2) * 20] == [5] * 60


def test_steps_without_a_draft_count_neither_way():
    policy, state = Backoff(pause=2), FakeState()
    drafts = [make_step(policy, state, 0, depth) for depth in (5, 0, 5, 0, 5, 5, 5, 0, 5, 5)]
    assert drafts == [5, 0, 5, 0, 5, 0, 0, 0, 5, 0]


def test_a_short_draft_that_was_accepted_whole_is_no_miss():
    policy, state = Backoff(), FakeState()
    assert [make_step(policy, state, accepted=1, depth=1) for _ in range(9)] == [1] * 9
    assert [make_step(policy, state, accepted=0, depth=1) for _ in range(5)] == [1, 1, 1, 0, 0]


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


def test_it_says_why():
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


def test_the_next_turn_of_a_conversation_begins_afresh():
    policy, state = Backoff(), FakeState()
    for _ in range(4):
        make_step(policy, state)
    assert policy.limit(state, 1, 9).nodes == 0
    state.length = 80  # the same request goes on with another question
    assert policy.limit(state, 1, 9).nodes is None
    assert policy.limit(state, 1, 9).why == "nothing drafted yet"


def test_a_turn_that_is_as_long_as_the_last_one_is_known_by_its_first_step():
    policy, state = Backoff(pause=4), FakeState()
    for index in (0, 1, 2, 3):
        policy.limit(state, 1, 9)
        state.step = RunningStep(index, 50, emitted=(1,), drafted=5 * (index < 3), depth=5)
        policy.learn(state)
    assert policy.limit(state, 1, 9).nodes == 0
    state.step = RunningStep(0, 50, emitted=(1,))
    policy.learn(state)
    assert policy.limit(state, 1, 9).nodes is None


def test_in_a_conversation_no_turn_pays_for_the_last_one():
    target = ToyTarget()
    planner = FixedPlanner(5, policies=[Backoff(pause=1000)])
    rule, (first, second) = SampleAndMatch(), [Request(prompt, 30) for prompt in ((1, 2), (3, 4, 5))]
    with open_sequences(target, [RandomDrafter()], [first], rule) as (row,):
        for _ in loop.decode_sequences(target, planner, [row]):
            pass
        assert row.step.held == ("backoff",) or not row.step.drafted
        row.turn(second)
        steps = [one.step for one in loop.decode_sequences(target, planner, [row]) if one.step is not None]
    assert [bool(step.drafted) for step in steps[:4]] == [True, True, True, False]


def test_in_the_loop_it_changes_speed_and_no_text():
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
def test_whatever_happens_it_tries_again_after_the_pause(steps, misses, accepted, pause):
    policy, state = Backoff(misses, accepted, pause), FakeState()
    off = 0
    for right, depth in steps:
        off = off + 1 if policy.limit(state, 1, 9).nodes == 0 else 0
        assert off <= pause
        make_step(policy, state, right, depth)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"misses": 0}, "misses is 0"), ({"accepted": -1}, "accepted is -1"), ({"pause": 0}, "pause is 0")],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Backoff(**options)
