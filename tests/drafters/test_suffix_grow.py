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
from draftwood.errors import IntegrityError

TEXT = letters(1) | letters(2) | letters(3) | letters(8) | PERIODIC | WIDE
FLAT = np.full(CLASSES, 0.5, dtype=np.float32)
RATES = st.just(FLAT) | st.builds(
    lambda seed: np.random.default_rng(seed).random(CLASSES, dtype=np.float32), st.integers(0, 9)
)


def grown(automaton, accept_rates=FLAT, nodes=16, depth=16, branches=8, least=1):
    columns, belief = automaton.grow(accept_rates, nodes, depth=depth, branches=branches, least=least)
    assert belief.tolist() == accept_rates[columns[2]].tolist()
    return [tuple(row) for row in columns.T.tolist()]


@settings(max_examples=300, deadline=None)
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


def test_shorter_strings_add_what_followed_them_alone():
    """Behind ``1 2`` stood 3 twice and 4; behind ``2`` also 5, last of all."""
    text = [1, 2, 4, 10, 1, 2, 3, 11, 1, 2, 3, 12, 2, 5, 13, 1, 2]
    assert [row[0] for row in grown(SuffixAutomaton(text), depth=1)] == [3, 4, 5]
    classes = {row[0]: row[2] for row in grown(SuffixAutomaton(text), depth=1)}
    assert classes == {3: 7 + 2, 4: 7 + 5, 5: 49 + 3 - 2}
    assert grown(SuffixAutomaton(text), depth=1, branches=1) == [(3, -1, 9)]
    assert [row[0] for row in grown(SuffixAutomaton(text), depth=1, branches=2)] == [3, 4]
    assert [row[0] for row in grown(SuffixAutomaton(text), depth=1, least=2)] == [3, 4]
    assert grown(SuffixAutomaton(text), least=4) == []


def test_the_class_of_the_only_successor_says_whether_it_came_twice():
    assert grown(SuffixAutomaton([1, 2, 1]), depth=1) == [(2, -1, 0)]
    assert grown(SuffixAutomaton([1, 2, 1, 2, 1]), depth=1)[0][2] == suffix_grow_kernel.KINDS * 2 + 0
    assert grown(SuffixAutomaton([0, 1, 2, 3, 1, 2, 4, 1]), depth=1) == [(2, -1, 1)]


def test_of_many_successors_the_latest_three_count_as_late():
    text = [1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1]  # each once behind 1
    assert grown(SuffixAutomaton(text), depth=1) == [(6, -1, 3), (5, -1, 5), (4, -1, 5), (3, -1, 6), (2, -1, 6)]


def test_it_grows_on_round_the_end_of_the_text():
    tree = grown(SuffixAutomaton([7, 1, 2, 3, 1, 2, 3]), nodes=9, depth=9)
    assert [row[0] for row in tree if row[1] == -1] == [1]
    assert [row[0] for row in grown(SuffixAutomaton([4] * 9), nodes=12, depth=12)] == [4] * 12


def test_nothing_to_go_by():
    for text in ([], [1], [1, 2, 3]):
        assert grown(SuffixAutomaton(text)) == []
    assert grown(SuffixAutomaton([1, 1]), nodes=0) == []
    assert grown(SuffixAutomaton([1, 1]), depth=0) == []


@settings(max_examples=60, deadline=None)
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


def test_every_number_of_accept_rates_is_checked_and_read_only_ones_are_taken():
    automaton = SuffixAutomaton([1, 2, 1])
    for accept_rates in (FLAT[:-1], np.append(FLAT, FLAT[:1])):
        with pytest.raises(IntegrityError, match="accept rates"):
            automaton.grow(accept_rates, 4, depth=4, branches=2)
    frozen = FLAT.copy()
    frozen.flags.writeable = False
    assert grown(automaton, frozen) == grown(automaton)


def test_the_twin_says_the_same_numbers():
    assert naive_suffix.FLOORS == FLOORS
    assert naive_suffix.RECENT == suffix_grow_kernel.RECENT
    assert naive_suffix.LEVELS == suffix_grow_kernel.LEVELS
    assert CLASSES == 49 + 15 == len(SuffixDrafter().prior)
