"""What a pass with a draft adds to the plain one behind it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.planning.switch_cost import SwitchCost

PLAIN = 0.005


def after(*excesses: float, plain: bool = True) -> SwitchCost:
    cost = SwitchCost()
    for excess in excesses:
        cost.learn(plain=plain, excess=excess, expected=PLAIN)
    return cost


def test_it_is_what_plain_passes_behind_drafts_take_longer():
    assert after(*[0.001] * 200).charge == pytest.approx(0.001, rel=0.01)


def test_where_drafts_follow_drafts_nothing_is_added():
    cost = after(*[0.001] * 200)
    for _ in range(200):
        cost.learn(plain=False, excess=0.001, expected=PLAIN)
    assert cost.charge < 1e-6
    assert cost.behind == pytest.approx(0.001, rel=0.01)


def test_it_is_never_a_gain():
    assert after(*[-0.001] * 50).charge == 0


@given(st.lists(st.floats(), max_size=20))
def test_it_is_a_number_and_bounded_whatever_the_clock_says(excesses):
    assert 0 <= after(*excesses).charge <= PLAIN / 2


def test_it_is_kept():
    cost = after(0.001, 0.002)
    assert SwitchCost.restored(cost.state()).charge == pytest.approx(cost.charge, rel=1e-4)


@pytest.mark.parametrize("damaged", [None, [], [1.0], [math.nan, 0.5], [0.1, 2.0], ["a", 0.5], 3])
def test_what_is_damaged_is_refused(damaged):
    with pytest.raises((TypeError, ValueError)):
        SwitchCost.restored(damaged)
