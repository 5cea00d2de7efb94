"""Law 1. Greedy output equals plain greedy for every drafter, tree shape and budget: same, random, empty, always
wrong, huge, duplicated siblings.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.drafter_list import EVERY, THREE_TOYS, with_settings
from tests.helpers import GREEDY, ONE_BY_ONE, PROMPT, TARGETS, Everything, greedy_truth, trees, write
from tests.toys import HugeDrafter, RandomDrafter, SameDrafter

from draftwood.contracts import DraftSession, Floats, Noise
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.errors import CapabilityError
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

BUDGETS = (0, 1, 3, 8, 64)
TABLES = (
    {"seed": 0, "order": 3, "vocab_size": 8},
    {"seed": 1, "order": 1, "vocab_size": 5},  # falls into a loop at once
    {"seed": 2, "order": 2, "vocab_size": 3},
    {"seed": 3, "order": 6, "vocab_size": 17},
)


@pytest.mark.parametrize(("drafters", "variant"), with_settings(TARGETS, "trees"))
def test_greedy_text_is_the_plain_one(drafters, variant):
    """Drafters see tokens and how many nodes are wanted: all tables and budgets are the toys' part."""
    every = drafters in THREE_TOYS
    for table in TABLES if every else TABLES[::2]:
        target = ToyTarget(**table, **TARGETS[variant])
        truth = greedy_truth(target)
        for budget in BUDGETS if every else (1, 8):
            written = write(target, EVERY[drafters](target, GREEDY), budget)
            assert written.ids == truth, f"table {table}, budget {budget}"


@pytest.mark.parametrize("drafters", EVERY)
def test_even_a_planner_that_scores_everything_changes_nothing(drafters):
    target = ToyTarget()
    assert write(target, EVERY[drafters](target, GREEDY), Everything()).ids == greedy_truth(target)


@pytest.mark.parametrize("variant", [*TARGETS, "one token per pass"])
def test_plain_decoding_through_the_loop_is_plain_decoding(variant):
    for table in TABLES:
        target = ToyTarget(**table, **(TARGETS | {"one token per pass": ONE_BY_ONE})[variant])
        written = write(target)
        assert written.ids == greedy_truth(target)
        assert [len(step.emitted) for step in written.steps] == [1] * 23


def test_a_target_that_takes_nothing_back_refuses_drafts_before_it_reads():
    target = ToyTarget(**ONE_BY_ONE)
    with pytest.raises(CapabilityError, match=r"one token per pass .* drafter 'random' .* drafters='none'"):
        write(target, [RandomDrafter()])
    assert target.open_sessions == 0


def test_a_draft_of_three_thousand_nodes():
    target = ToyTarget()
    assert write(target, [HugeDrafter()], 64, limit=8).ids == greedy_truth(target, limit=8)
    assert write(target, [HugeDrafter()], 4000, limit=3).ids == greedy_truth(target, limit=3)


def test_right_drafts_save_passes():
    target = ToyTarget()
    written = write(target, [SameDrafter(target)], 64, limit=40)
    assert written.ids == greedy_truth(target, limit=40)
    assert len(written.steps) == 1
    assert len(write(target, [SameDrafter(target)], 3, limit=41).steps) == 10


class Scripted(BaseDrafter):
    """Proposes what hypothesis makes up, step by step."""

    name = "scripted"

    def __init__(self, proposals: list[TokenTree]) -> None:
        self.proposals = proposals

    def open(self, prompt: list[int], noise: Noise | None) -> DraftSession:
        script = iter(self.proposals)

        class Session(TextSession):
            def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
                return next(script, TokenTree.empty())

        return Session(prompt)


@examples(max_examples=60)
@given(
    proposals=st.lists(trees(vocab_size=3, max_size=12), max_size=8),
    budget=st.sampled_from(BUDGETS),
    variant=st.sampled_from(sorted(TARGETS)),
    kind=st.sampled_from(["fixed", "goodput", "everything"]),
)
def test_any_trees_whatsoever(proposals, budget, variant, kind):
    target = ToyTarget(vocab_size=3, order=2, sharpness=1.0, **TARGETS[variant])
    planner = GoodputPlanner(budget) if kind == "goodput" else FixedPlanner(budget)
    if kind == "everything" and target.trees:
        planner = Everything()
    assert write(target, [Scripted(proposals)], planner, limit=10).ids == greedy_truth(target, PROMPT, 10)
