"""Short and long texts in one conversation: the cost of a width is right at each length, also after a jump."""

from __future__ import annotations

from itertools import accumulate
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planning.test_adversaries import SCALE, alternating, novel, replayed

from draftwood.drafters.load import load
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.learned import Learned

LENGTHS = (200, 2000, 8000, 30_000, 200, 30_000, 2000)


def engine(a, b, c, d=0.0):
    """Seconds of a pass: ``a`` + ``b`` a token, and for each token of context ``c`` a token and ``d`` at all."""
    return lambda n, context: SCALE * (a + b * n + context * (c * n + d)) / 1000


def curve_of(cost, context=256):
    return CostCurve.of({n: cost(n, context) for n in (1, 2, 4, 8, 16, 32, 64)})


class Judged(GoodputPlanner):
    """Notes of each choice how fast it is by the true cost, as a share of the fastest that it could have made."""

    cost = None
    notes: tuple[list[float], list[int]]

    def choose(self, states, rankings):
        counts, choice = super().choose(states, rankings), self._choice
        if choice is not None and len(choice.tokens) > 1:
            self._note(choice.tokens, choice.context, choice.best)
        return counts

    def _plan_alone(self, state, ranking):
        plan = super()._plan_alone(state, ranking)
        if ranking.worth:
            self._note(list(accumulate(ranking.worth, initial=1.0)), state.length, len(plan.tree))
        return plan

    def _note(self, expected, context, chosen):
        rates = [tokens / self.cost(1 + count, context) for count, tokens in enumerate(expected)]
        best = max(rates)
        # A draft that promises next to nothing is not made, whatever passes cost.
        best = best if best >= self._losses.demand * rates[0] else rates[0]
        self.notes[0].append(rates[chosen] / best)
        self.notes[1].append(chosen)


def conversation(cost, curve):
    """Return the notes of each text of a conversation."""
    planner, found = Judged(learned=Learned(curve=curve)), []
    planner.cost = cost
    for i, length in enumerate(LENGTHS):
        prompt = novel(length, i)
        planner.notes = [], []
        found.append(planner.notes)
        replayed(prompt, alternating(prompt[-300:], 150, 10, i), planner, cost, load("ngram"))
    return found


@pytest.mark.parametrize("measured", [True, False], ids=["profiled", "unprofiled"])
@pytest.mark.parametrize("abcd", [(20, 1, 1e-4, 0), (20, 1, 4e-4, 1e-4), (20, 1, 1e-3, 5e-4), (5, 5, 5e-4, 5e-4)])
def test_choices_are_the_best_ones_at_every_length_of_a_conversation(abcd, measured):
    cost = engine(*abcd)
    for shares, _ in conversation(cost, curve_of(cost) if measured else None):
        assert fmean(shares) >= 0.98


def test_the_answer_may_be_nothing_at_one_length_and_much_at_another():
    cost = engine(20, 1, 0.02)
    chosen = [counts for _, counts in conversation(cost, curve_of(cost))]
    assert max(chosen[0]) > 4
    assert max(chosen[3][4:]) <= 1
    assert max(chosen[4]) > 4


@settings(max_examples=20)
@given(st.floats(2e-5, 2e-3), st.floats(0, 1))
def test_a_long_text_teaches_the_context_and_leaves_short_texts_as_they_were(c, shared):
    cost = engine(20, 1, c, c * shared)
    model = CostModel(curve_of(cost, 0))
    for length in LENGTHS:
        for n in [1, 4, 8] * 6:
            model.learn(n, length, cost(n, length))
        for n in (1, 2, 4, 8, 12):
            assert model.seconds(n, length) == pytest.approx(cost(n, length), rel=0.1)


def test_a_curve_of_several_contexts_tells_the_shares_of_the_context():
    cost = engine(20, 1, 1e-3, 5e-4)
    points = {context: {n: cost(n, context) for n in (1, 2, 4, 8, 16, 64)} for context in (256, 2000)}
    model = CostModel(CostCurve(points))
    for n in (1, 3, 8, 30):
        for context in (256, 1000, 30_000):
            assert model.seconds(n, context) == pytest.approx(cost(n, context), rel=1e-6)


def test_the_context_costs_nothing_where_the_engine_says_so():
    cost = engine(20, 1, 0.0)
    model = CostModel(curve_of(cost))
    for length in (200, 30_000):
        for n in [1, 8] * 10:
            model.learn(n, length, cost(n, length))
    for n in (1, 4, 8):
        assert model.seconds(n, 30_000) == pytest.approx(cost(n, 0), rel=0.08)
        assert model.seconds(n, 200) == pytest.approx(cost(n, 0), rel=0.08)
