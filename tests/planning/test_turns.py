"""Choosing among drafters with models, in turns."""

from __future__ import annotations

import random

import pytest

from draftwood.planning.turns import TURN, Turns


def run(turns: Turns, rates: list[float], steps: int, *, kind: str = "text", seed: int = 0) -> list[int]:
    """Steps that take about as long as always and give tokens about as their arms' rates."""
    draw, arms = random.Random(seed), []
    for _ in range(steps):
        arm = turns.arm(kind)
        arms.append(arm)
        turns.learn(kind, arm, rates[arm] * draw.uniform(0, 2), draw.uniform(0.8, 1.2))
    return arms


@pytest.mark.parametrize("best", [0, 1, 2])
def test_the_best_arm_is_found_and_kept(best):
    rates = [2.0, 2.0, 2.0]
    rates[best] = 3.0
    arms = run(Turns(3), rates, 3000)
    assert set(arms[: 3 * TURN]) == {0, 1, 2}, "each is tried"
    assert arms[200:].count(best) > 0.85 * len(arms[200:])


def test_a_turn_is_not_interrupted():
    arms = run(Turns(3), [1.0, 2.0, 3.0], 40 * TURN)
    for begin in range(0, len(arms), TURN):
        assert len(set(arms[begin : begin + TURN])) == 1


def test_what_becomes_better_is_found_again():
    turns = Turns(2)
    run(turns, [3.0, 2.0], 1500)
    arms = run(turns, [3.0, 4.5], 4000)
    assert arms[-1000:].count(1) > 800


def test_kinds_of_text_are_told_apart_and_begin_with_what_others_know():
    turns = Turns(3)
    for _ in range(20):
        run(turns, [1.0, 3.0, 2.0], 4 * TURN, kind="code")
        run(turns, [1.0, 2.0, 3.0], 4 * TURN, kind="prose")
    code = run(turns, [1.0, 3.0, 2.0], 400, kind="code")
    prose = run(turns, [1.0, 2.0, 3.0], 400, kind="prose")
    assert code.count(1) > 300
    assert prose.count(2) > 300
    new = run(turns, [1.0, 3.0, 3.1], 2 * TURN, kind="chat")
    assert 0 not in new, "what is bad everywhere is not tried first"


def test_a_clock_that_jumps_decides_nothing():
    turns = Turns(2)
    run(turns, [3.0, 1.0], 200)
    turns.learn("text", 0, 3.0, 1e9)
    assert run(turns, [3.0, 1.0], 200).count(0) > 150
