"""Lookahead decoding and the text: sampled ones, document 4's walk, wrong use, few tokens."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.drafters.lookahead_runs import LookaheadOnly
from tests.helpers import GREEDY, SAMPLED, greedy_truth, sampled_truth, write

from draftwood.contracts import Sampling
from draftwood.drafters.load import load
from draftwood.errors import CapabilityError
from draftwood.testing import ToyTarget


@pytest.mark.parametrize("spec", ["", ":variant=llama.cpp", ":ngram=2:forward_one=true"])
@pytest.mark.parametrize("sampling", [SAMPLED, Sampling(0.7, top_p=0.9, seed=3)])
def test_sampled_text_is_plain_decodings(spec, sampling):
    target = ToyTarget(17, order=2, sharpness=3.0)
    written = write(target, load(f"lookahead{spec}"), 16, sampling=sampling, limit=80)
    assert written.ids == sampled_truth(target, sampling, limit=80)
    assert sum(step.accepted for step in written.steps)


def walk(prob, candidates, *, renormalise):
    """Distribution of the token that document 4's walk gives (section 3.6), by exact enumeration."""
    found = dict.fromkeys(range(len(prob)), Fraction(0))
    reached, prob = Fraction(1), list(prob)
    for token in candidates:
        found[token] += reached * prob[token]  # r < prob(t): accepted
        reached *= 1 - prob[token]
        if renormalise:
            rest = 1 - prob[token]
            prob = [Fraction(0) if t == token else p / rest for t, p in enumerate(prob)]
    for token, p in enumerate(prob):
        found[token] += reached * p
    return [found[token] for token in range(len(prob))]


def literal_rest(prob, candidates):
    """How often the literal walk refuses every candidate."""
    rest = Fraction(1)
    for token in candidates:
        rest *= 1 - prob[token]
    return rest


@pytest.mark.parametrize("candidates", [[0], [0, 1], [2, 0]])
def test_document_fours_walk_taken_literally_changes_the_distribution(candidates):
    """Accepting with probability p, and drawing from the same p once all were refused, favours the first."""
    target = ToyTarget(3, order=2, seed=5)
    weights = target.probabilities([1, 2], Sampling(1.0))
    prob = [Fraction(float(w)) for w in weights]
    prob = [p / sum(prob) for p in prob]
    assert walk(prob, [], renormalise=False) == prob
    literal = walk(prob, candidates, renormalise=False)
    assert sum(literal) == 1
    assert literal != prob
    assert literal[candidates[0]] == prob[candidates[0]] + prob[candidates[0]] * literal_rest(prob, candidates)
    assert walk(prob, candidates, renormalise=True) == prob


# --- wrong use -----------------------------------------------------------------------------------------------


def test_a_target_of_chains_refuses_it_with_a_sentence():
    target = ToyTarget(trees=False)
    with pytest.raises(CapabilityError, match=r"'lookahead' scores a window .* needs a target with trees"):
        write(target, load("lookahead"))
    assert target.open_sessions == 0


def test_so_does_one_whose_passes_do_not_hold_the_window():
    with pytest.raises(CapabilityError, match="'lookahead'"):
        write(ToyTarget(max_pass=27), load("lookahead"))
    target = ToyTarget(max_pass=28)
    assert write(target, load("lookahead"), 4).ids == greedy_truth(target)


@pytest.mark.parametrize("vocab", [2, 3, 20])
@pytest.mark.parametrize("spec", ["", ":variant=llama.cpp", ":window=1", ":window=1:ngram=2", ":vocabulary=2"])
def test_one_token_of_prompt_and_few_in_all(vocab, spec):
    target = ToyTarget(vocab, order=2)
    for sampling in (GREEDY, SAMPLED):
        written = write(target, load(f"lookahead{spec}"), 12, prompt=[1], sampling=sampling, limit=50)
        assert written.ids == write(target, prompt=[1], sampling=sampling, limit=50).ids
        assert not any(step.by_source[0].failed for step in written.steps)


def test_lookahead_nodes_are_scored_and_in_no_count():
    target = ToyTarget(25, order=2)
    written = write(target, load("lookahead:prompt=false:vocabulary=25"), LookaheadOnly(8), limit=60)
    assert written.ids == greedy_truth(target, limit=60)
    assert len(written.steps) == 59
    assert set(written.sources) == {-1}
    assert sum(step.lookahead_scored for step in written.steps) > 1000
    assert not any(step.drafted for step in written.steps)
