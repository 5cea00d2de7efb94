"""The suffix automaton and the trees grown over it against the naive twin; the drafter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.suffix_states import check_integrity
from tests.oracles import suffix as naive_suffix
from tests.oracles.suffix import NaiveSuffix

from draftwood.drafters.suffix import kernel as suffix_kernel
from draftwood.drafters.suffix.drafter import MOST_NODES, SuffixDrafter
from draftwood.drafters.suffix.kernel import ADDED, ADDED_KINDS, CLASSES, FLOORS, KINDS, LOOK, SuffixAutomaton
from draftwood.errors import UsageError

HUGE = 2**31 - 1


def letters(size):
    return st.lists(st.integers(0, size - 1), max_size=60)


PERIODIC = st.builds(
    lambda period, times, tail: period * times + tail,
    st.lists(st.integers(0, 2), min_size=1, max_size=5),
    st.integers(1, 12),
    letters(3),
)
WIDE = st.lists(st.integers(0, HUGE) | st.sampled_from([0, 1, HUGE - 1, HUGE]), max_size=40)
TEXT = letters(1) | letters(2) | letters(3) | letters(20) | PERIODIC | WIDE
REFRESH = st.sampled_from([0, 1, 2, 3, 32])
FLAT = np.full(CLASSES, 0.5, dtype=np.float32)
RATES = st.just(FLAT) | st.builds(
    lambda seed: np.random.default_rng(seed).random(CLASSES, dtype=np.float32), st.integers(0, 9)
)


def agree(fast, slow):
    assert len(fast) == len(slow)
    assert fast.text.tolist() == slow.text
    assert fast.match() == slow.match()


def grown(automaton, accept_rates=FLAT, nodes=16, depth=16, branches=8, least=1):
    columns, belief = automaton.grow(accept_rates, nodes, (depth, branches, least))
    assert belief.tolist() == accept_rates[columns[2]].tolist()
    return [tuple(row) for row in columns.T.tolist()]


# --- the automaton -------------------------------------------------------------------------------------------


@given(chunks=st.lists(TEXT, max_size=3), cut=st.integers(-2, 70), more=TEXT, refresh=REFRESH)
def test_reads_and_cuts_like_its_twin(chunks, cut, more, refresh):
    fast, slow = SuffixAutomaton(refresh=refresh), NaiveSuffix(refresh=refresh)
    for token in chunks[0] if chunks else []:
        fast.append([token])
        slow.append([token])
        assert fast.match() == slow.match()
    for chunk in chunks[1:]:
        fast.append(chunk)
        slow.append(chunk)
        agree(fast, slow)
    fast.truncate(cut)
    fast.append(more)
    slow.truncate(max(cut, 0))
    slow.append(more)
    agree(fast, slow)
    check_integrity(fast)


@pytest.mark.parametrize("alphabet", [1, 2, 300, 49_152])
def test_growth_over_many_tokens(alphabet):
    text = np.random.default_rng(alphabet).integers(0, alphabet, 5000, dtype=np.int32)
    whole, pieces = SuffixAutomaton(text), SuffixAutomaton()
    for start in range(0, 5000, 617):
        pieces.append(text[start : start + 617])
    assert whole.match() == pieces.match()
    assert whole.text.tolist() == pieces.text.tolist() == text.tolist()
    pieces.truncate(400)
    check_integrity(pieces)
    assert pieces.match() == NaiveSuffix(text[:400]).match()
    assert whole._states.nbytes + whole._edges.nbytes + whole._head.nbytes < 5000 * 130


def test_negative_ids_leave_everything_as_it_was():
    automaton = SuffixAutomaton([1, 2, 1])
    automaton.append([])
    with pytest.raises(UsageError, match="negative"):
        automaton.append([5, -1])
    agree(automaton, NaiveSuffix([1, 2, 1]))
    for ids in ((1, 2, 1), np.array([1, 2, 1]), np.repeat(np.array([1, 2, 1], dtype=np.int32), 2)[::2]):
        assert SuffixAutomaton(ids).match() == (1, 0)


def test_ctrl_c_in_the_kernel_keeps_the_old_text(monkeypatch):
    automaton = SuffixAutomaton([1, 2, 3, 1, 2])
    reads = suffix_kernel.append

    def interrupted(*arguments):
        monkeypatch.setattr(suffix_kernel, "append", reads)
        reads(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(suffix_kernel, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        automaton.append(list(range(5000)))
    agree(automaton, NaiveSuffix([1, 2, 3, 1, 2]))
    check_integrity(automaton)


# --- trees ---------------------------------------------------------------------------------------------------


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
    for vocabulary in (2, 3, 6) * 4:
        text = rng.integers(0, vocabulary, 60).tolist()
        for nodes in (1, 3, 5):
            limits = {"nodes": nodes, "depth": 4, "branches": 4, "least": 1}
            tree = grown(SuffixAutomaton(text, refresh=1000), accept_rates, **limits)
            assert tree == NaiveSuffix(text).grow(accept_rates, **limits)


@settings(max_examples=30)
@given(text=letters(2) | letters(60) | PERIODIC, cut=st.integers(0, 70), accept_rates=RATES)
def test_pieces_and_cuts_make_no_difference(text, cut, accept_rates):
    whole, pieces = SuffixAutomaton(text), SuffixAutomaton()
    for start in range(0, len(text), 7):
        pieces.append(text[start : start + 7])
    assert grown(whole, accept_rates) == grown(pieces, accept_rates)
    assert grown(whole, accept_rates) == grown(whole, accept_rates), "growing changes nothing"
    check_integrity(whole)
    whole.truncate(cut)
    assert grown(whole, accept_rates) == grown(SuffixAutomaton(text[:cut]), accept_rates)


@pytest.mark.parametrize("refresh", [0, 16])
def test_with_a_bounded_refresh_every_branch_still_occurred(refresh):
    text = np.random.default_rng(5).integers(0, 5, 4000).tolist()
    tree, paths = grown(SuffixAutomaton(text, refresh=refresh), nodes=64), []
    held = " ".join(map(str, ["", *text, ""]))
    assert len(tree) == 64
    for token, parent, evidence in tree:
        paths.append([*(paths[parent] if parent >= 0 else []), token])
        length = FLOORS[evidence // 7] if evidence < 49 else FLOORS[(evidence - 49) // 5]
        string = [*text, *paths[-1]][-length - 1 :]
        assert " ".join(map(str, ["", *string, ""])) in held
    assert len({row[:2] for row in tree}) == len(tree)


def test_a_string_that_thousands_of_tokens_followed_offers_some():
    text = [x for token in range(1, 3000) for x in (0, token)]
    tree = grown(SuffixAutomaton([*text, 0]), nodes=200, depth=1, branches=200)
    assert len(tree) == LOOK
    assert {row[0] for row in tree} <= set(range(1, 3000))


def test_the_twin_says_the_same_numbers():
    assert naive_suffix.FLOORS == FLOORS
    assert (naive_suffix.RECENT, naive_suffix.LEVELS) == (suffix_kernel.RECENT, suffix_kernel.LEVELS)
    assert CLASSES == 49 + 15 == len(SuffixDrafter().prior)


# --- the drafter ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("branches", [1, 12])
def test_a_tree_goes_on_round_a_period_and_stays_bounded(branches):
    drafter = SuffixDrafter(length=1 << 16, branches=branches)
    tree = drafter.open([1, 2, 3] * 50, None).draft(1 << 16, 0, drafter.prior)
    assert len(tree) == MOST_NODES
    assert tree.tokens[:6].tolist() == [1, 2, 3, 1, 2, 3]
    assert tree.is_chain or branches > 1
    tree = SuffixDrafter().open([*range(90), 0], None).draft(99, 0, drafter.prior)
    assert max(tree.depth) == 64
