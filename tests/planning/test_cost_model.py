"""What a pass is believed to take: a curve, corrected by the passes that were made."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftwood.contracts import Prices
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel, Pace, SwitchCost

CURVE = CostCurve.parse("1=20,2=21,4=22,8=25,16=30,32=45,64=80")
DEEP = CostCurve({0: {1: 0.02, 16: 0.03, 64: 0.08}, 4096: {1: 0.04, 16: 0.06, 64: 0.2}})
STEEP = CostCurve.parse("1=9,2=16,4=24,8=40,16=75,32=155")


def taught(model, truth, widths, *, context=100, times=1):
    for _ in range(times):
        for n in widths:
            model.learn(n, context, truth.seconds(n, context))
    return model


def off(model, truth, n, context=100):
    """How far the belief is from the truth, as a ratio."""
    return abs(math.log(model.seconds(n, context) / truth.seconds(n, context)))


@pytest.mark.parametrize("n", [1, 2, 3, 7, 16, 40, 64, 200])
def test_a_cost_model_begins_with_what_was_measured(n):
    assert CostModel(CURVE).seconds(n, 100) == pytest.approx(CURVE.seconds(n, 100))


@given(st.lists(st.tuples(st.integers(1, 300), st.floats(1e-4, 1)), max_size=30), st.integers(0, 5000))
@example([(128, 1.0), (65, 1.0), (1, 1.0)], 31)
def test_the_table_holds_what_seconds_says(passes, context):
    model = CostModel(DEEP)
    for n, seconds in passes:
        model.learn(n, context, seconds)
        model.table(30, context + 1)
    table = model.table(80, context)
    assert table.shape == (81,)
    near = context & ~31  # where the table's curve is taken
    believed = [model.seconds(n, near) for n in range(1, len(model._base))]
    assert np.allclose(table[1:], [min(believed[n:]) for n in range(80)], rtol=1e-9), "no wider one is cheaper"
    assert (table > 0).all()


def test_a_machine_that_is_slower_as_a_whole_is_slower_at_widths_that_were_not_seen():
    slow = CostCurve.of({n: 1.3 * s for _, n, s in CURVE.points()})
    model = taught(CostModel(CURVE), slow, [1, 8], times=20)
    assert max(off(model, slow, n) for n in (1, 2, 4, 8, 16, 32)) < 0.03


def test_without_a_curve_a_few_passes_tell_it():
    model = taught(CostModel(), STEEP, [1, 2, 4, 8, 16], times=2)
    assert max(off(model, STEEP, n) for n in (1, 2, 4, 8, 16)) < 0.1
    assert model.seconds(1, 0) < 0.0095 < 0.07 < model.seconds(16, 0)


def test_one_interrupted_pass_is_not_believed():
    model = taught(CostModel(CURVE), CURVE, [1, 8], times=30)
    model.learn(8, 100, 50 * CURVE.seconds(8, 100))
    assert off(model, CURVE, 8) < 0.12
    taught(model, CURVE, [8], times=10)
    assert off(model, CURVE, 8) < 0.05


@pytest.mark.parametrize("factor", [3.0, 1 / 3, 10.0])
def test_a_machine_that_changed_is_followed_within_a_dozen_passes(factor):
    changed = CostCurve.of({n: factor * s for _, n, s in CURVE.points()})
    model = taught(CostModel(CURVE), CURVE, [1, 8, 16], times=40)
    taught(model, changed, [8, 16], times=6)
    assert max(off(model, changed, n) for n in (8, 16)) < 0.1


@pytest.mark.parametrize(("n", "factor", "learnt"), [(1, 1.08, [0]), (1, 1.5, range(1, 10)), (8, 1.02, [10])])
def test_of_plain_passes_only_those_that_surprise_are_learnt_from(n, factor, learnt):
    """Learning from one in four of all takes 5 us a pass more, and gained nothing in replay."""
    model = CostModel(CURVE)
    for _ in range(40):
        model.learn(1, 128, CURVE.seconds(1, 128))
    before, changed = model.logs, 0
    for _ in range(40):
        model.learn(n, 128, factor * CURVE.seconds(n, 128))
        changed, before = changed + (model.logs != before), model.logs
    assert changed in learnt


def test_slow_passes_of_a_busy_machine_make_no_width_dear():
    model, random = taught(CostModel(CURVE), CURVE, [1, 4], times=10), np.random.default_rng(0)
    for number, n in enumerate(random.choice([1, 4], 400, p=[0.8, 0.2]).tolist()):
        slower = random.choice([max(1.0, 2.4 - 0.3 * (number % 20)), 2, 3], p=[0.9, 0.07, 0.03])  # answers of 20
        model.learn(n, 100, slower * CURVE.seconds(n, 100))
        assert number < 50 or 0.6 < model.seconds(4, 100) / model.seconds(1, 100) / 1.1 < 1.7


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 4000.0, -math.inf])
def test_times_that_no_pass_can_take_are_ignored(seconds):
    model = CostModel(CURVE)
    model.learn(4, 100, seconds)
    model.learn(0, 100, 0.1)  # a pass over nothing
    assert (model.passes, off(model, CURVE, 4)) == (0, 0)


def test_a_profile_in_which_wide_passes_are_dear_is_believed():
    truth = CostCurve.of({1: 0.02, 2: 0.1, 16: 0.12})
    model = taught(taught(CostModel(truth), truth, [1]), truth, [2], times=200)
    assert max(off(model, truth, n) for n in (1, 2, 16)) < 0.01


def test_hours_at_one_width_leave_the_others_believable():
    model = taught(CostModel(CURVE), CURVE, [8], times=50_000)
    assert max(off(model, CURVE, n) for n in (1, 8, 64)) < 0.05
    taught(model, CURVE, [1])
    assert max(off(model, CURVE, n) for n in (1, 2, 8, 16)) < 0.05


@given(st.lists(st.tuples(st.integers(1, 5000), st.floats(1e-9, 3000)), max_size=60))
def test_whatever_is_learnt_a_cost_model_gives_costs(passes):
    model = CostModel(None)
    for n, seconds in passes:
        model.learn(n, 10, seconds)
    table = model.table(64, 10)
    assert np.isfinite(table).all()
    assert (table > 0).all()


def test_widths_that_were_not_seen_for_long_are_stale():
    assert CostModel().stale(8, 1, 64) == [12, 6, 1], "of a guess all are"
    model = CostModel(CURVE)
    assert model.stale(8, 1, 64) == [], "a measurement has seen them"
    taught(model, CURVE, [8], times=32)
    assert model.stale(8, 1, 64) == [12, 6, 1]
    taught(model, CURVE, [6, 12, 1])
    assert model.stale(8, 1, 64) == []
    taught(model, CURVE, [8], times=32)
    assert model.stale(8, 1, 64) == [12, 6, 1]
    assert model.stale(8, 5, 11) == [6, 5], "within what can be chosen"
    assert model.stale(1, 1, 1) == []


def test_a_copy_for_passes_of_another_kind_begins_with_the_same_and_learns_faster():
    slow = CostCurve.of({n: 1.5 * s for _, n, s in CURVE.points()})
    model = taught(CostModel(CURVE), CURVE, [1, 8], times=30)
    twin = model.widened()
    assert twin.seconds(8, 100) == model.seconds(8, 100)
    assert off(taught(twin, slow, [8]), slow, 8) < off(taught(model, slow, [8]), slow, 8)


# --- a change of width -----------------------------------------------------------------------------------------


PLAIN = 0.005


def after(*excesses: float) -> SwitchCost:
    cost = SwitchCost()
    for excess in excesses:
        cost.learn(plain=True, excess=excess, expected=PLAIN)
    return cost


def test_the_switch_cost_is_what_plain_passes_after_drafts_take_longer_and_nothing_where_drafts_follow():
    cost = after(*[0.001] * 200)
    assert cost.charge == pytest.approx(0.001, rel=0.01)
    for _ in range(200):
        cost.learn(plain=False, excess=0.001, expected=PLAIN)
    assert cost.charge < 1e-6
    assert cost.after == pytest.approx(0.001, rel=0.01)


@given(st.lists(st.floats(), max_size=20))
def test_the_switch_cost_is_a_number_and_bounded_whatever_the_clock_says(excesses):
    assert 0 <= after(*excesses).charge <= PLAIN / 2


# --- the worth of a token --------------------------------------------------------------------------------------


def state(emitted=(1,), score_s=0.02, overhead_s=0.0, length=50):
    return SimpleNamespace(
        length=length, step=SimpleNamespace(emitted=emitted, score_s=score_s, overhead_s=overhead_s)
    )


def measured(*widths):
    return taught(CostModel(), CostCurve.of({n: 0.02 + 0.001 * (n - 1) for n in (1, 64)}), widths, times=40)


def test_nothing_is_said_before_a_pass_was_measured():
    assert Pace().prices(CostModel(), [state()]) == Prices()


def test_a_token_is_worth_less_than_a_plain_pass_at_first_and_never_more():
    model = measured(1)
    prices = Pace().prices(model, [state()])
    assert prices.pass_s == pytest.approx(0.02, rel=0.05)
    assert prices.token == pytest.approx(0.6)
    slow = Pace()
    for _ in range(30):
        slow.learn([state(overhead_s=0.1)])
    assert slow.prices(model, [state()]).token == 1


def test_fast_texts_make_tokens_cheap():
    pace = Pace()
    for _ in range(100):
        pace.learn([state(emitted=(1, 2, 3, 4))])
    assert pace.prices(measured(1), [state()]).token == pytest.approx(0.25, rel=0.1)


def test_a_node_costs_nothing_until_a_draft_was_measured():
    assert Pace().prices(measured(1), [state()]).node == 0
    assert Pace().prices(measured(1, 2, 4, 9), [state()]).node == pytest.approx(0.05, rel=0.3)


def test_texts_that_share_a_pass_share_its_worth():
    prices = Pace().prices(measured(1, 2, 3, 4), [state(), state()])
    assert prices.token == pytest.approx(0.3)


# --- exploring -------------------------------------------------------------------------------------------------


def test_costs_of_a_busy_hour_are_found_out():
    model = CostModel(CostCurve.of({1: 0.06, 2: 0.07, 16: 0.1}))
    for _ in range(200):
        model.learn(1, 64, 0.06)
        model.learn(2, 64, 3.0)
    assert 0.12 < model.seconds(2, 64) < 0.25, "more than its tokens one by one is hardly believed"
    for passes in range(3000):  # noqa: B007 - read behind the loop
        times = model.times(1, 3, 64)
        best = max(range(3), key=lambda n: (1, 1.9, 2.7)[n] / times[n])
        model.earn(1)
        count, _ = model.explored(1, [1.0, 1.9, 2.7], times, best, 0.0)
        model.learn(1 + count, 64, took := (0.06, 0.07, 0.075)[count])
        model.regretted(took / 0.06 - 1 if count != best else 0)
        if model.seconds(3, 64) < 0.09:
            break
    assert passes < 1000
