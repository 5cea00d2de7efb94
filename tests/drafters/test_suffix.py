"""The suffix drafter, against a few lines that say the same."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import feedback
from tests.oracles.suffix import NaiveSuffix

from draftwood.drafters.suffix.drafter import FLOORS, MOST_NODES, PRIOR, SuffixDrafter
from draftwood.errors import UsageError
from draftwood.testing import check_drafter

TEXT = st.lists(st.integers(0, 3), max_size=50)
CHAIN = SuffixDrafter(branches=1)


def draft(session, nodes=16, drafter=CHAIN):
    return session.draft(nodes, 0, drafter.prior)


@settings(max_examples=200, deadline=None)
@given(text=TEXT, nodes=st.integers(0, 20), length=st.integers(1, 18), least=st.integers(1, 4))
def test_a_chain_is_what_followed_the_longest_earlier_suffix(text, nodes, length, least):
    drafter = SuffixDrafter(length=length, min_match=least, factor=math.inf, branches=1)
    accept_rates = np.linspace(0.1, 0.9, len(FLOORS), dtype=np.float32)
    tree = drafter.open(text, None).draft(nodes, 3, accept_rates)
    tree.check_integrity(4)
    match, end = NaiveSuffix(text).match()
    n = min(nodes, length) if match >= least else 0
    assert tree.is_chain or not n
    assert tree.tokens.tolist() == (NaiveSuffix(text).copy_after(end, n).tolist() if n else [])
    classes = [max(c for c, floor in enumerate(FLOORS) if floor <= match + i) for i in range(n)]
    assert tree.evidence.tolist() == classes
    assert tree.belief.tolist() == accept_rates[classes].tolist()
    assert tree.parents.tolist() == list(range(-1, n - 1))
    assert not tree.lookahead.any()
    assert np.isnan(tree.draft_prob).all()


@pytest.mark.parametrize("drafter", [CHAIN, SuffixDrafter(branches=2, length=3), SuffixDrafter(min_match=3)])
def test_options_keep_the_contract(drafter):
    check_drafter(drafter)
    check_drafter(drafter, prompt=list(range(8)) * 3)


def test_the_prior_of_a_chain_rises_with_the_match():
    prior = CHAIN.prior
    assert prior.dtype == np.float32
    assert len(prior) == len(FLOORS) == len(PRIOR)
    assert (np.diff(prior) > 0).all()
    assert (np.diff(FLOORS) > 0).all()


def test_classes_of_a_long_match_and_a_long_draft():
    drafter = SuffixDrafter(length=100, factor=math.inf, branches=1)
    tree = drafter.open([1] * 2000, None).draft(100, 0, drafter.prior)
    assert len(tree) == 100
    assert set(tree.evidence.tolist()) == {len(FLOORS) - 1}
    tree = drafter.open([1, 2, 3, 1], None).draft(100, 0, drafter.prior)
    assert tree.evidence[0] == 0
    assert tree.evidence[-1] == len(FLOORS) - 1


@pytest.mark.parametrize(
    ("factor", "offset", "proposed"),
    [(2.0, 0, 6), (1.0, 1, 4), (0.0, 2, 2), (0.0, 0, 0), (0.4, 0, 1), (99.0, 0, 16)],
)
def test_factor_and_offset_limit_by_match_length(factor, offset, proposed):
    session = SuffixDrafter(factor=factor, offset=offset, branches=1).open([1, 2, 3, 4, 5, 1, 2, 3], None)
    assert len(draft(session)) == proposed
    drafter = SuffixDrafter(length=16, factor=factor, offset=offset)
    tree = draft(drafter.open([1, 2, 3, 4, 5, 1, 2, 3], None), 99, drafter)
    assert max(tree.depth, default=0) == proposed


def test_limits_that_are_not_given_are_those_of_a_chain_or_of_a_tree():
    def drafted(text, **options):
        drafter = SuffixDrafter(**options)
        return max(draft(drafter.open(text, None), 99, drafter).depth, default=0)

    once = [*range(90), 0]
    assert drafted(once, branches=1) == 5
    assert drafted(once, branches=1, factor=math.inf) == 16
    assert drafted(once, branches=1, length=3) == 3
    assert drafted(once) == 64
    assert drafted(once, factor=1.0) == 5
    assert drafted(once, length=70) == 70


def test_learn_extend_truncate_fork_close():
    session = CHAIN.open([1, 2, 3], None)
    assert len(draft(session)) == 0
    session.learn(feedback(1))
    assert draft(session, 3).tokens.tolist() == [2, 3, 1]
    twin = session.fork()
    twin.extend([2, 9, 1, 2])
    assert draft(twin, 2).tokens.tolist() == [9, 1]
    assert draft(session, 3).tokens.tolist() == [2, 3, 1]
    twin.truncate(5)
    assert draft(twin, 2).tokens.tolist() == [3, 1]
    twin.close()
    twin.close()
    assert len(draft(twin)) == 0
    assert draft(session, 3).tokens.tolist() == [2, 3, 1]


def test_drafting_changes_nothing():
    session = CHAIN.open([1, 2, 1, 2, 1], None)
    first = draft(session)
    with pytest.raises(ValueError, match="read-only"):
        first.tokens[:] = 7
    assert draft(session, 4).tokens.tolist() == [2, 1, 2, 1]


@pytest.mark.parametrize("prompt", [[], [5], (5, 5), np.array([5, 5])])
def test_prompts_of_any_kind(prompt):
    assert len(draft(CHAIN.open(prompt, None), 2)) == (2 if len(prompt) == 2 else 0)


@settings(max_examples=200, deadline=None)
@given(
    text=TEXT,
    nodes=st.integers(0, 20),
    length=st.integers(1, 18),
    least=st.integers(1, 4),
    branches=st.integers(2, 9),
)
def test_a_tree_is_what_followed_the_longest_earlier_suffixes(text, nodes, length, least, branches):
    drafter = SuffixDrafter(length=length, min_match=least, factor=math.inf, branches=branches)
    accept_rates = np.random.default_rng(0).random(len(drafter.prior), dtype=np.float32)
    session = drafter.open(text, None)
    tree = session.draft(nodes, 3, accept_rates)
    tree.check_integrity(4)
    limits = {"depth": min(nodes, length), "branches": branches, "least": least}
    expected = NaiveSuffix(text).grow(accept_rates, nodes, **limits)
    assert list(zip(tree.tokens, tree.parents, tree.evidence, strict=True)) == expected
    assert tree.belief.tolist() == accept_rates[tree.evidence].tolist()
    assert session.match_length == NaiveSuffix(text).match()[0]
    assert not tree.lookahead.any()
    assert np.isnan(tree.draft_prob).all()


def test_a_tree_offers_what_followed_each_occurrence_and_what_followed_shorter_strings():
    drafter = SuffixDrafter()
    text = [7, 1, 2, 3, 9, 1, 2, 4, 8, 2, 5, 6, 1, 2]
    tree = draft(drafter.open(text, None), 64, drafter)
    first = {int(t) for t, parent in zip(tree.tokens, tree.parents, strict=True) if parent == -1}
    assert first == {3, 4, 5}, "behind 1 2 stood 3 and 4, behind 2 also 5"
    assert tree.child(tree.child(-1, 4), 8) >= 0
    assert not tree.is_chain
    trusting = SuffixDrafter(min_match=2)
    tree = draft(trusting.open(text, None), 64, trusting)
    assert {int(t) for t, parent in zip(tree.tokens, tree.parents, strict=True) if parent == -1} == {3, 4}


def test_a_tree_without_forks_is_a_chain():
    drafter = SuffixDrafter()
    tree = draft(drafter.open([1, 2, 3, 4, 5, 6, 1, 2], None), 4, drafter)
    assert tree.is_chain
    assert tree.tokens.tolist() == [3, 4, 5, 6]
    assert draft(CHAIN.open([1, 2, 3, 4, 5, 6, 1, 2], None), 4).tokens.tolist() == [3, 4, 5, 6]


def test_a_tree_goes_on_round_a_period_and_stays_bounded():
    drafter = SuffixDrafter(length=1 << 16, factor=math.inf)
    tree = draft(drafter.open([1, 2, 3] * 50, None), 1 << 16, drafter)
    assert len(tree) == MOST_NODES
    assert tree.tokens[:6].tolist() == [1, 2, 3, 1, 2, 3]


def test_trees_learn_extend_truncate_fork_close():
    drafter = SuffixDrafter()
    session = drafter.open([1, 2, 3], None)
    assert len(draft(session, 16, drafter)) == 0
    session.learn(feedback(1))
    first = draft(session, 3, drafter).tokens.tolist()
    assert first == [2, 3, 1]
    twin = session.fork()
    twin.extend([2, 9, 1, 2])
    assert {3, 9} <= set(draft(twin, 8, drafter).tokens.tolist())
    assert draft(session, 3, drafter).tokens.tolist() == first
    twin.truncate(4)
    assert draft(twin, 3, drafter).tokens.tolist() == first
    twin.close()
    twin.close()
    assert len(draft(twin, 8, drafter)) == 0
    assert draft(session, 3, drafter).tokens.tolist() == first


@pytest.mark.parametrize(
    "options",
    [
        {"length": 0},
        {"length": 1 << 17},
        {"min_match": 0},
        {"factor": -1.0},
        {"factor": float("nan")},
        {"offset": -1},
        {"branches": 0},
        {"branches": 33},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(UsageError, match=next(iter(options))):
        SuffixDrafter(**options)


def test_frozen_and_equal():
    assert SuffixDrafter(length=3) == SuffixDrafter(length=3)
    with pytest.raises(dataclasses.FrozenInstanceError):
        SuffixDrafter().length = 3


def test_kernels_come_with_the_first_open():
    code = (
        "import sys; from draftwood.drafters.load import load; drafter = load('suffix')[0]; drafter.prior;"
        "assert 'llvmlite' not in sys.modules; drafter.open([1, 2], None); assert 'llvmlite' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
