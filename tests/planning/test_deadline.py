"""Deadline: drafts as long as 95 of 100 steps are in time."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.states import FakeState

from draftwood.planning.policies.deadline import Deadline
from draftwood.step import Step


def run(policy, passes, cost, wish=16, rows=1):
    """Draft as much as allowed, wishing for so much; draft nodes and milliseconds of each pass.

    ``cost`` tells the milliseconds of a pass with so many draft nodes, or of one with its number.
    """
    states, found = [FakeState() for _ in range(rows)], []
    for number in range(passes):
        limits = [policy.limit(state, rows, 9).nodes for state in states]
        nodes = wish if limits[0] is None else min(wish, limits[0])
        ms = cost(nodes, number)
        for i, state in enumerate(states):
            state.step = Step(number, 50, drafted=nodes, score_s=(ms - rows + 1) / 1000, learn_s=0.001 * bool(i))
            policy.learn(state)
        found.append((nodes, ms))
    return found


def line(nodes, _):
    return 20 + nodes


def tail(found, last):
    return [nodes for nodes, _ in found[-last:]]


def test_quick_steps_are_left_alone():
    policy = Deadline(40)
    assert set(run(policy, 300, line)) == {(16, 36)}
    assert policy.limit(FakeState(), 1, 9).nodes is None


def test_slow_steps_halve_the_draft_until_they_are_in_time():
    found = run(Deadline(27), 40, line)
    assert [nodes for nodes, _ in found] == [16] * 4 + [8] * 4 + [4] * 32


def test_in_the_long_run_95_of_100_steps_are_in_time_and_drafts_are_as_long_as_that_allows():
    found = run(Deadline(27), 4000, line)
    late = [ms > 27 for _, ms in found[100:]]
    assert np.mean(late) < 0.05
    assert np.mean(tail(found, 3000)) >= 4


def test_when_the_machine_is_quick_again_drafts_grow_back():
    found = run(Deadline(40), 3000, lambda nodes, number: (60 if number < 200 else 20) + nodes / 2)
    assert set(tail(found, 500)) == {16}


def test_zero_probes_again_when_plain_steps_leave_room():
    policy = Deadline(30)
    found = run(policy, 800, lambda nodes, number: 20 + (30 * bool(nodes) if number < 100 else 0))
    assert 0 in [nodes for nodes, _ in found[:60]]
    assert found[-1][0] == 16


def test_where_plain_steps_are_late_a_deadline_gives_up_and_looks_again_much_later():
    policy = Deadline(10)
    found = run(policy, 1200, line)
    nodes = [n for n, _ in found]
    assert nodes[:24] == [16] * 4 + [8] * 4 + [4] * 4 + [2] * 4 + [1] * 4 + [0] * 4
    assert set(nodes[24:1048]) == {16}
    assert nodes[1048:1056] == [0] * 4 + [16] * 4
    assert (
        policy.limit(FakeState(), 1, 9).why
        == "p95 36.0 of 10 ms, and plain steps are late, too: short drafts cannot help"
    )


def test_where_some_plain_steps_are_late_nothing_is_drafted():
    found = run(Deadline(24), 500, lambda nodes, number: 20 + nodes + 10 * (number % 10 == 0))
    assert set(tail(found, 300)) == {0}


def test_a_deadline_that_gave_up_follows_a_machine_that_became_quick():
    policy = Deadline(30)
    run(policy, 50, lambda nodes, _: 50 + nodes)
    assert policy.limit(FakeState(), 1, 9).nodes is None
    run(policy, 100, lambda nodes, _: 20 + nodes / 4)
    assert "cannot help" not in policy.limit(FakeState(), 1, 9).why


def test_one_late_step_in_a_while_changes_nothing():
    policy = Deadline(40)
    found = run(policy, 1000, lambda _, number: 500 if number % 30 == 29 else 30)
    assert {nodes for nodes, _ in found} == {16}


def test_a_pass_counts_once_and_with_what_all_rows_take_beside_it():
    policy = Deadline(27)
    found = run(policy, 12, line, rows=4)
    assert [nodes for nodes, _ in found] == [16] * 4 + [8] * 4 + [4] * 4
    assert policy.limit(FakeState(), 1, 9).why == "p95 24.0 of 27 ms"


def test_probes_are_to_blame_as_drafts_are():
    policy, state = Deadline(30), FakeState()
    for number in range(8):
        lookahead_scored = 0 if policy.limit(state, 1, 9).nodes == 0 else 100
        seconds = 0.05 if lookahead_scored else 0.02
        state.step = Step(number, 50, lookahead_scored=lookahead_scored, score_s=seconds)
        policy.learn(state)
    assert policy.limit(state, 1, 9).nodes == 0
    assert "cannot help" not in policy.limit(FakeState(), 1, 9).why


def test_with_few_drafts_and_many_probes_two_halvings_end_both():
    policy, state, limits = Deadline(30), FakeState(), []
    for number in range(9):
        limits.append(policy.limit(state, 1, 9).nodes)
        drafted = 2 if limits[-1] is None else min(2, limits[-1])
        state.step = Step(number, 50, drafted=drafted, lookahead_scored=100 * bool(drafted), score_s=0.05)
        policy.learn(state)
    assert limits == [None] * 4 + [1] * 4 + [0]


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 0.0, 1e9])
def test_a_clock_that_jumps_teaches_nothing(seconds):
    policy, state = Deadline(40), FakeState(step=Step(0, 50, drafted=4, score_s=seconds))
    for _ in range(100):
        policy.limit(state, 1, 9)
        policy.learn(state)
    assert policy.limit(state, 1, 9).nodes is None
    assert policy.limit(FakeState(), 1, 9).why == "no step measured against 40 ms yet"


@given(st.lists(st.floats(1, 100), max_size=300), st.integers(0, 64))
def test_whatever_steps_take_the_limit_is_a_number_of_nodes_or_none(times, wish):
    policy = Deadline(50)
    run(policy, len(times), lambda _, number: times[number], wish)
    limit = policy.limit(FakeState(), 1, 9).nodes
    assert limit is None or 0 <= limit <= 64
