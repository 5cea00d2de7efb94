"""The policy that chooses who drafts by the kind of text."""

from __future__ import annotations

import gc
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import GREEDY, SAMPLED, greedy_truth, write
from tests.planning.states import FakeState

from draftwood.drafters.declaring import declared
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.errors import UsageError
from draftwood.planning.bandit import DWELL, FIRST
from draftwood.planning.base import Limit
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.learned import Learned
from draftwood.planning.load import load
from draftwood.planning.policies.switching import SwitchingPolicy
from draftwood.planning.turns import TURN
from draftwood.step import RunningStep, SourceStep
from draftwood.testing import RandomDrafter, SameDrafter, ToyTarget

GOOD, BAD = RandomDrafter(), RandomDrafter(seed=1)
CODE = "def f(x):\n    return x\n"


def after(
    policy: SwitchingPolicy, state: FakeState, *, accepted: tuple[int, ...] = (3, 0), rests: tuple[int, ...] = ()
) -> list[bool] | None:
    """One step, in which a pass over n tokens takes n + 10 ms; returns the mask of its asking."""
    mask = policy.limit(state, 1, 9).drafters
    asked = [i not in rests and (mask is None or mask[i]) for i in range(len(accepted))]
    sources = tuple(
        SourceStep(calls=int(on), asked=4, proposed=4 * on, kept=4 * on, accepted=n * on)
        for n, on in zip(accepted, asked, strict=True)
    )
    taken, kept = max(s.accepted for s in sources), sum(s.kept for s in sources)
    state.step = RunningStep(
        0, state.length, emitted=(1,) * (1 + taken), drafted=kept, accepted=taken, by_source=sources,
        score_s=0.001 * (11 + kept),
    )  # fmt: skip
    state.length += 1 + taken
    policy.learn(state)
    return mask if mask is None else list(mask)


def test_the_source_that_gives_more_is_asked_alone():
    policy, state = SwitchingPolicy(), FakeState(drafters=[BAD, GOOD])
    masks = [after(policy, state, accepted=(0, 3)) for _ in range(FIRST + 3 * DWELL)]
    assert masks[: FIRST - 1] == [None] * (FIRST - 1)
    assert masks.count([False, True]) > DWELL
    assert [True, False] not in masks


def test_the_kind_is_recognised_once_in_so_many_tokens():
    seen = []

    def decode(ids):
        seen.append(len(ids))
        return CODE

    policy = SwitchingPolicy(every=64, decode=decode)
    state = FakeState(drafters=[GOOD, BAD], ids=[1] * 1000, length=100)
    for state.length in (100, 130, 163, 164, 200, 50):  # the last: the next turn of an edited chat
        policy.limit(state, 1, 9)
    assert seen == [256] * 3
    assert policy.limit(state, 1, 9).why == "code: all drafters"


def test_without_a_tokenizer_all_text_is_of_one_kind():
    policy = SwitchingPolicy()
    assert (
        policy.limit(FakeState(drafters=[GOOD, BAD]), 1, 9).why
        == "text: all drafters, without a tokenizer all text counts as one kind"
    )


def test_a_tokenizer_that_raises_stops_nothing():
    def decode(ids):
        raise RuntimeError(ids)

    policy = SwitchingPolicy(decode=decode)
    limit = policy.limit(FakeState(drafters=[GOOD, BAD]), 1, 9)
    assert limit.drafters is None
    assert limit.why.startswith("text")


@pytest.mark.parametrize("drafters", [[], [GOOD], [None, GOOD], [None, None]])
def test_one_drafter_leaves_nothing_to_choose(drafters):
    def decode(ids):
        raise AssertionError(ids)

    policy = SwitchingPolicy(decode=decode)
    state = FakeState(drafters=drafters)
    assert policy.limit(state, 1, 9).drafters is None
    policy.learn(state)
    assert policy.limit(state, 1, 9).why == "one drafter: nothing to choose"


def test_all_draft_where_the_chosen_one_was_disabled():
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, BAD, BAD])
    while after(policy, state, accepted=(3, 0, 0)) is None:
        pass
    state.drafters = [None, BAD, BAD]
    assert policy.limit(state, 1, 9).drafters is None


def test_with_a_source_that_is_never_asked_it_learns_from_the_others():
    policy, state = SwitchingPolicy(), FakeState(drafters=[BAD, None, GOOD])
    masks = [after(policy, state, accepted=(0, 3, 3), rests=(1,)) for _ in range(FIRST + DWELL)]
    assert masks == [None] * FIRST + [[False, False, True]] * DWELL


def test_steps_in_which_nobody_was_asked_teach_nothing():
    policy, state = SwitchingPolicy(), FakeState(drafters=[BAD, GOOD])
    for _ in range(2000):
        assert after(policy, state, accepted=(0, 3), rests=(0, 1)) is None
    masks = [after(policy, state, accepted=(0, 3)) for _ in range(FIRST + DWELL)]
    assert masks == [None] * FIRST + [[False, True]] * DWELL


def test_each_request_of_a_batch_has_its_own_reason():
    texts = {1: CODE, 2: "Once upon a time there was a king who had no hat. " * 9}
    policy = SwitchingPolicy(decode=lambda ids: texts[ids[0]])
    states = [FakeState(drafters=[GOOD, BAD], ids=[1]), FakeState(drafters=[GOOD, BAD], ids=[2])]
    states.append(FakeState(drafters=[GOOD, None]))
    reasons = [policy.limit(state, 3, 9).why for state in states]
    assert reasons == ["code: all drafters", "prose: all drafters", "one drafter: nothing to choose"]
    policy.learn(states[0])
    assert policy._rows == 3


def test_where_nobody_will_be_asked_nothing_is_chosen():
    policy, state = SwitchingPolicy(decode=lambda _: CODE), FakeState(drafters=[GOOD, BAD])
    assert policy.limit(state, 1, 0) == Limit(why="nothing decided yet")
    assert not policy._requests
    said = policy.limit(state, 1, 9).why
    assert policy.limit(state, 1, 0) == Limit(why=said)


def test_sets_of_drafters_are_judged_apart():
    policy = SwitchingPolicy()
    for _ in range(FIRST + DWELL // 2):
        state = FakeState(drafters=[GOOD, BAD])
        after(policy, state)
    assert list(policy.limit(FakeState(drafters=[GOOD, BAD]), 1, 9).drafters) == [True, False]
    assert policy.limit(FakeState(drafters=[BAD, GOOD]), 1, 9).drafters is None


def test_the_next_turn_may_have_other_drafters():
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, BAD])
    for _ in range(FIRST + DWELL // 2):
        after(policy, state)
    state.drafters = [declared(drafter) for drafter in (GOOD, BAD, BAD)]
    assert policy.limit(state, 1, 9).drafters is None
    after(policy, state, accepted=(3, 0, 0))


def test_sets_that_never_come_again_are_forgotten():
    policy = SwitchingPolicy()
    for seed in range(600):
        policy.limit(FakeState(drafters=[GOOD, RandomDrafter(seed=seed)]), 1, 9)
    assert len(policy._bandits) <= 256


def test_a_request_is_let_go_of():
    policy, state = SwitchingPolicy(), FakeState(drafters=[GOOD, BAD])
    after(policy, state)
    assert len(policy._requests) == 1
    del state
    gc.collect()
    assert not policy._requests


A, B = DraftModelDrafter(length=5), DraftModelDrafter(length=6)


def turn(policy: SwitchingPolicy, state: FakeState, tokens: dict[int | None, int]) -> int | None:
    """One step; returns which of the drafters with a model may be asked. Each step takes as long."""
    mask = policy.limit(state, 1, 9).drafters
    owners = [i for i, drafter in enumerate(state.drafters) if drafter and drafter.needs.prices and mask[i]]
    assert all(mask[i] for i, drafter in enumerate(state.drafters) if drafter and not drafter.needs.prices)
    assert len(owners) < 2, "only the chosen one drafts"
    asked = owners[0] if owners else None
    sources = tuple(SourceStep(calls=int(on)) for on in mask)
    emitted = (1,) * tokens[asked]
    state.step = RunningStep(0, state.length, emitted=emitted, by_source=sources, score_s=0.01)
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
    assert policy.limit(state, 1, 9).why.startswith(
        "text: no draft model" if best is None else "text: draft-model"
    )


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
        after(policy, state)
        state.step.score_s = seconds
        policy.learn(state)
    for _ in range(FIRST + 64 * DWELL):
        mask = after(policy, state)
        if mask is not None:
            break
    assert mask == [True, False]


def test_it_never_changes_the_text():
    target = ToyTarget()
    planner = FixedPlanner(4, policies=[SwitchingPolicy(decode=lambda _: CODE)])
    written = write(target, [SameDrafter(target), RandomDrafter()], planner)
    assert written.ids == greedy_truth(target)


def test_it_is_made_by_name():
    (policy,) = load("fixed:8+switching:every=32", decode=lambda _: CODE).policies
    assert isinstance(policy, SwitchingPolicy)
    assert policy.every == 32
    assert policy.limit(FakeState(drafters=[GOOD, BAD]), 1, 9).why.startswith("code")


def test_looking_after_less_than_a_token_is_refused():
    with pytest.raises(UsageError, match="look again after 1 token or more"):
        SwitchingPolicy(every=0)
