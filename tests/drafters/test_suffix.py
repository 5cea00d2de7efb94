"""The suffix drafter, against a few lines that say the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import feedback
from tests.oracles.suffix import NaiveSuffix

from draftwood.drafters.suffix.drafter import FLOORS, MOST_NODES, SuffixDrafter

TEXT = st.lists(st.integers(0, 3), max_size=50)
CHAIN = SuffixDrafter(branches=1)


def draft(session, nodes=16, drafter=CHAIN):
    return session.draft(nodes, 0, drafter.prior)


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


def test_a_tree_goes_on_round_a_period_and_stays_bounded():
    drafter = SuffixDrafter(length=1 << 16, factor=math.inf)
    tree = draft(drafter.open([1, 2, 3] * 50, None), 1 << 16, drafter)
    assert len(tree) == MOST_NODES
    assert tree.tokens[:6].tolist() == [1, 2, 3, 1, 2, 3]


@pytest.mark.parametrize("drafter", [CHAIN, SuffixDrafter()], ids=["chain", "tree"])
def test_learn_extend_truncate_fork_close(drafter):
    session = drafter.open([1, 2, 3], None)
    assert len(draft(session, 16, drafter)) == 0
    session.learn(feedback(1))
    first = draft(session, 3, drafter).tokens.tolist()
    assert first == [2, 3, 1]
    twin = session.fork()
    twin.extend([2, 9, 1, 2])
    assert draft(twin, 2, drafter).tokens.tolist()[0] == 9
    assert draft(session, 3, drafter).tokens.tolist() == first
    twin.truncate(4)
    assert draft(twin, 3, drafter).tokens.tolist() == first
    for _ in range(2):
        twin.close()
    assert len(draft(twin, 8, drafter)) == 0
    assert draft(session, 3, drafter).tokens.tolist() == first
