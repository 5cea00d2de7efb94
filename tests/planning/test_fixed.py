"""The planners without a cost model: a fixed number of draft nodes, and what is likelier than a threshold."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planning.states import PROPOSALS, STATES, FakeState
from tests.toys import RandomDrafter

from draftwood.planning.fixed import FixedPlanner, ThresholdPlanner
from draftwood.tree import TokenTree

ONE, OTHER = RandomDrafter(), RandomDrafter(seed=1)


@pytest.mark.parametrize(
    ("limits", "nodes"),
    [({}, 8), ({"remaining": 5}, 4), ({"remaining": 1}, 0), ({"max_pass": 4}, 3), ({"max_pass": 1}, 0)],
)
def test_fixed_asks_for_no_more_than_can_be_scored(limits, nodes):
    ((ask, other),) = FixedPlanner(8).ask([FakeState(drafters=[ONE, OTHER], **limits)])
    assert ask.nodes == other.nodes == nodes
    assert ask.accept_rates.tolist() == (ONE.prior.tolist() if ask.nodes + ask.lookahead_nodes else [])


def test_probes_fill_the_rest_of_the_pass_where_trees_are_taken():
    ((ask,),) = FixedPlanner(8).ask([FakeState(drafters=[ONE], max_pass=20)])
    assert (ask.nodes, ask.lookahead_nodes) == (8, 11)
    ((ask,),) = FixedPlanner(8).ask([FakeState(drafters=[ONE], trees=False)])
    assert ask.lookahead_nodes == 0


def test_a_disabled_drafter_is_asked_for_nothing():
    ((gone, ask),) = FixedPlanner(8).ask([FakeState(drafters=[None, ONE])])
    assert (gone.nodes, gone.lookahead_nodes) == (0, 0)
    assert ask.nodes == 8


def test_every_request_is_planned_for_itself():
    states = [FakeState(drafters=[ONE]), FakeState(drafters=[ONE], remaining=3), FakeState()]
    assert [[ask.nodes for ask in asks] for asks in FixedPlanner(8).ask(states)] == [[8], [2], []]
    chain = TokenTree.build([1] * 20)
    plans = FixedPlanner(8).plan(states, [[chain], [chain], []])
    assert [len(plan.tree) for plan in plans] == [8, 2, 0]


def test_the_budget_is_for_all_sources_together():
    trees = [TokenTree.build([1, 2, 3], belief=0.9), TokenTree.build([4, 5, 6], belief=0.8)]
    (plan,) = FixedPlanner(4).plan([FakeState(drafters=[None, None])], [trees])
    assert plan.tree.tokens.tolist() == [1, 2, 3, 4]
    assert [rows.tolist() for rows in plan.node_map] == [[0, 1, 2], [3, -1, -1]]


@given(STATES, PROPOSALS, st.integers(0, 8), st.sampled_from([0.05, 0.3, 0.9]), st.booleans())
def test_unlikely_nodes_are_left_out_however_much_room_there_is(state, proposals, nodes, floor, can_branch):
    state = dataclasses.replace(state, trees=can_branch, drafters=[None] * len(proposals))
    (every,), (some,) = (FixedPlanner(nodes, f).plan([state], [proposals]) for f in (0.0, floor))
    drafts = ~some.tree.lookahead
    assert (some.tree.path_belief[drafts] >= floor).all()
    likely = (every.tree.path_belief >= floor) & ~every.tree.lookahead
    assert np.count_nonzero(drafts) == np.count_nonzero(likely)


def test_a_trace_tells_the_rule():
    state = FakeState(drafters=[None], traced=True)
    FixedPlanner(4, 0.1).plan([state], [[TokenTree.build([1, 2], belief=0.5)]])
    plan = state.step.trace["plan"]
    assert (plan["planner"], plan["nodes"], plan["floor"], plan["chosen"]) == ("fixed", 4, 0.1, 2)


def test_what_a_tree_claims_is_not_believed():
    drafter = RandomDrafter()
    state = FakeState(drafters=[drafter])
    liar = TokenTree.build([1, 2], belief=1.0)
    (plan,) = FixedPlanner(2).plan([state], [[liar]])
    assert plan.tree.belief.tolist() == [drafter.prior[0]] * 2


def test_the_product_of_probabilities_decides():
    chain = TokenTree.build([1, 2, 3, 4], belief=[0.9, 0.8, 0.5, 0.9])
    state = FakeState(drafters=[None])
    kept = {p: len(ThresholdPlanner(p).plan([state], [[chain]])[0].tree) for p in (0.0, 0.3, 0.35, 0.5, 0.8, 0.95)}
    assert kept == {0.0: 4, 0.3: 4, 0.35: 3, 0.5: 2, 0.8: 1, 0.95: 0}


@given(STATES, PROPOSALS, st.floats(0, 1), st.integers(0, 9))
def test_threshold_is_the_fixed_planner_with_a_floor(state, proposals, p, most):
    state.drafters = [None] * len(proposals)
    (one,) = ThresholdPlanner(p, most).plan([state], [proposals])
    (other,) = FixedPlanner(most, p).plan([state], [proposals])
    assert one.tree.tokens.tolist() == other.tree.tokens.tolist()
