"""The suffix automaton against its naive twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.suffix_states import check_integrity
from tests.oracles.suffix import NaiveSuffix

from draftwood.drafters.suffix import automaton as suffix_automaton
from draftwood.drafters.suffix.automaton import SuffixAutomaton
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


def agree(fast, slow):
    assert len(fast) == len(slow)
    assert fast.text.tolist() == slow.text
    assert fast.match() == slow.match()
    _, end = slow.match()
    if end >= 0:
        for count in (0, 1, 7, 2 * len(slow)):
            copied = fast.copy_after(end, count)
            assert copied.dtype == np.int32
            assert copied.tolist() == slow.copy_after(end, count).tolist()


@given(text=TEXT, refresh=REFRESH)
def test_agrees_with_the_twin_after_every_token(text, refresh):
    fast, slow = SuffixAutomaton(refresh=refresh), NaiveSuffix(refresh=refresh)
    for token in text:
        fast.append([token])
        slow.append([token])
        assert fast.match() == slow.match()
    agree(fast, slow)
    check_integrity(fast)


@given(chunks=st.lists(TEXT, max_size=4), refresh=REFRESH)
def test_chunks_make_no_difference(chunks, refresh):
    fast, slow = SuffixAutomaton(refresh=refresh), NaiveSuffix(refresh=refresh)
    for chunk in chunks:
        fast.append(chunk)
        slow.append(chunk)
        agree(fast, slow)


@given(text=TEXT, cut=st.integers(-2, 70), more=TEXT, refresh=REFRESH)
def test_truncate_then_append(text, cut, more, refresh):
    fast, slow = SuffixAutomaton(text, refresh=refresh), NaiveSuffix(text, refresh=refresh)
    fast.truncate(cut)
    slow.truncate(max(cut, 0))
    agree(fast, slow)
    fast.append(more)
    slow.append(more)
    agree(fast, slow)
    check_integrity(fast)


@given(text=TEXT, left=TEXT, right=TEXT)
def test_copies_are_independent(text, left, right):
    one = SuffixAutomaton(text)
    two = one.copy()
    one.append(left)
    two.append(right)
    agree(one, NaiveSuffix(text + left))
    agree(two, NaiveSuffix(text + right))
    check_integrity(one)
    check_integrity(two)


def test_a_bounded_refresh_keeps_an_older_place():
    """When the last of the ones before the 3 was read, 'one' was the third class: too far for a refresh of 1."""
    text = [1, 1, 1, 1, 2, 1, 1, 1, 3, 1]
    assert SuffixAutomaton(text, refresh=32).match() == (1, 7)
    length, end = SuffixAutomaton(text, refresh=1).match()
    assert length == 1
    assert end < 7


@pytest.mark.parametrize("alphabet", [1, 2, 300, 49_152])
def test_growth_over_many_tokens(alphabet):
    text = np.random.default_rng(alphabet).integers(0, alphabet, 5000, dtype=np.int32)
    whole = SuffixAutomaton(text)
    pieces = SuffixAutomaton()
    for start in range(0, 5000, 617):
        pieces.append(text[start : start + 617])
    assert whole.match() == pieces.match()
    assert whole.text.tolist() == pieces.text.tolist() == text.tolist()
    pieces.truncate(900)
    check_integrity(pieces)
    assert pieces.match() == NaiveSuffix(text[:900]).match()
    assert whole.nbytes < 5000 * 130


def test_empty_and_new():
    automaton = SuffixAutomaton()
    assert (len(automaton), automaton.match()) == (0, (0, -1))
    automaton.append([])
    automaton.append([3])
    assert (len(automaton), automaton.match()) == (1, (0, -1))
    check_integrity(automaton)
    with pytest.raises(UsageError, match="nothing follows"):
        automaton.copy_after(0, 1)
    with pytest.raises(UsageError, match="nothing follows"):
        automaton.copy_after(-1, 1)


def test_negative_ids_leave_everything_as_it_was():
    automaton = SuffixAutomaton([1, 2, 1])
    with pytest.raises(UsageError, match="negative"):
        automaton.append([5, -1])
    agree(automaton, NaiveSuffix([1, 2, 1]))


@pytest.mark.parametrize(
    "kind",
    [
        list,
        tuple,
        np.array,
        lambda ids: np.array(ids * 2, dtype=np.int64)[: len(ids)],
        lambda ids: np.repeat(np.array(ids, dtype=np.int32), 2)[::2],
    ],
)
def test_any_sequence_of_ids(kind):
    assert SuffixAutomaton(kind([1, 2, 1])).match() == (1, 0)


def test_ctrl_c_in_the_kernel_keeps_the_old_text(monkeypatch):
    automaton = SuffixAutomaton([1, 2, 3, 1, 2])
    reads = suffix_automaton.append

    def interrupted(*arguments):
        monkeypatch.setattr(suffix_automaton, "append", reads)
        reads(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(suffix_automaton, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        automaton.append(list(range(5000)))
    agree(automaton, NaiveSuffix([1, 2, 3, 1, 2]))
    check_integrity(automaton)
