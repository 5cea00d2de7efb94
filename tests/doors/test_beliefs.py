"""What was learnt of drafters carries on from call to call, for each target."""

from __future__ import annotations

import draftwood
from draftwood.doors.setup import Setup
from draftwood.drafters.load import load
from draftwood.testing import ToyTarget


def test_a_call_goes_on_with_what_the_last_one_learnt():
    target, other = ToyTarget(), ToyTarget()
    (drafter,) = load("ngram")
    draftwood.generate(target, [1, 2, 3], drafters="ngram", max_new_tokens=30)
    learnt = Setup(target, None, "ngram", "fixed:16").planner.beliefs.rates(drafter, greedy=True)
    fresh = Setup(other, None, "ngram", "fixed:16").planner.beliefs.rates(drafter, greedy=True)
    assert learnt.totals.sum() > 0
    assert fresh.totals.sum() == 0


def test_a_planner_that_is_given_keeps_its_own():
    target = ToyTarget()
    draftwood.generate(target, [1, 2, 3], drafters="ngram", max_new_tokens=30)
    planner = Setup(ToyTarget(), None, "ngram", "fixed:8").planner
    assert Setup(target, None, "ngram", planner).planner is planner
