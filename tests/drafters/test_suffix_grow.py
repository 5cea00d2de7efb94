"""Trees over the suffix automaton, against the naive twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.suffix_states import check_integrity
from tests.drafters.test_suffix_automaton import PERIODIC, WIDE, letters
from tests.oracles import suffix as naive_suffix
from tests.oracles.suffix import NaiveSuffix

from draftwood.drafters.suffix import grow_kernel as suffix_grow_kernel
from draftwood.drafters.suffix.automaton import SuffixAutomaton
from draftwood.drafters.suffix.drafter import SuffixDrafter
from draftwood.drafters.suffix.grow_kernel import ADDED, ADDED_KINDS, CLASSES, FLOORS, KINDS, LOOK

TEXT = letters(1) | letters(2) | letters(3) | letters(8) | PERIODIC | WIDE
FLAT = np.full(CLASSES, 0.5, dtype=np.float32)
RATES = st.just(FLAT) | st.builds(
    lambda seed: np.random.default_rng(seed).random(CLASSES, dtype=np.float32), st.integers(0, 9)
)


def grown(automaton, accept_rates=FLAT, nodes=16, depth=16, branches=8, least=1):
    columns, belief = automaton.grow(accept_rates, nodes, depth=depth, branches=branches, least=least)
    assert belief.tolist() == accept_rates[columns[2]].tolist()
    return [tuple(row) for row in columns.T.tolist()]


@given(
    text=TEXT, accept_rates=RATES, nodes=st.integers(0, 20), depth=st.integers(0, 12), branches=st.integers(1, 9),
    least=st.integers(1, 4),
)  # fmt: skip
def test_agrees_with_the_twin(text, accept_rates, nodes, depth, branches, least):
    limits = {"nodes": nodes, "depth": depth, "branches": branches, "least": least}
    tree = grown(SuffixAutomaton(text, refresh=1000), accept_rates, **limits)
    assert tree == NaiveSuffix(text).grow(accept_rates, **limits)


@pytest.mark.parametrize("kind", range(12))
def test_agrees_with_the_twin_where_one_kind_of_evidence_is_worth_most(kind):
    """Then what is not looked at, for want of room, must be worth less indeed."""
    accept_rates = np.empty(CLASSES, dtype=np.float32)
    for label in range(CLASSES):
        of = label % KINDS if label < ADDED else KINDS + (label - ADDED) % ADDED_KINDS
        accept_rates[label] = 0.9 if of == kind else 0.1
    rng = np.random.default_rng(kind)
    for vocabulary in (2, 3, 6) * 8:
        text = rng.integers(0, vocabulary, 60).tolist()
        for nodes in (1, 2, 3, 5):
            limits = {"nodes": nodes, "depth": 4, "branches": 4, "least": 1}
            tree = grown(SuffixAutomaton(text, refresh=1000), accept_rates, **limits)
            assert tree == NaiveSuffix(text).grow(accept_rates, **limits)


@settings(max_examples=60)
@given(text=letters(2) | letters(60) | PERIODIC, cut=st.integers(0, 70), accept_rates=RATES)
def test_pieces_copies_and_cuts_make_no_difference(text, cut, accept_rates):
    whole, pieces = SuffixAutomaton(text), SuffixAutomaton()
    for start in range(0, len(text), 7):
        pieces.append(text[start : start + 7])
    assert grown(whole, accept_rates) == grown(pieces, accept_rates) == grown(pieces.copy(), accept_rates)
    before = whole.text.tolist()
    assert grown(whole, accept_rates) == grown(whole, accept_rates), "growing changes nothing"
    check_integrity(whole)
    assert whole.text.tolist() == before
    whole.truncate(cut)
    assert grown(whole, accept_rates) == grown(SuffixAutomaton(text[:cut]), accept_rates)


@pytest.mark.parametrize("refresh", [0, 1, 16])
def test_with_a_bounded_refresh_every_branch_still_occurred(refresh):
    text = np.random.default_rng(5).integers(0, 5, 4000).tolist()
    automaton = SuffixAutomaton(text, refresh=refresh)
    tree, paths = grown(automaton, nodes=64), []
    held = " ".join(map(str, ["", *text, ""]))
    assert len(tree) == 64
    for token, parent, evidence in tree:
        paths.append([*(paths[parent] if parent >= 0 else []), token])
        length = FLOORS[evidence // 7] if evidence < 49 else FLOORS[(evidence - 49) // 5]
        string = [*text, *paths[-1]][-length - 1 :]
        assert " ".join(map(str, ["", *string, ""])) in held
    siblings = [row[:2] for row in tree]
    assert len(set(siblings)) == len(siblings)


def test_a_string_that_thousands_of_tokens_followed_offers_some():
    text = [x for token in range(1, 3000) for x in (0, token)]
    tree = grown(SuffixAutomaton([*text, 0]), nodes=200, depth=1, branches=200)
    assert len(tree) == LOOK
    assert {row[0] for row in tree} <= set(range(1, 3000))


def test_the_twin_says_the_same_numbers():
    assert naive_suffix.FLOORS == FLOORS
    assert naive_suffix.RECENT == suffix_grow_kernel.RECENT
    assert naive_suffix.LEVELS == suffix_grow_kernel.LEVELS
    assert CLASSES == 49 + 15 == len(SuffixDrafter().prior)
