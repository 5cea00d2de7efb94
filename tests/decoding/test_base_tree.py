"""Drafters that go on behind what the others of the set propose: what they see, and what they may claim."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.helpers import GREEDY, PROMPT, SAMPLED, greedy_truth, sampled_truth, texts, untimed, write
from tests.toys import RandomDrafter, SameDrafter, WindowDrafter

from draftwood.contracts import Ask, Needs, Sampling
from draftwood.contracts.declaring import declared
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.propose import propose
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.drafters.load import load
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.testing import ToyTarget, check_drafter
from draftwood.tree import NO_CLAIM, TokenTree, merge


class GoingOn(TextSession):
    def __init__(self, prompt, drafter):
        super().__init__(prompt)
        self._drafter = drafter

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return self.branch(TokenTree.empty(), nodes, lookahead_nodes, accept_rates)

    def branch(self, base_tree, nodes, lookahead_nodes, accept_rates):
        self._drafter.base_trees.append(base_tree)
        return self._drafter.beyond(base_tree, self.text.tolist(), nodes)


@dataclass(frozen=True, eq=False)
class Continuing(BaseDrafter):
    """Follows the best chain of the base tree and adds the target's own next tokens behind it."""

    target: ToyTarget = field(default_factory=ToyTarget)
    more: int = 2
    claim: int = NO_CLAIM
    name: ClassVar[str] = "continuing"
    base_trees: list[Any] = field(default_factory=list)

    @property
    def needs(self):
        return Needs(base_tree=True)

    def open(self, prompt, noise):
        return GoingOn(prompt, self)

    def beyond(self, base_tree, text, nodes):
        chain = base_tree.tokens[base_tree.best_chain()].tolist()[:nodes]
        added = []
        for _ in range(min(self.more, nodes - len(chain))):
            added.append(int(self.target.scores_after([*text, *chain, *added]).argmax()))
        return TokenTree.build(
            chain + added, evidence=[self.claim] * len(chain) + [0] * len(added), belief=1.0
        )  # whatever it promises of the others' nodes, they are not its own


class Unmarked(Continuing):
    """Does not declare that it needs a base tree, so it gets none."""

    @property
    def needs(self):
        return Needs()

    def beyond(self, base_tree, text, nodes):
        return TokenTree.build([0] * min(1, nodes), evidence=NO_CLAIM)


class Failing(Continuing):
    def beyond(self, base_tree, text, nodes):
        raise RuntimeError("no")


class WithoutTheVerb(RandomDrafter):
    @property
    def needs(self):
        return Needs(base_tree=True)


class Inventing(Continuing):
    """Claims nothing of a node that nobody proposed."""

    def beyond(self, base_tree, text, nodes):
        return TokenTree.build([3] * min(1, nodes, len(base_tree)), evidence=NO_CLAIM)


def first_two(target, sampling=GREEDY):
    """A drafter that is right, two tokens deep, whatever it is asked for."""

    class FirstTwo(SameDrafter):
        name: ClassVar[str] = "first-two"

        def propose(self, text, nodes, noise):
            return super().propose(text, min(2, nodes), noise)

    return FirstTwo(target, sampling)


# --- what they see ---------------------------------------------------------------------------------------------


def opened(drafters):
    sources = [DraftSource(drafter) for drafter in drafters]
    for source in sources:
        source.open(list(PROMPT), None)
    return sources


def asks(drafters, nodes=6, lookahead_nodes=8):
    return [Ask(nodes, lookahead_nodes, drafter.prior) for drafter in drafters]


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_the_base_tree_has_the_others_drafts_merged_whatever_the_order_of_the_set(order):
    target = ToyTarget()
    one, other = Continuing(target), Continuing(target, more=1)
    every = [WindowDrafter(target), RandomDrafter(seed=2), one, other]
    drafters = [every[i] for i in order]
    trees = propose([opened(drafters)], [asks(drafters)], [8])[0]
    plain = [tree for tree, drafter in zip(trees, drafters, strict=True) if not drafter.needs.base_tree]
    assert any(tree.n_lookahead for tree in plain)
    expected, _ = merge([tree.take(np.flatnonzero(~tree.lookahead)) for tree in plain])
    believed = dict(zip(texts(expected), expected.belief.tolist(), strict=True))
    for drafter in (one, other):  # and so they do not see each other
        (base_tree,) = drafter.base_trees
        assert not base_tree.n_lookahead
        assert dict(zip(texts(base_tree), base_tree.belief.tolist(), strict=True)) == believed
    assert [len(tree) > 0 for tree in trees] == [True] * 4


# --- what they claim -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False], ids=["first of the set", "last of the set"])
@pytest.mark.parametrize("variant", [{}, {"trees": False}, {"rollback": "snapshot"}])
def test_nodes_without_a_claim_are_credited_to_who_proposed_them(first, variant):
    target = ToyTarget(**variant)
    short, long = first_two(target), Continuing(target)
    drafters = [long, short] if first else [short, long]
    planner = FixedPlanner(8)
    written = write(target, drafters, planner, limit=26)
    assert written.ids == greedy_truth(target, limit=26)
    one, other = drafters.index(short), drafters.index(long)
    for step in written.steps:
        assert step.sources == (one, one, other, other, -1)
        assert (step.drafted, step.accepted) == (4, 4)
        for source in (one, other):
            own = step.by_source[source]
            assert (own.proposed, own.kept, own.accepted) == (2, 2, 2)
    beliefs = planner.learned.beliefs
    labels = [sum(beliefs.rates(declared(d), greedy=True).totals) for d in drafters]
    assert labels == [pytest.approx(2 * len(written.steps), rel=0.02)] * 2


@pytest.mark.parametrize("drafter", [Unmarked(), Continuing(claim=-2), Continuing(claim=1)])
def test_a_claim_that_its_drafter_may_not_make_disables_it(drafter):
    target = ToyTarget()
    written = write(target, [first_two(target), drafter], limit=25)
    assert written.ids == greedy_truth(target, limit=25)
    assert [step.by_source[1].failed for step in written.steps] == [True] + [False] * 7
    assert {step.accepted for step in written.steps} == {2}


# --- what they cost when they fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("made", [Failing, WithoutTheVerb])
@pytest.mark.parametrize("first", [True, False], ids=["first of the set", "last of the set"])
def test_a_base_tree_drafter_that_fails_costs_nothing_else(made, first):
    target = ToyTarget()
    others = [RandomDrafter(seed=1), *load("ngram")]
    drafters = [made(), *others] if first else [*others, made()]
    with_it, without = write(target, drafters), write(target, others)
    assert with_it.ids == without.ids == greedy_truth(target)
    at = drafters.index(next(d for d in drafters if d not in others))
    assert with_it.steps[0].by_source[at].failed
    for one, other in zip(with_it.steps, without.steps, strict=True):
        own, alone = untimed(one), untimed(other)
        left = tuple(source for i, source in enumerate(own.by_source) if i != at)
        assert left == alone.by_source
        shift = int(first)
        sources = tuple(s - shift if s >= 0 else s for s in own.sources)
        assert dataclasses.replace(own, by_source=left, sources=sources) == alone


# --- texts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("planner", [lambda: FixedPlanner(6), GoodputPlanner])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED, Sampling(0.7, top_p=0.8, repetition_penalty=1.3, seed=2)])
@pytest.mark.parametrize(
    "spec", ["copy-and-recycle", "recycling+lookup", "ngram+recycling:keep=true+recycling:context=1"]
)
def test_the_text_does_not_depend_on_who_goes_on_behind_whom(spec, sampling, planner):
    for variant in ({}, {"trees": False}):
        target = ToyTarget(vocab_size=12, order=2, **variant)
        written = write(target, load(spec), planner(), sampling=sampling, limit=40)
        assert written.ids == sampled_truth(target, sampling, limit=40)
        assert not any(source.failed for step in written.steps for source in step.by_source)


# --- the check -------------------------------------------------------------------------------------------------


def test_the_check_asks_for_the_verb_and_for_honest_claims():
    check_drafter(Continuing())
    with pytest.raises(NotImplementedError, match=r"must write branch\(\)"):
        check_drafter(WithoutTheVerb())
    with pytest.raises(AssertionError, match="evidence indexes the prior"):
        check_drafter(Unmarked())
    with pytest.raises(AssertionError, match="or is NO_CLAIM"):
        check_drafter(Continuing(claim=-2))
    with pytest.raises(AssertionError, match="nodes with NO_CLAIM are those of the base tree"):
        check_drafter(Inventing())
