"""Rates: the words of our tables, worked out by hand once and held against the plain definitions."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from draftwood.rates import Rates
from draftwood.step import Step
from draftwood.testing import ToyTarget
from tests.helpers import write
from tests.toys import SameDrafter


def step(emitted: int, drafted: int, accepted: int, lookahead_scored: int = 0) -> Step:
    return Step(
        0, 9, (1,) * emitted, drafted=drafted, accepted=accepted, lookahead_scored=lookahead_scored, depth=drafted
    )


def test_by_hand():
    # Four passes: all of three accepted, one of four, no draft, none of two.
    rates = Rates.of([step(4, 3, 3), step(2, 4, 1), step(1, 0, 0), step(1, 2, 0)])
    assert (rates.tokens, rates.passes, rates.drafted, rates.accepted) == (8, 4, 9, 4)
    assert rates.mean_acceptance_length == 8 / 4
    assert rates.drafted_step_acceptance_length == 7 / 3
    assert rates.acceptance_rate == 4 / 9
    assert rates.accepted_per_cycle == 4 / 3
    assert rates.draft_coverage == 3 / 4
    assert rates.three_accepted == 1 / 3
    assert rates.acceptance_by_position == (2 / 3, 1 / 3, 1 / 2, 0)


def test_without_steps_and_without_drafts_there_is_no_division():
    assert Rates.of([]).mean_acceptance_length == 0
    assert Rates.of([]).tokens_per_second == 0
    plain = Rates.of([step(1, 0, 0)] * 3)
    assert plain.mean_acceptance_length == 1
    assert (plain.acceptance_rate, plain.accepted_per_cycle, plain.draft_coverage) == (0, 0, 0)
    assert plain.drafted_step_acceptance_length == 0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_every_rate_is_its_definition(pairs):
    steps = [step(min(a, b) + 1, b, min(a, b)) for a, b in pairs]
    rates = Rates.of(steps)

    def mean(values: list[int], over: int) -> float:
        return float(Fraction(sum(values), over)) if over else 0

    carried = [s for s in steps if s.drafted > 0]
    assert rates.mean_acceptance_length == mean([len(s.emitted) for s in steps], len(steps))
    assert rates.drafted_step_acceptance_length == mean([len(s.emitted) for s in carried], len(carried))
    assert rates.acceptance_rate == mean([s.accepted for s in steps], sum(s.drafted for s in steps))
    assert rates.accepted_per_cycle == mean([s.accepted for s in steps], len(carried))
    assert rates.draft_coverage == mean([1] * len(carried), len(steps))


def test_of_a_text_the_first_token_belongs_to_no_pass():
    target = ToyTarget()
    plain = write(target, limit=10)
    rates = Rates.of(plain.steps)
    assert (rates.tokens, rates.passes, rates.mean_acceptance_length) == (9, 9, 1)
    drafted = Rates.of(write(target, [SameDrafter(target)], 4, limit=21).steps)
    assert (drafted.tokens, drafted.passes, drafted.mean_acceptance_length) == (20, 4, 5)
    assert (drafted.acceptance_rate, drafted.draft_coverage) == (1, 1)
