"""The policy that keeps to the drafter that gives most."""

from __future__ import annotations

import gc
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import GREEDY, SAMPLED, write
from tests.planning.states import FakeState
from tests.toys import RandomDrafter

from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.planning.base import Limit
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.learned import Learned
from draftwood.planning.policies.switching import TURN, SwitchingPolicy, Turns
from draftwood.step import SourceStep, Step
from draftwood.testing import ToyTarget

GOOD, BAD = RandomDrafter(), RandomDrafter(seed=1)


def asked_of(policy, state):
    """Return which drafters may be asked."""
    return list(policy.limit(state, 1, 9).drafters or [True] * len(state.drafters))


def after(policy, state, accepted=(0, 3), calls=None):
    """One step, in which a pass over n tokens takes n + 10 ms; returns who was asked."""
    mask = asked_of(policy, state)
    sources = tuple(
        SourceStep(calls=int(on if calls is None else calls), kept=4 * on, accepted=n * on)
        for n, on in zip(accepted, mask, strict=True)
    )
    taken, kept = max(s.accepted for s in sources), sum(s.kept for s in sources)
    state.step = Step(
        0, state.length, emitted=(1,) * (1 + taken), drafted=kept, accepted=taken, by_source=sources,
        score_s=0.001 * (11 + kept),
    )  # fmt: skip
    state.length += 1 + taken
    policy.learn(state)
    return mask


def test_the_drafter_that_gives_more_is_asked_alone():
    policy, state = SwitchingPolicy(), FakeState(drafters=[BAD, GOOD])
    masks = [after(policy, state) for _ in range(20 * TURN)]
    assert masks[0] == [True, True]
    assert masks[5 * TURN :].count([False, True]) > 0.7 * 15 * TURN
    assert policy.limit(state, 1, 9).why == GOOD.name


@pytest.mark.parametrize("drafters", [[], [GOOD], [None, GOOD], [None, None]])
def test_one_drafter_leaves_nothing_to_choose(drafters):
    policy, state = SwitchingPolicy(), FakeState(drafters=drafters)
    assert policy.limit(state, 1, 9) == Limit(why="one drafter: nothing to choose")
    policy.learn(state)


def test_a_drafter_that_was_disabled_is_not_chosen():
    policy, state = SwitchingPolicy(), FakeState(drafters=[BAD, GOOD, BAD])
    for _ in range(10 * TURN):
        after(policy, state, (0, 3, 0))
    state.drafters[1] = None
    assert not any(after(policy, state, (0, 0, 0))[1] for _ in range(4 * TURN) if sum(asked_of(policy, state)) < 3)


def test_steps_in_which_nobody_was_asked_teach_nothing():
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, BAD])
    for _ in range(100):
        after(policy, state, calls=0)
    (turns,) = policy._turns.values()
    assert not any(tally.tried for tally in turns._tallies)
    assert policy.limit(state, 1, 0).drafters is None, "where nobody will be asked nothing is chosen"


def test_sets_of_drafters_are_judged_apart_and_a_request_is_let_go_of():
    policy, state = SwitchingPolicy(), FakeState(drafters=[BAD, GOOD])
    for _ in range(10 * TURN):
        after(policy, state)
    other = FakeState(drafters=[GOOD, RandomDrafter(seed=5)])
    assert asked_of(policy, other) == [True, True]
    state.drafters = other.drafters  # the next turn may have others
    assert asked_of(policy, state) == [True, True]
    assert len(policy._requests) == 2
    del state, other
    gc.collect()
    assert not policy._requests


A, B = DraftModelDrafter(length=5), DraftModelDrafter(length=6)


def turn(policy: SwitchingPolicy, state: FakeState, tokens: dict[int | None, int]) -> int | None:
    """One step; returns which of the drafters with a model may be asked. Each step takes as long."""
    mask = asked_of(policy, state)
    owners = [i for i, drafter in enumerate(state.drafters) if drafter and drafter.needs.prices and mask[i]]
    assert all(mask[i] for i, drafter in enumerate(state.drafters) if drafter and not drafter.needs.prices)
    assert len(owners) < 2, "only the chosen one drafts"
    asked = owners[0] if owners else None
    sources = tuple(SourceStep(calls=int(on)) for on in mask)
    emitted = (1,) * tokens[asked]
    state.step = Step(0, state.length, emitted=emitted, by_source=sources, score_s=0.01)
    state.length += tokens[asked]
    policy.learn(state)
    return asked


@pytest.mark.parametrize("best", [None, 1, 2])
def test_of_drafters_with_models_only_the_best_one_is_asked(best):
    tokens = dict.fromkeys((None, 1, 2), 2) | {best: 4}
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, A, B])
    asked = [turn(policy, state, tokens) for _ in range(400)]
    assert set(asked[: 3 * TURN]) == {None, 1, 2}, "each was tried"
    assert asked[100:].count(best) > 250
    assert policy.limit(state, 1, 9).why.startswith("no draft model" if best is None else "draft-model")


def test_a_model_whose_drafter_failed_is_not_chosen():
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, A, B])
    for _ in range(200):
        turn(policy, state, {None: 1, 1: 4, 2: 2})
    state.drafters[1] = None
    asked = [turn(policy, state, {None: 1, 2: 2}) for _ in range(200)]
    assert set(asked) == {None, 2}


def test_what_was_learnt_of_models_is_kept_for_other_calls():
    learned = Learned()
    first = FakeState(drafters=[GOOD, A, B])
    policy = SwitchingPolicy(learned=learned)
    for _ in range(300):
        turn(policy, first, {None: 1, 1: 2, 2: 4})
    policy, state = SwitchingPolicy(learned=learned), FakeState(drafters=[GOOD, A, B])
    asked = [turn(policy, state, {None: 1, 1: 2, 2: 4}) for _ in range(50)]
    assert asked.count(2) > 40
    for seed in range(600):
        policy.limit(FakeState(drafters=[A, RandomDrafter(seed=seed)]), 1, 9)
    assert len(learned.turns) <= 256


def test_switching_among_draft_models_changes_no_text():
    target = ToyTarget()
    drafters = [DraftModelDrafter(target=ToyTarget(order=order), length=4 + order) for order in (1, 2, 3)]
    for sampling in (GREEDY, SAMPLED):
        plain = write(ToyTarget(), limit=80, sampling=sampling).ids
        planner = FixedPlanner(4, policies=[SwitchingPolicy()])
        written = write(target, [*drafters, RandomDrafter()], planner, limit=80, sampling=sampling)
        assert written.ids == plain
        assert all(sum(source.calls for source in step.by_source[:3]) <= 1 for step in written.steps)


@given(st.lists(st.sampled_from([0.0, -1.0, 1e-12, 0.01, 1e9, math.inf, -math.inf, math.nan]), max_size=200))
def test_a_clock_that_jumps_upsets_nothing(times):
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, BAD])
    for seconds in times:
        after(policy, state, (3, 0))
        state.step.score_s = seconds
        policy.learn(state)
    masks = [after(policy, state, (3, 0)) for _ in range(600)]
    assert masks[300:].count([True, False]) > 150


def run_arms(turns: Turns, rates: list[float], steps: int) -> list[int]:
    """Steps that take about as long as always and give tokens about as their arms' rates."""
    draw, arms = random.Random(0), []
    for _ in range(steps):
        arm = turns.arm()
        arms.append(arm)
        turns.learn(arm, rates[arm] * draw.uniform(0, 2), draw.uniform(0.8, 1.2))
    return arms


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_best_arm_is_found_and_kept(best):
    rates = [2.0, 2.0, 2.0]
    rates[best] = 3.0
    arms = run_arms(Turns(3), rates, 3000)
    assert set(arms[: 3 * TURN]) == {0, 1, 2}, "each is tried"
    assert arms[200:].count(best) > 0.85 * len(arms[200:])


def test_a_turn_is_not_interrupted():
    arms = run_arms(Turns(3), [1.0, 2.0, 3.0], 40 * TURN)
    for begin in range(0, len(arms), TURN):
        assert len(set(arms[begin : begin + TURN])) == 1


def test_what_becomes_better_is_found_again():
    turns = Turns(2)
    run_arms(turns, [3.0, 2.0], 1500)
    arms = run_arms(turns, [3.0, 4.5], 4000)
    assert arms[-1000:].count(1) > 800
