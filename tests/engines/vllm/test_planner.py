"""The planner for a batch of chains: as much as pays, learnt from what passes take."""

import numpy as np
import pytest

from draftwood.engines.vllm.planner import FixedChains, GoodputChains, planner_of
from draftwood.errors import UnknownNameError, UsageError


def trained(cost, rows=4, drafted=(0, 1, 2, 4, 8, 16, 32, 64), most=64):
    """A planner that has seen passes of this cost, in seconds by the number of drafted tokens."""
    planner = GoodputChains(most)
    rng = np.random.default_rng(0)
    for _ in range(60):
        for some in drafted:
            planner.learn(rows, some, rows, 100, cost(some) * rng.lognormal(0, 0.02))
    return planner


def reach(*rows, longest=16):
    found = np.zeros((len(rows), longest), dtype=np.float32)
    for row, rates in enumerate(rows):
        found[row, : len(rates)] = np.cumprod(rates)
    return found


CHANCES = reach([0.99] * 16, [0.5] * 8, [0.1] * 4, [])


def chosen(planner, chances=CHANCES):
    """What is drafted in most steps; now and then another number is tried."""
    every = [planner.choose(chances, len(chances), 100).tolist() for _ in range(15)]
    return max(every, key=every.count)


def test_between_them_the_likeliest_tokens_are_taken():
    every = [chosen(trained(lambda n, slope=slope: 0.02 + slope * n)) for slope in (1e-6, 0.0005, 0.002, 0.02)]
    sums = [sum(cuts) for cuts in every]
    assert sums == sorted(sums, reverse=True)
    assert sums[0] > sums[1] > sums[2] > sums[3] == 0
    for cuts in every[1:3]:
        assert cuts[0] >= 6
        assert cuts[0] > cuts[1] >= cuts[2] >= cuts[3] == 0


def test_a_jump_for_the_first_token_must_be_earned():
    planner = trained(lambda n: 0.02 + (0.02 if n else 0))
    assert chosen(planner, reach([0.9], [], [], [])) == [0, 0, 0, 0]
    assert sum(chosen(planner)) >= 16


def test_batches_of_other_sizes_have_costs_of_their_own():
    planner = trained(lambda n: 0.02 + 1e-6 * n, rows=2)
    for _ in range(60):
        for some in (0, 1, 2, 4, 8, 16, 32):
            planner.learn(32, some, 32, 100, 0.1 * (1 + some))
    assert sum(chosen(planner, CHANCES[:2])) >= 20
    assert not sum(chosen(planner, np.tile(CHANCES, (8, 1))))


def test_drafts_that_fail_raise_the_demand():
    planner, drafted = trained(lambda n: 0.02 + 0.002 * n), []
    for _ in range(60):
        drafted.append(int(planner.choose(CHANCES, 4, 100).sum()))
        planner.learn(4, drafted[-1], 4, 100, 0.02 + 0.002 * drafted[-1])
    assert all(drafted[:4])
    assert drafted.count(0) > 30


def test_where_drafts_save_nothing_drafters_are_asked_seldom():
    planner = trained(lambda n: 0.02 * (1 + n))
    asked, was = 0, False
    for _ in range(400):
        was = planner.wants_drafts(0.001 if was else 0.00001, asked=was)
        if was:
            asked += 1
            planner.choose(CHANCES, 4, 100)
    assert 10 < asked < 100


def test_a_fixed_number():
    planner = planner_of("fixed:3")
    assert isinstance(planner, FixedChains)
    assert planner.choose(CHANCES, 4, 100).tolist() == [3, 3, 3, 0]
    assert planner_of("threshold:0.3").choose(CHANCES, 4, 100).tolist() == [16, 1, 0, 0]
    assert planner_of("goodput:2").choose(CHANCES, 4, 100).max() <= 2
    assert not planner_of("off").wants_drafts(0.0, asked=False)


def test_a_wide_pass_is_not_tried_again_and_again_where_nothing_is_learnt_of_it():
    planner, many = GoodputChains(64), reach(*[[0.95] * 16] * 8)
    cuts = [int(planner.choose(many, 8, 100).sum()) for _ in range(60)]
    for _ in range(30):
        planner.learn(8, 0, 8, 100, 0.02)
        planner.learn(8, 8, 8, 100, 0.1)
    cuts = [int(planner.choose(many, 8, 100).sum()) for _ in range(60)]
    assert sum(cut > 8 for cut in cuts) <= 4


def test_other_planners_are_refused():
    with pytest.raises(UsageError, match="policies"):
        planner_of("thermal")
    with pytest.raises(UnknownNameError):
        planner_of("fixd")
