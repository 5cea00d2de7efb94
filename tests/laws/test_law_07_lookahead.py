"""Law 7. Probes are never emitted and are in no rate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from tests.drafter_list import EVERY
from tests.helpers import GREEDY, SAMPLED, Everything, greedy_truth, sampled_truth, write
from tests.toys import SameDrafter, WindowDrafter

from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.rates import Rates
from draftwood.step import MODEL
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

PLANNERS = {"fixed": lambda: FixedPlanner(8), "everything": lambda: Everything(8), "goodput": GoodputPlanner}
SAMPLINGS = {"greedy": GREEDY, "sampled": SAMPLED}


@dataclass(frozen=True)
class OnlyLookahead(SameDrafter):
    """The right continuation, every token of it a lookahead node."""

    name: ClassVar[str] = "only-lookahead"

    def propose(self, text, nodes, noise):
        return TokenTree.build(super().propose(text, min(4, nodes), noise).tokens, lookahead=True)


@dataclass(frozen=True)
class BothWays(SameDrafter):
    """The right continuation as a draft, and once more as lookahead nodes beside it."""

    name: ClassVar[str] = "both-ways"

    def propose(self, text, nodes, noise):
        right = super().propose(text, min(3, nodes), noise).tokens.tolist()
        n = len(right)
        chain = list(range(-1, n - 1))
        again = [-1 if parent < 0 else parent + n for parent in chain]
        return TokenTree.build(right * 2, chain + again, lookahead=[False] * n + [True] * n)


@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_lookahead_node_is_not_emitted_even_where_it_is_right(sampling, planner):
    target, sampling = ToyTarget(), SAMPLINGS[sampling]
    written = write(target, [OnlyLookahead(target, sampling)], PLANNERS[planner](), sampling=sampling, limit=12)
    assert written.ids == sampled_truth(target, sampling, limit=12)
    assert written.sources == [MODEL] * 12
    assert [len(step.emitted) for step in written.steps] == [1] * 11
    assert [(step.drafted, step.accepted) for step in written.steps] == [(0, 0)] * 11
    assert sum(step.lookahead_scored for step in written.steps) >= 16


@pytest.mark.parametrize("planner", PLANNERS)
def test_a_draft_above_right_lookahead_nodes_is_accepted_alone(planner):
    target = ToyTarget()
    written = write(target, [WindowDrafter(target)], PLANNERS[planner]())
    assert written.ids == greedy_truth(target)
    assert all(step.drafted <= 1 and len(step.emitted) <= 2 for step in written.steps)
    assert any(step.lookahead_scored == 5 for step in written.steps[:3])


def test_lookahead_nodes_are_in_no_rate():
    target = ToyTarget()
    rates = Rates.of(write(target, [OnlyLookahead(target)]).steps)
    assert (rates.drafted, rates.accepted, rates.acceptance_rate, rates.draft_coverage) == (0, 0, 0, 0)
    assert rates.mean_acceptance_length == 1
    rates = Rates.of(write(target, [WindowDrafter(target)], limit=25).steps)
    assert (rates.drafted, rates.accepted, rates.acceptance_rate) == (12, 12, 1)


def test_lookahead_nodes_are_in_no_count_of_their_source():
    target = ToyTarget()
    for step in write(target, [OnlyLookahead(target)]).steps:
        (own,) = step.by_source
        assert (own.proposed, own.kept, own.accepted) == (0, 0, 0)
        assert own.lookahead_nodes == step.lookahead_scored


@pytest.mark.parametrize("first", ["window_drafter", "drafter"])
def test_where_one_looks_ahead_at_what_another_drafts_the_draft_counts_and_its_source_alone(first):
    target = ToyTarget()
    both = [OnlyLookahead(target), SameDrafter(target)]
    window_drafter, drafter = (0, 1) if first == "window_drafter" else (1, 0)
    written = write(target, both if first == "window_drafter" else both[::-1], 4, limit=21)
    assert written.ids == greedy_truth(target, limit=21)
    assert [(step.drafted, step.accepted, step.lookahead_scored) for step in written.steps] == [(4, 4, 0)] * 4
    for step in written.steps:
        assert (step.by_source[drafter].kept, step.by_source[drafter].accepted) == (4, 4)
        assert (step.by_source[window_drafter].kept, step.by_source[window_drafter].accepted) == (0, 0)
        assert step.by_source[window_drafter].lookahead_nodes == 4


def test_a_source_that_drafts_and_looks_ahead_at_the_same_has_drafted_it():
    target = ToyTarget()
    for step in write(target, [BothWays(target)], 3, limit=21).steps:
        (own,) = step.by_source
        assert (own.proposed, own.kept, own.accepted, own.lookahead_nodes) == (3, 3, 3, 0)
        assert (step.drafted, step.lookahead_scored) == (3, 0)


@pytest.mark.parametrize("drafters", EVERY)
def test_counts_hold_beside_lookahead_nodes_of_another(drafters):
    target = ToyTarget()
    made = [*EVERY[drafters](target, GREEDY), OnlyLookahead(target)]
    for step in write(target, made, 6).steps:
        assert len(step.sources) == len(step.emitted)
        assert len(made) - 1 not in step.sources
        assert step.by_source[-1].accepted == step.by_source[-1].kept == 0


def test_a_target_of_chains_gets_no_lookahead_nodes():
    target = ToyTarget(trees=False)
    written = write(target, [WindowDrafter(target)])
    assert written.ids == greedy_truth(target)
    assert not any(step.lookahead_scored for step in written.steps)
