"""What lossy rules change: nothing at neutral settings, and what a direct computation gives elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from tests.helpers import PROMPT, greedy_truth, sampled_truth

from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.measure.drift import divergence, log_softmax
from draftwood.measure.rule_drift import empty, rule_drift
from draftwood.testing import ToyTarget

SETTINGS = {"drafters": [DraftModelDrafter(target=ToyTarget(order=1))], "planner": "fixed:6"}


def measured(rules, prompts=(PROMPT,), **settings):
    found = empty(rules)
    for prompt in prompts:
        rule_drift(ToyTarget(), prompt, rules, found, **(SETTINGS | {"max_new_tokens": 24} | settings))
    return found


@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 3}])
def test_neutral_rules_change_nothing(sampling):
    for one in measured(["exact", "threshold:tau=0", "ensemble:weight=0"], **sampling):
        assert not one.lossy
        assert (one.changed, one.same_tokens, one.kl_mean, one.perplexity_change) == (0.0, 1.0, 0.0, 0.0)


def test_a_lossy_rule_is_held_against_plain_decoding():
    (one,) = measured(["threshold:tau=0.5"])
    target, ids = ToyTarget(), one.texts[0].ids
    assert one.rule == "threshold:tau=0.5"
    assert one.lossy
    assert one.plain[0].ids == greedy_truth(ToyTarget())
    assert ids != one.plain[0].ids
    assert one.changed == 1.0

    def rows(text):
        return [log_softmax(target.scores_after([*PROMPT, *text[:i]])) for i in range(len(text))]

    plain, mine = rows(one.plain[0].ids), rows(ids)
    assert one.kl_mean == pytest.approx(np.mean([divergence(p, q) for p, q in zip(plain, mine, strict=True)]))
    surprise = [-row[token] for row, token in zip(mine, ids, strict=True)]
    assert one.perplexity == pytest.approx(np.exp(np.mean(surprise)))
    assert one.perplexity_change == one.perplexity - one.perplexity_plain
    assert one.tokens_per_pass > measured(["exact"])[0].tokens_per_pass


def test_shares_are_over_all_prompts():
    (one,) = measured(["top-k:k=2"], [PROMPT, (3, 1), (7,)], temperature=0.5, seed=1)
    truth = [sampled_truth(ToyTarget(), setting(), prompt) for prompt in (PROMPT, (3, 1), (7,))]
    assert [side.ids for side in one.plain] == truth
    assert one.changed == np.mean([side.ids != ids for side, ids in zip(one.texts, truth, strict=True)])
    assert one.to_json()["changed"] == one.changed


def setting():
    from draftwood.contracts import Sampling

    return Sampling(temperature=0.5, seed=1)
