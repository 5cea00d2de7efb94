"""Drift on toys: nothing between exact decodings, and what a direct computation gives where noise was added."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from tests.helpers import PROMPT, greedy_truth, sampled_truth

from draftwood.contracts import Sampling, Verdict
from draftwood.errors import UsageError
from draftwood.measure.drift import Drift, divergence, drift, log_softmax
from draftwood.testing import NumpyScores, ToyTarget
from draftwood.verify.exact import SampleAndMatch


class NoisyTarget(ToyTarget):
    """A toy whose scores are off by a fixed amount per token."""

    def off(self, rows):
        return (rows + np.linspace(-1, 1, rows.shape[-1], dtype=np.float32)).astype(np.float32)

    def look(self, ids, positions, sees, at):
        return self.off(super().look(ids, positions, sees, at))


class WideIsNoisy(ToyTarget):
    """A toy whose passes over more than one token are off: what an inexact engine would do."""

    def score(self, requests):
        return [
            NumpyScores(scores.rows + np.float32(0.01) * np.arange(8, dtype=np.float32)) if len(tree) else scores
            for scores, (_, _, tree) in zip(super().score(requests), requests, strict=True)
        ]


def directly(p_row, q_row):
    """KL in its plainest words."""
    p, q = (np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum() for row in (p_row, q_row))
    return float((p * np.log(p / q)).sum())


@pytest.mark.parametrize("options", [{}, {"trees": False}, {"rollback": "snapshot"}])
@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 1.0, "seed": 7},
        {"temperature": 0.7, "top_k": 3, "seed": 1},
        {"temperature": 1.0, "top_p": 0.8, "repetition_penalty": 1.3, "seed": 2},
    ],
)
def test_an_exact_rule_drifts_nowhere(options, sampling):
    target = ToyTarget(**options)
    found = drift(target, PROMPT, max_new_tokens=24, **sampling)
    assert (found.tokens, found.kl_max, found.kl_mean) == (24, 0.0, 0.0)
    assert found.perplexity_plain == found.perplexity_other
    assert (found.equal_share, found.first_difference, found.text_identical) == (1.0, None, True)
    assert found.ids == sampled_truth(target, Sampling(**sampling), limit=24)
    assert target.open_sessions == 0


def test_another_model_drifts_by_what_a_direct_computation_gives():
    target, other = ToyTarget(), NoisyTarget()
    found = drift(target, PROMPT, other=other, max_new_tokens=24)
    text = greedy_truth(target)
    assert found.ids == text
    plain = [target.scores_after([*PROMPT, *text[:i]]) for i in range(24)]
    noisy = [other.off(row) for row in plain]
    assert found.kl == pytest.approx([directly(p, q) for p, q in zip(plain, noisy, strict=True)])
    assert found.kl_mean == pytest.approx(np.mean(found.kl))
    assert found.kl_max == max(found.kl) > 0
    surprise = [-log_softmax(row)[token] for row, token in zip(noisy, text, strict=True)]
    assert found.perplexity_other == pytest.approx(math.exp(np.mean(surprise)))
    same = [int(row.argmax()) == token for row, token in zip(noisy, text, strict=True)]
    assert found.same == same
    assert found.equal_share == sum(same) / 24 < 1
    assert found.first_difference == same.index(False)
    assert not found.text_identical
    assert target.open_sessions == other.open_sessions == 0


def test_the_same_model_twice():
    found = drift(ToyTarget(), PROMPT, other=ToyTarget(), max_new_tokens=8, temperature=1.0, seed=3)
    assert (found.kl_max, found.text_identical) == (0.0, True)


def test_wide_passes_that_are_off_are_seen():
    found = drift(WideIsNoisy(order=2), PROMPT, max_new_tokens=40)
    drafted = [kl for kl in found.kl if kl > 0]
    assert 0 < len(drafted) < 40  # passes without a draft are exact
    assert found.kl_max < 1e-3


@dataclasses.dataclass(frozen=True)
class Stubborn:
    """A lossy rule: writes token 3 in each step, whatever the model says."""

    def open(self, prompt, sampling, processors=(), sequence=0):
        session = SampleAndMatch().open(prompt, sampling, processors, sequence)

        def verify(tree, scores, ended):
            return Verdict((), (3,), ended(3))

        session.verify = verify
        return session


def test_a_lossy_rule_shows_in_choices_and_perplexity():
    target = ToyTarget()
    found = drift(target, PROMPT, rule=Stubborn(), max_new_tokens=16)
    assert found.ids == [3] * 16
    assert found.kl_max == 0.0
    assert found.equal_share < 1
    assert found.perplexity_plain > drift(target, PROMPT, max_new_tokens=16).perplexity_plain
    agrees = [int(target.scores_after([*PROMPT, *[3] * i]).argmax()) == 3 for i in range(16)]
    assert found.same == agrees


def test_texts_that_end_at_the_last_position():
    found = drift(ToyTarget(max_positions=12), PROMPT, max_new_tokens=100)
    assert found.tokens == 12 - len(PROMPT)
    assert found.text_identical


def test_totals_and_json():
    one, two = (
        drift(ToyTarget(), PROMPT, other=NoisyTarget(seed=s), max_new_tokens=n) for s, n in ((0, 4), (1, 8))
    )
    total = Drift.total([one, two])
    assert total.tokens == 12
    assert total.kl_mean == pytest.approx((4 * one.kl_mean + 8 * two.kl_mean) / 12)
    assert total.to_json()["kl_max"] == max(one.kl_max, two.kl_max)
    assert "kl" not in total.to_json()
    assert total.to_json(positions=True)["kl"] == one.kl + two.kl


def test_nothing_compared_yet():
    empty = Drift()
    assert (empty.tokens, empty.kl_mean, empty.kl_max, empty.perplexity_plain) == (0, 0.0, 0.0, None)
    assert (empty.equal_share, empty.first_difference, empty.text_identical) == (None, None, True)


def test_masked_tokens():
    p, q = (log_softmax(np.array(row, dtype=np.float32)) for row in ([0, 0, -np.inf], [0, 0, 0]))
    assert divergence(p, q) == pytest.approx(math.log(1.5))
    assert divergence(q, p) == math.inf
    assert divergence(p, p) == 0.0


def test_an_interrupt_keeps_what_was_compared():
    result, target = Drift(), ToyTarget()

    def stop(tokens):
        if tokens == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drift(target, PROMPT, into=result, on_token=stop, max_new_tokens=20)
    assert result.tokens == 5
    assert target.open_sessions == 0


@pytest.mark.smollm2
@pytest.mark.slow
def test_drafts_of_a_real_model_drift_by_rounding_alone():
    prompt = "Repeat after me: one two three four five six seven. One two three four five six seven. One"
    found = drift("smollm2", prompt, max_new_tokens=24)
    assert found.text_identical
    assert found.kl_max < 1e-8
    assert found.perplexity_other == pytest.approx(found.perplexity_plain, rel=1e-5)


def test_what_is_refused():
    with pytest.raises(UsageError, match="vocabularies of 8 and 9"):
        drift(ToyTarget(), PROMPT, other=ToyTarget(vocab_size=9), max_new_tokens=2)
    with pytest.raises(UsageError, match="does not take stop"):
        drift(ToyTarget(), PROMPT, stop="x")
