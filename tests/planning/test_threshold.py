"""The threshold planner: what is likelier than ``p`` to be reached and taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import greedy_truth, write
from tests.planning.states import PROPOSALS, STATES, FakeState

from draftwood.errors import UsageError
from draftwood.planning.fixed import FixedPlanner, ThresholdPlanner
from draftwood.testing import SameDrafter, ToyTarget
from draftwood.tree import TokenTree


def test_the_product_of_probabilities_decides():
    chain = TokenTree.build([1, 2, 3, 4], belief=[0.9, 0.8, 0.5, 0.9])
    state = FakeState(drafters=[None])
    kept = {p: len(ThresholdPlanner(p).plan([state], [[chain]])[0].tree) for p in (0.0, 0.3, 0.35, 0.5, 0.8, 0.95)}
    assert kept == {0.0: 4, 0.3: 4, 0.35: 3, 0.5: 2, 0.8: 1, 0.95: 0}


def test_no_more_than_most_are_scored_however_likely():
    (plan,) = ThresholdPlanner(most=3).plan([FakeState(drafters=[None])], [[TokenTree.build([1] * 9)]])
    assert len(plan.tree) == 3


@given(STATES, PROPOSALS, st.floats(0, 1), st.integers(0, 9))
def test_it_is_the_fixed_planner_with_a_floor(state, proposals, p, most):
    state.drafters = [None] * len(proposals)
    (one,) = ThresholdPlanner(p, most).plan([state], [proposals])
    (other,) = FixedPlanner(most, p).plan([state], [proposals])
    assert one.tree.tokens.tolist() == other.tree.tokens.tolist()


def test_in_the_loop_it_changes_no_text():
    target = ToyTarget()
    assert write(target, [SameDrafter(target)], ThresholdPlanner()).ids == greedy_truth(target)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"p": 25}, "p is 25"), ({"p": float("nan")}, "p is nan"), ({"most": -1}, "most is -1")],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        ThresholdPlanner(**options)
