"""Lossy rules: neutral settings are exact, masked tokens never come, each accepts what its sentence says."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.contracts import Sampling
from draftwood.decoding.request import Request
from draftwood.errors import UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.load import load
from draftwood.verify.noise import KeyedNoise
from tests.drafter_list import EVERY
from tests.helpers import PROMPT, Grammar, TwiceAtMost, sampled_truth, trees, write_batch
from tests.verify.rows import GREEDY, VOCAB, Rows, Stateful, never

SAMPLED = Sampling(temperature=0.9, top_k=6, repetition_penalty=1.1, seed=5)
LOSSY = ("threshold:tau=0.5", "top-k:k=4")
NEUTRAL = ("exact", "threshold:tau=0")
GUESSING = ("model of another mind+ngram", "ngram+draft-model+recycling", "quantized-self", "random", "top-k")


def verdict(rule, scores, tree, sampling=GREEDY, processors=(), ended=never):
    """Verify one tree with rows of log-probabilities."""
    return load(rule).open((0,), sampling, processors).verify(tree, Rows(scores), ended)


def row(*p):
    """Scores of a row with these probabilities, the rest of the vocabulary masked."""
    with np.errstate(divide="ignore"):
        return np.log([*p, *[0.0] * (VOCAB - len(p))])


def child(token, q=math.nan):
    return TokenTree.build([token], draft_prob=[q])


# --- neutral settings ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", NEUTRAL)
@pytest.mark.parametrize("drafters", GUESSING)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_neutral_settings_are_the_exact_rule(rule, drafters, sampling):
    target = ToyTarget()
    request = Request(PROMPT, 24, sampling, processors=[TwiceAtMost()])
    (written,) = write_batch(target, EVERY[drafters](target, sampling), [request], rule=load(rule))
    assert written.ids == sampled_truth(target, sampling, processors=[TwiceAtMost()])


def test_of_equal_scores_the_lower_id_is_better():
    tied = [row(0.5, 0.5), row(1.0)]
    assert verdict("top-k:k=1", tied, child(1)).emitted == (0,)
    assert verdict("top-k:k=2", tied, child(1)).emitted == (1, 0)


# --- every rule ----------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(tree=trees(VOCAB), seed=st.integers(0, 99), data=st.data())
@pytest.mark.parametrize("rule", LOSSY)
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_masked_tokens_never_come_and_the_path_is_what_was_emitted(rule, sampling, tree, seed, data):
    scores = np.random.default_rng(seed).normal(size=(1 + len(tree), VOCAB))
    limit = data.draw(st.integers(1, 4))
    calls, told = Stateful(), []

    def ended(token):
        told.append(token)
        return "length" if len(told) == limit else None

    found = verdict(rule, scores, tree, sampling, [Grammar(), lambda p, r: (calls(p, r.copy()), r)[1]], ended)
    text = [0, *found.emitted]
    for before, token in pairwise(text):
        assert token in Grammar.after(before, VOCAB)
    assert tuple(told) == found.emitted
    assert calls.prefixes == [text[: 1 + n] for n in range(len(found.emitted))]
    followed = tuple(tree.tokens[list(found.path)].tolist())
    assert found.emitted[: len(followed)] == followed
    assert list(found.path) == (tree.path(found.path[-1]) if found.path else [])
    assert not tree.lookahead[list(found.path)].any()
    cut = len(found.emitted) == len(followed)
    assert (found.finish == "length") if cut else len(found.emitted) == len(followed) + 1


@pytest.mark.parametrize("rule", ["threshold:tau=1", "top-k:k=99"])
def test_the_own_choice_comes_first_then_the_most_likely_child(rule):
    likely = row(0.5, 0.3, 0.2)
    tree = TokenTree.build([2, 1, 0], [-1, -1, -1], draft_prob=[0.9, 0.1, 0.1])
    assert verdict(rule, [likely] + [row(1.0)] * 3, tree).emitted == (0, 0)
    assert verdict(rule, [likely] + [row(1.0)] * 2, tree.head(2)).emitted == (1, 0)


def test_an_error_of_a_processor_below_the_root_leaves_what_was_accepted():
    def fails(prefix, scores):
        if len(prefix) == 2:
            raise RuntimeError("no")
        return scores

    found = verdict("top-k", [row(0.6, 0.4), row(1.0)], child(1), processors=[fails])
    assert (found.path, found.emitted, str(found.error)) == ((0,), (1,), "no")


# --- one rule each -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("q", "tau", "accepted"), [(0.45, 0.1, True), (0.3, 0.06, True), (0.3, 0.04, False), (math.nan, 1, False)]
)
def test_threshold_compares_the_two_probabilities_of_the_token(q, tau, accepted):
    found = verdict(f"threshold:tau={tau}", [row(0.65, 0.35), row(1.0)], child(1, q))
    assert found.emitted == ((1, 0) if accepted else (0,))


def test_probabilities_are_those_at_the_temperature_and_greedy_ones_those_at_one():
    # p = 0.8, 0.2; at temperature 2: 2/3, 1/3; at 0.5: 16/17, 1/17.
    scores, close = [row(0.8, 0.2), row(1.0)], "threshold:tau=0.001"
    assert verdict(close, scores, child(1, 0.2)).path == (0,)
    seed = next(s for s in range(99) if np.diff(KeyedNoise(s).gumbel(1, np.arange(2)))[0] < -5)  # 0 is chosen
    for temperature, q in ((1.0, 0.2), (2.0, 1 / 3), (0.5, 1 / 17)):
        sampling = Sampling(temperature, seed=seed)
        assert verdict(close, scores, child(1), sampling).path == ()
        assert verdict(close, scores, child(1, q), sampling).path == (0,)
    assert verdict(close, scores, child(1, 0.2), Sampling(2.0, seed=seed)).path == ()


# --- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("threshold:tau=-0.1", "tau must lie in"),
        ("threshold:tau=1.1", "tau must lie in"),
        ("threshold:tau=nan", "tau must lie in"),
        ("threshold:tau=x", "must be a number"),
        ("top-k:k=0", "k must be"),
        ("top-k:k=1.5", "whole number"),
        ("exact:tau=0", "tau"),
        (SampleAndMatch, "is no rule"),
        (3, "is no rule"),
        (FixedPlanner(3), "is no rule"),
    ],
)
def test_wrong_rules_are_refused(spec, said):
    with pytest.raises(UsageError, match=said):
        load(spec)
