"""The drafter ``jacobi`` against a literal Jacobi iteration, its bound, and its fixed points."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import GREEDY, opened, sampled_truth, write_batch

from draftwood.contracts import Feedback, Sampling
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.jacobi.drafter import CHANGED, FRESH, PLACES, PRIOR, STATES, STEADY, JacobiDrafter
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree

RATES = np.linspace(0.1, 0.9, len(PRIOR), dtype=np.float32)

DRAFTERS = st.builds(
    JacobiDrafter, block=st.integers(1, 9), start=st.sampled_from(["prompt", "previous"]), seed=st.integers(-5, 5)
)
TARGETS = st.builds(ToyTarget, vocab_size=st.integers(2, 12), order=st.integers(1, 3), seed=st.integers(0, 50))


def steps_of(target, drafter, prompt, sampling=GREEDY):
    """The text, and the steps with their traces."""
    request = Request(prompt, 40, sampling, trace=True)
    (written,) = write_batch(target, [drafter], [request], drafter.block)
    assert not any(step.by_source[0].failed for step in written.steps)
    return written.ids, written.steps


def literal(target, text, guesses):
    """One Jacobi iteration: each guess becomes what the target takes after the text and the guesses before it."""
    return [int(np.argmax(target.scores_after([*text, *guesses[:i]]))) for i in range(len(guesses))]


def guesses_of(session):
    return session.draft(16, 0, RATES).tokens.tolist()


def feedback(proposal, choice, emitted, rows=None):
    """What a pass over the whole proposal taught."""
    rows = np.arange(len(proposal), dtype=np.int32) if rows is None else np.array(rows, dtype=np.int32)
    return Feedback(proposal, proposal, rows, (), tuple(emitted), np.array(choice, dtype=np.int32))


# --- the iteration -------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    target=TARGETS,
    block=st.integers(1, 9),
    start=st.sampled_from(["prompt", "previous"]),
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=9),
)
def test_jacobi_follows_the_literal_iteration(target, block, start, prompt):
    ids, steps = steps_of(target, JacobiDrafter(block=block, start=start), prompt)
    text = [*prompt, *ids]
    at, guesses = len(prompt) + 1, []  # where the block begins, and its literal iterate
    for step in steps:
        proposed = step.trace["tokens"]
        done = step.context - at
        if done >= len(guesses):  # all of the block is text: the next one begins
            at, done, guesses = step.context, 0, proposed
        left = len(guesses) - done
        assert guesses[:done] == text[at : step.context], "what is text stays"
        assert guesses[done:][: len(proposed)] == proposed, "the others are the literal iterate"
        assert len(proposed) == min(left, 40 - (step.context - len(prompt)) - 1), "which the limit alone cuts"
        guesses = literal(target, text[:at], guesses)


@given(
    target=TARGETS,
    drafter=DRAFTERS,
    prompt=st.lists(st.integers(0, 1), min_size=1, max_size=9),
    temperature=st.sampled_from([0.0, 0.7, 1.0]),
)
def test_the_text_is_plain_and_no_block_takes_more_passes_than_it_has_tokens(target, drafter, prompt, temperature):
    sampling = Sampling(temperature, seed=3)
    ids, steps = steps_of(target, drafter, prompt, sampling)
    assert ids == sampled_truth(target, sampling, prompt, limit=40)
    assert len(steps) <= len(ids) - 1, "the first token came from the prompt"
    begun = None
    for number, step in enumerate(steps):
        fresh = step.trace["evidence"][:1] == [FRESH]
        if fresh and begun is not None:
            assert number - begun <= drafter.block
        begun = number if fresh else begun


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.7, seed=11), Sampling(1.3, seed=5)])
def test_a_block_that_is_the_text_is_taken_whole_in_one_pass(sampling):
    target, prompt = ToyTarget(order=3), [1, 2, 3]
    truth = sampled_truth(target, sampling, prompt, limit=10)
    drafter = JacobiDrafter(block=8)
    with opened(target, [drafter], Request(prompt, 10, sampling)) as row:
        pieces = decode_sequences(target, FixedPlanner(8), [row])
        next(pieces)
        row.open_sources()
        row.sources[0].session._guesses, row.sources[0].session._states = truth[1:9], [FRESH] * 8
        assert next(pieces).tokens == tuple(truth[1:])


def test_guesses_that_are_right_stay_though_they_were_not_taken():
    session = JacobiDrafter(block=4).open([1, 2], None)
    tree = session.draft(4, 0, RATES)
    right = tree.tokens.tolist()
    session.learn(feedback(tree, [*right, 5], right[:1]))  # as where another rule stopped short
    after = session.draft(4, 0, RATES)
    assert after.tokens.tolist() == right[1:]
    assert [e % STATES for e in after.evidence.tolist()] == [STEADY] * 3


# --- guesses -------------------------------------------------------------------------------------------------


def test_what_was_not_scored_keeps_its_guess():
    session = JacobiDrafter(block=6).open([1, 2, 3], None)
    tree = session.draft(6, 0, RATES)
    session.learn(feedback(tree, [7, 8, -1], [7], rows=[0, 1, -1, -1, -1, -1]))
    guesses = session.draft(6, 0, RATES)
    assert guesses.tokens.tolist() == [8, *tree.tokens.tolist()[2:]]
    states = [e % STATES for e in guesses.evidence.tolist()]
    assert states == [CHANGED if tree.tokens[1] != 8 else STEADY, FRESH, FRESH, FRESH, FRESH]


def test_a_step_without_drafts_shifts_the_block():
    session = JacobiDrafter(block=4).open([1, 2, 3], None)
    guesses = guesses_of(session)
    none = TokenTree.empty()
    session.learn(feedback(none, [5], [5]))
    assert guesses_of(session) == guesses[1:]
    session.learn(feedback(none, [5], [5, 6]))  # another source's draft
    assert guesses_of(session) == guesses[3:]
    session.learn(feedback(none, [5], [5, 6]))
    assert len(guesses_of(session)) == 4


def test_evidence_is_place_and_state():
    tree = JacobiDrafter(block=12).open([1], None).draft(12, 0, RATES)
    places = [0, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4]
    assert tree.evidence.tolist() == [STATES * place + FRESH for place in places]
    assert tree.belief.tolist() == RATES[tree.evidence].tolist()
    assert len(PRIOR) == STATES * (len(PLACES) + 1)
    assert tree.is_chain


def test_where_guesses_come_from():
    prompt = [5, 6, 7, 8]
    session = JacobiDrafter(block=16).open(prompt, None)
    session.begin_answer([3])
    drawn = guesses_of(session)
    assert set(drawn) == set(prompt), "of the prompt, not of the answer"
    assert guesses_of(JacobiDrafter(block=16, seed=1).open([*prompt, 3], None)) != drawn
    assert guesses_of(JacobiDrafter(block=3, start="previous").open(prompt, None)) == [6, 7, 8]
    assert set(guesses_of(JacobiDrafter(block=6, start="previous").open([5, 6], None))) == {5, 6}
    assert guesses_of(JacobiDrafter(block=2).open([9], None)) == [9, 9]
    assert guesses_of(JacobiDrafter().open([], None)) == []


def test_the_next_block_begins_with_the_previous_one():
    session = JacobiDrafter(block=3, start="previous").open([9, 1, 2, 3], None)
    tree = session.draft(3, 0, RATES)
    session.learn(feedback(tree, [4, 5, 6, 7], [4, 5, 6]))
    assert guesses_of(session) == [4, 5, 6]


def test_other_text_ends_the_block():
    session = JacobiDrafter(block=4).open([1, 2, 3, 4], None)
    first = guesses_of(session)
    session.learn(feedback(session.draft(4, 0, RATES), [5, 6, 7, 5, 6], [5]))
    assert guesses_of(session) == [6, 7, 5]
    session.truncate(4)
    assert guesses_of(session) == first
    session.learn(feedback(session.draft(4, 0, RATES), [5, 6, 7, 5, 6], [5]))
    session.extend([6, 6])
    assert len(guesses_of(session)) == 4
