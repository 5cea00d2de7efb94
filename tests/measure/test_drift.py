"""Drift on toys: nothing between exact decodings, and what a direct computation gives where noise was added."""

import math

import numpy as np
import pytest
from tests.helpers import PROMPT, greedy_truth, sampled_truth

from draftwood.api.generation import Generation
from draftwood.contracts import Sampling
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.errors import UsageError
from draftwood.measure.drift import Drift, RuleDrift, TextReader, divergence, drift, log_softmax, rule_drift
from draftwood.step import Step
from draftwood.testing import NumpyScores, ToyTarget


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
@pytest.mark.parametrize("sampling", [
    {}, {"temperature": 1.0, "seed": 7}, {"temperature": 0.7, "top_k": 3, "seed": 1},
    {"temperature": 1.0, "top_p": 0.8, "repetition_penalty": 1.3, "penalty_last_n": 3, "seed": 2},
])  # fmt: skip
def test_an_exact_rule_drifts_nowhere(options, sampling):
    target = ToyTarget(**options)
    found = drift(target, PROMPT, max_new_tokens=24, **sampling)
    told = found.figures()
    assert (len(found.kl), told["kl_max"], told["kl_mean"]) == (24, 0.0, 0.0)
    assert told["perplexity_plain"] == told["perplexity_other"]
    assert (
        told["equal_share"],
        told["first_difference"],
        told["text_identical"],
    ) == (1.0, None, True)
    assert found.ids == sampled_truth(target, Sampling(**sampling), limit=24)
    assert target.open_sessions == 0


def noisy(target, count):
    """What is found along a greedy text if the other side's scores are off by a fixed amount per token."""
    found, text = Drift(), greedy_truth(target)[:count]
    plain = [target.scores_after([*PROMPT, *text[:i]]) for i in range(count)]
    other = [(row + np.linspace(-1, 1, len(row))).astype(np.float32) for row in plain]
    for token, p, q in zip(text, plain, other, strict=True):
        found.add(token, p, q, same=int(q.argmax()) == token)
    return found, plain, other


def test_figures_are_what_a_direct_computation_gives():
    found, plain, other = noisy(ToyTarget(), 24)
    assert found.kl == pytest.approx([directly(p, q) for p, q in zip(plain, other, strict=True)])
    told = found.figures()
    assert told["kl_mean"] == pytest.approx(np.mean(found.kl))
    assert told["kl_max"] == max(found.kl) > 0
    surprise = [-log_softmax(row)[token] for row, token in zip(other, found.ids, strict=True)]
    assert told["perplexity_other"] == pytest.approx(math.exp(np.mean(surprise)))
    assert told["equal_share"] == sum(found.same) / 24 < 1
    assert told["first_difference"] == found.same.index(False)
    assert not told["text_identical"]


def test_wide_passes_that_are_off_are_seen():
    found = drift(WideIsNoisy(order=2), PROMPT, max_new_tokens=40)
    drafted = [kl for kl in found.kl if kl > 0]
    assert 0 < len(drafted) < 40  # passes without a draft are exact
    assert found.figures()["kl_max"] < 1e-3


def test_totals_and_json():
    one, two = (noisy(ToyTarget(seed=seed), count)[0] for seed, count in ((0, 4), (1, 8)))
    total = Drift.total([one, two])
    assert len(total.kl) == 12
    assert total.figures()["kl_mean"] == pytest.approx(
        (4 * one.figures()["kl_mean"] + 8 * two.figures()["kl_mean"]) / 12
    )
    assert total.figures()["kl_max"] == max(one.figures()["kl_max"], two.figures()["kl_max"])
    assert "kl" not in total.figures()
    assert total.figures(positions=True)["kl"] == one.kl + two.kl


def test_masked_tokens():
    p, q = (log_softmax(np.array(row, dtype=np.float32)) for row in ([0, 0, -np.inf], [0, 0, 0]))
    assert divergence(p, q) == pytest.approx(math.log(1.5))
    assert divergence(q, p) == math.inf
    assert divergence(p, p) == 0.0


def test_an_interrupt_keeps_what_was_compared(monkeypatch):
    result, target, read = Drift(), ToyTarget(), TextReader.read

    def interrupted(reader, token):
        if len(result.kl) == 5:
            raise KeyboardInterrupt
        read(reader, token)

    monkeypatch.setattr(TextReader, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        drift(target, PROMPT, into=result, max_new_tokens=20)
    assert len(result.kl) == 5
    assert target.open_sessions == 0


@pytest.mark.smollm2
@pytest.mark.slow
def test_drafts_of_a_real_model_drift_by_rounding_alone():
    prompt = "Repeat after me: one two three four five six seven. One two three four five six seven. One"
    found = drift("smollm2", prompt, max_new_tokens=24)
    told = found.figures()
    assert told["text_identical"]
    assert told["kl_max"] < 1e-8
    assert told["perplexity_other"] == pytest.approx(told["perplexity_plain"], rel=1e-5)


def test_what_is_refused():
    with pytest.raises(UsageError, match="does not take stop"):
        drift(ToyTarget(), PROMPT, stop="x")


def ruled(rule, prompts=(PROMPT,), **settings):
    found = RuleDrift(rule, lossy=True)
    drafters = [DraftModelDrafter(target=ToyTarget(order=1))]
    for prompt in prompts:
        how = {"planner": "fixed:6", "max_new_tokens": 24, **settings}
        rule_drift(ToyTarget(), prompt, [found], drafters=drafters, **how)
    return found


@pytest.mark.parametrize("sampling", [{"seed": 0}, {"temperature": 1.0, "seed": 3}])
@pytest.mark.parametrize("rule", ["exact", "threshold:tau=0"])
def test_neutral_rules_change_nothing(rule, sampling):
    found = ruled(rule, **sampling)
    assert (found.figures()["changed"], found.figures()["perplexity_change"]) == (0.0, 0.0)


def test_a_lossy_rule_is_held_against_plain_decoding():
    found, target = ruled("threshold:tau=0.5", seed=0), ToyTarget()
    ids = found.texts[0].ids
    assert found.plain[0].ids == greedy_truth(target) != ids
    told = found.figures()
    assert told["changed"] == 1.0
    surprise = [-log_softmax(target.scores_after([*PROMPT, *ids[:i]]))[t] for i, t in enumerate(ids)]
    assert told["perplexity"] == pytest.approx(np.exp(np.mean(surprise)))
    assert told["tokens_per_pass"] > ruled("exact", seed=0).figures()["tokens_per_pass"]
    assert told["speedup"] > 0


def test_texts_count_by_their_tokens_and_no_speedup_is_above_what_passes_allow():
    def text(seconds, *emitted):
        ids = [0] * (1 + sum(emitted))
        return Generation(ids=ids, steps=[Step(i, 9, (0,) * n, score_s=seconds) for i, n in enumerate(emitted)])

    found = RuleDrift("exact", lossy=False)
    found.plain = [text(1.0, *[1] * 2), text(2.0, *[1] * 30)]  # a long context is slower
    found.texts = [text(1.0, *[1] * 2), text(2.0, *[3] * 10)]
    told = found.figures()
    assert told["speedup"] == told["most_speedup"] == pytest.approx(62 / 22)
    assert told["tokens_per_pass"] == pytest.approx(32 / 12)
    found.busy = {0}  # the machine was busy
    told = found.figures()
    assert (told["speedup"], told["busy"]) == (pytest.approx(60 / 20), 1)


def test_shares_are_over_all_prompts():
    prompts, setting = [PROMPT, (3, 1), (7,)], Sampling(temperature=0.5, seed=1)
    found = ruled("top-k:k=2", prompts, temperature=0.5, seed=1)
    truth = [sampled_truth(ToyTarget(), setting, prompt) for prompt in prompts]
    assert [text.ids for text in found.plain] == truth
    assert found.figures()["changed"] == np.mean(
        [text.ids != ids for text, ids in zip(found.texts, truth, strict=True)]
    )
