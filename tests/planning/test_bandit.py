"""Choosing among drafters by what each would have given."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.planning.bandit import ALL, DWELL, FIRST, Bandit


def run(bandit: Bandit, rates: list[float], steps: int, *, kind: str = "text", seed: int = 0) -> list[int]:
    """Steps of one second, in which arms give tokens about as their rates; all share the luck of a step."""
    draw, arms = random.Random(seed), []
    for _ in range(steps):
        arm, luck = bandit.arm(kind), draw.uniform(0, 2)
        arms.append(arm)
        if arm == ALL:
            bandit.learn_all(kind, [(rate * luck, 1.0) for rate in rates])
        else:
            bandit.learn_one(kind, arm, rates[arm] * luck, 1.0)
    return arms


@pytest.mark.parametrize(("rates", "best"), [([2.0, 1.0, 2.5], 2), ([2.0, 2.6, 1.0], 1), ([3.0, 2.0, 2.5], ALL)])
def test_the_best_arm_is_found_and_kept(rates, best):
    arms = run(Bandit(2), rates, 3000)
    assert arms[:FIRST] == [ALL] * FIRST
    assert arms[FIRST:].count(best) > 0.9 * (3000 - FIRST)


def test_a_bad_arm_is_never_tried():
    arms = run(Bandit(3), [2.0, 0.5, 2.5, 1.0], 5000)
    assert set(arms) == {ALL, 2}


def test_a_steady_state_costs_at_most_two_percent():
    rates = [2.8, 1.0, 3.0]
    arms = run(Bandit(2), rates, 6000)[1000:]
    assert sum(rates[arm] for arm in arms) > 0.98 * max(rates) * len(arms)


def test_comparisons_grow_rarer():
    arms = run(Bandit(2), [2.0, 1.0, 2.5], 8000)
    assert arms[FIRST:2000].count(ALL) > 2 * arms[6000:].count(ALL)


def test_of_arms_that_are_alike_the_first_stays():
    bandit = Bandit(3)
    arms = run(bandit, [2.9, 3.0, 3.05, 3.0], 4000)
    assert set(arms) == {ALL, 1}


def test_it_follows_when_another_arm_becomes_the_better_one():
    bandit = Bandit(2)
    assert run(bandit, [2.0, 2.5, 1.0], 1000)[-1] == 1
    assert run(bandit, [2.0, 1.0, 2.5], 6000, seed=1)[-DWELL:].count(2) >= DWELL // 2


def test_each_kind_of_text_has_its_own_choice():
    bandit, arms = Bandit(2), {}
    for turn in range(40):
        for kind, rates in (("code", [2.0, 3.0, 0.5]), ("chat", [2.0, 0.5, 3.0])):
            arms[kind] = run(bandit, rates, 100, kind=kind, seed=turn)
    assert arms["code"].count(1) > 60
    assert arms["chat"].count(2) > 60


def test_a_new_kind_begins_with_what_is_good_for_others():
    bandit = Bandit(2)
    run(bandit, [2.0, 1.0, 2.5], 500, kind="code")
    assert run(bandit, [2.0, 1.0, 2.5], DWELL, kind="prose") == [2] * DWELL


def test_what_an_arm_really_gives_corrects_its_credit():
    bandit = Bandit(1)
    credited, real = [2.0, 2.4], 1.2
    arms = []
    for _ in range(4000):
        arms.append(bandit.arm("text"))
        if arms[-1] == ALL:
            bandit.learn_all("text", [(one, 1.0) for one in credited])
        else:
            bandit.learn_one("text", 1, real, 1.0)
    assert 1 in arms
    assert arms[-1000:].count(ALL) > 900


def test_an_arm_that_nothing_is_told_of_is_unknown_and_the_others_are_learnt():
    bandit, arms = Bandit(3), []
    for _ in range(FIRST + DWELL):
        arms.append(bandit.arm("text"))
        if arms[-1] == ALL:
            bandit.learn_all("text", [(2.0, 1.0), (1.0, 1.0), None, (2.5, 1.0)])
        else:
            bandit.learn_one("text", arms[-1], 2.5, 1.0)
    assert arms == [ALL] * FIRST + [3] * DWELL


def test_a_few_lucky_steps_do_not_make_an_arm_known():
    bandit = Bandit(2)
    for step in range(FIRST):
        bandit.learn_all("text", [(2.0, 1.0), (2.5, 1.0), (9.0, 1.0) if step < 15 else None])
    assert bandit.arm("text") == 1


def test_steps_in_which_nobody_was_asked_change_no_value_and_shorten_no_comparison():
    bandit = Bandit(2)
    for _ in range(FIRST - 1):
        bandit.learn_all("text", [(2.0, 1.0), (1.0, 1.0), (2.5, 1.0)])
    for _ in range(500):
        assert bandit.arm("text") == ALL
        bandit.idle("text")
    bandit.learn_all("text", [(2.0, 1.0), (1.0, 1.0), (2.5, 1.0)])
    assert bandit.arm("text") == 2


def test_a_drafter_in_use_that_is_not_asked_is_compared_with_the_others():
    bandit = Bandit(2)
    assert run(bandit, [2.0, 1.0, 2.5], FIRST + DWELL)[-1] == 2
    arms = []
    for _ in range(2 * DWELL):
        arms.append(bandit.arm("text"))
        bandit.idle("text")
    assert arms[-1] == ALL


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b"]), st.floats(0, 1e9), st.floats(1e-300, 1e9), st.booleans(), st.booleans()
        ),
        max_size=300,
    )
)
def test_no_tokens_and_no_seconds_upset_it(steps):
    bandit = Bandit(2)
    for kind, tokens, seconds, odd, told in steps:
        arm = bandit.arm(kind)
        assert arm in range(3)
        assert bandit.arm(kind) == arm
        if arm == ALL and told:
            last = (tokens if odd else 0.0, 2 * seconds)
            bandit.learn_all(kind, [(tokens, seconds), None if odd else (1.0, seconds), last])
        else:
            bandit.learn_one(kind, arm, tokens, seconds)
