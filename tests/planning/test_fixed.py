"""The fixed planner: the same number of draft nodes in every step."""

from __future__ import annotations

import pytest
from tests.helpers import greedy_truth, write
from tests.planning.states import FakeState

from draftwood.errors import UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import RandomDrafter, SameDrafter, ToyTarget
from draftwood.tree import TokenTree

ONE, OTHER = RandomDrafter(), RandomDrafter(seed=1)


@pytest.mark.parametrize(
    ("limits", "nodes"),
    [({}, 8), ({"remaining": 5}, 4), ({"remaining": 1}, 0), ({"max_pass": 4}, 3), ({"max_pass": 1}, 0)],
)
def test_it_asks_for_no_more_than_can_be_scored(limits, nodes):
    ((ask, other),) = FixedPlanner(8).ask([FakeState(drafters=[ONE, OTHER], **limits)])
    assert ask.nodes == other.nodes == nodes
    assert ask.odds.tolist() == ONE.prior.tolist()


def test_probes_fill_the_rest_of_the_pass_where_trees_are_taken():
    ((ask,),) = FixedPlanner(8).ask([FakeState(drafters=[ONE], max_pass=20)])
    assert (ask.nodes, ask.probes) == (8, 11)
    ((ask,),) = FixedPlanner(8).ask([FakeState(drafters=[ONE], trees=False)])
    assert ask.probes == 0


def test_a_disabled_drafter_is_asked_for_nothing():
    ((gone, ask),) = FixedPlanner(8).ask([FakeState(drafters=[None, ONE])])
    assert (gone.nodes, gone.probes) == (0, 0)
    assert ask.nodes == 8


def test_every_request_is_planned_for_itself():
    states = [FakeState(drafters=[ONE]), FakeState(drafters=[ONE], remaining=3), FakeState()]
    assert [[ask.nodes for ask in asks] for asks in FixedPlanner(8).ask(states)] == [[8], [2], []]
    chain = TokenTree.build([1] * 20)
    plans = FixedPlanner(8).plan(states, [[chain], [chain], []])
    assert [len(plan.tree) for plan in plans] == [8, 2, 0]


def test_the_budget_is_for_all_sources_together():
    trees = [TokenTree.build([1, 2, 3], belief=0.9), TokenTree.build([4, 5, 6], belief=0.8)]
    (plan,) = FixedPlanner(4).plan([FakeState()], [trees])
    assert plan.tree.tokens.tolist() == [1, 2, 3, 4]
    assert [rows.tolist() for rows in plan.rows] == [[0, 1, 2], [3, -1, -1]]


def test_zero_is_plain_decoding():
    target = ToyTarget()
    written = write(target, [SameDrafter(target)], 0)
    assert written.ids == greedy_truth(target)
    assert all(step.drafted == 0 for step in written.steps)


def test_fewer_than_none_is_refused():
    with pytest.raises(UsageError, match="fixed:-1 asks for fewer than no draft nodes"):
        FixedPlanner(-1)


def test_it_learns_nothing():
    planner = FixedPlanner(8)
    planner.learn([], [])
    assert planner == FixedPlanner(8)
