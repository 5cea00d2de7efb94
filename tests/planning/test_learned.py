"""What planners learnt goes into JSON and back: the same rates and seconds, and nothing from what is damaged."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from draftwood.api.learned import from_record, to_record
from draftwood.contracts.declaring import declared
from draftwood.drafters.load import load
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.kept import rates_record
from draftwood.planning.learned import Learned

CURVE = CostCurve.parse("1=20,2=21,4=22,8=25,16=30,32=45,64=80")
NGRAM, OTHER = (declared(one) for one in load("ngram+lookup"))


def taught(curve=CURVE, factor=1.4):
    learned = Learned(curve=curve)
    for _ in range(40):
        for width in (1, 2, 4, 8, 16):
            learned.cost(1).learn(width, 128, factor * CURVE.seconds(width))
            learned.cost(4).learn(width, 128, factor * CURVE.seconds(width))
    classes = [n % len(NGRAM.prior) for n in range(200)]
    learned.beliefs.rates(NGRAM, greedy=True).learn(classes, [n % 3 == 0 for n in range(200)])
    return learned


def through_json(learned, curve=CURVE):
    return from_record(json.loads(json.dumps(to_record(learned), allow_nan=False)), curve)


def test_costs_and_rates_are_those_that_were_learnt():
    before = taught()
    after = through_json(through_json(before))  # rates that are not used in between are kept, too
    for rows in (1, 4):
        for width in (1, 3, 8, 40):
            now, then = (known.cost(rows).seconds(width, 128) for known in (after, before))
            assert now == pytest.approx(then, 1e-3)
    rates = after.beliefs.rates(NGRAM, greedy=True)
    own = before.beliefs.rates(NGRAM, greedy=True)
    own.drift, own._accept_rates = 0.0, None  # it follows one text, and is not kept
    assert np.allclose(rates.accept_rates, own.accept_rates, atol=1e-3)
    assert not any(after.beliefs.rates(NGRAM, greedy=False).totals)
    assert not any(after.beliefs.rates(OTHER, greedy=True).totals)


def test_a_known_machine_is_not_explored_and_believed_to_be_known():
    cost = through_json(taught()).cost(1)
    assert cost.measured
    assert cost.exploration_budget == 0
    assert cost.stale(4, 1, 64) == []


def test_a_machine_that_is_slower_today_is_followed_at_once():
    cost = through_json(taught(factor=1.0)).cost(1)
    for _ in range(4):
        cost.learn(1, 128, 1.5 * CURVE.seconds(1))
    assert cost.seconds(8, 128) == pytest.approx(1.5 * CURVE.seconds(8), rel=0.15)


def test_costs_learnt_on_another_curve_are_left_out_and_rates_are_not():
    after = through_json(taught(), CostCurve.parse("1=5,16=50"))
    assert after.costs == {}
    assert any(after.beliefs.rates(NGRAM, greedy=True).totals)
    assert through_json(taught(None), None).cost(1).passes


def test_only_the_drafters_used_last_are_kept():
    learned = through_json(taught())
    for n in range(5):
        learned.beliefs.kept[f"{n} greedy"] = {}
    assert len(rates_record(learned.beliefs, 3)) == 3
    assert [*rates_record(learned.beliefs, 3)][-1] == [*rates_record(learned.beliefs, 9)][-1]


def test_nothing_in_a_record_of_what_was_learnt_is_a_name_or_a_text():
    def strings(value):
        if isinstance(value, dict):
            return [*value, *(s for inner in value.values() for s in strings(inner))]
        if isinstance(value, list):
            return [s for inner in value for s in strings(inner)]
        return [value] if isinstance(value, str) else []

    said = strings(to_record(taught())["rates"])
    assert all("ngram" not in text for text in said)


DAMAGED = [
    lambda r: r.update(format=99),
    lambda r: r.pop("costs"),
    lambda r: r["costs"]["1"].update(log=[0.0]),
    lambda r: r["costs"]["1"].update(log=[math.nan] * 11),
    lambda r: r["costs"]["1"].update(log=[1e9] * 11),
    lambda r: r["costs"]["1"].update(shares=[-1.0, 1.0]),
    lambda r: r["costs"]["1"].update(shares=[1.0]),
    lambda r: r["costs"]["1"].update(shares=[math.nan, 1.0]),
    *(
        lambda r, d=d: r["costs"]["1"].update(switch=d)
        for d in (None, [], [1.0], [math.nan, 0.5], [0.1, 2.0], ["a", 1])
    ),
    lambda r: r["costs"]["1"].update(passes=-1),
    lambda r: r.update(costs=[1]),
    lambda r: r.update(rates=3),
]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_record_is_refused(damage):
    record = json.loads(json.dumps(to_record(taught())))
    damage(record)
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        from_record(record, CURVE)


@pytest.mark.parametrize(
    "change",
    [
        {"counts": [[10**6, 1, 2]]},
        {"counts": [[0, 5, 2]]},
        {"counts": [[0, -1, 2]]},
        {"counts": [[0, 1, 1e9]]},
        {"counts": [[0, math.nan, 2]]},
        {"counts": "text"},
        {"counts": [[0, 1]]},
        {"priors": "of another version"},
        {"weight": 0},
    ],
)
def test_damaged_rates_are_the_priors(change):
    learned = through_json(taught())
    (name,) = learned.beliefs.kept
    learned.beliefs.kept[name] |= change
    rates = learned.beliefs.rates(NGRAM, greedy=True)
    assert np.allclose(rates.accept_rates, np.clip(NGRAM.prior, 1e-4, 1 - 1e-4), atol=1e-6)


@given(st.lists(st.tuples(st.integers(1, 100), st.floats(1e-5, 10)), max_size=60))
@example([(32, 1e-05), (1, 1.0), (17, 0.125)])
def test_whatever_was_learnt_can_be_read_again(passes):
    learned = Learned(curve=CURVE)
    for width, seconds in passes:
        learned.cost(1).learn(width, 64, seconds)
    after = through_json(learned)
    for width in (1, 2, 16, 64):
        assert after.cost(1).seconds(width, 64) == pytest.approx(learned.cost(1).seconds(width, 64), rel=1e-3)


def test_batches_of_about_one_size_share_what_is_known_and_a_new_size_begins_with_the_nearest():
    learned = Learned()
    assert learned.cost(4) is learned.cost(7) is not learned.cost(1)
    for _ in range(60):
        for width in (1, 2, 4, 8, 16):
            learned.cost(1).learn(width, 128, CURVE.seconds(width))
    assert Learned(costs={1: learned.cost(1)}).cost(2).seconds(4, 128) == learned.cost(1).seconds(4, 128)
