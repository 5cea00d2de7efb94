"""Choosing among drafters with models, in turns."""

from __future__ import annotations

import random

import pytest

from draftwood.planning.turns import TURN, Turns


def run(turns: Turns, rates: list[float], steps: int, seed: int = 0) -> list[int]:
    """Steps that take about as long as always and give tokens about as their arms' rates."""
    draw, arms = random.Random(seed), []
    for _ in range(steps):
        arm = turns.arm()
        arms.append(arm)
        turns.learn(arm, rates[arm] * draw.uniform(0, 2), draw.uniform(0.8, 1.2))
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


def test_a_clock_that_jumps_decides_nothing():
    turns = Turns(2)
    run(turns, [3.0, 1.0], 200)
    turns.learn(0, 3.0, 1e9)
    assert run(turns, [3.0, 1.0], 200).count(0) > 150
