"""What a planner has learnt: costs by batch, the curve that passes corrected, beginning with what was kept."""

from __future__ import annotations

import pytest

from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.learned import Learned

CURVE = CostCurve({128: {1: 0.02, 4: 0.022, 16: 0.04}, 1024: {1: 0.03, 4: 0.033, 16: 0.05}})


def passes(learned, factor=1.0, widths=(1, 2, 4, 8, 16), count=60, context=128):
    for _ in range(count):
        for width in widths:
            learned.cost(1).learn(width, context, factor * CURVE.seconds(width, context))


def test_batches_of_about_one_size_share_what_is_known():
    learned = Learned()
    assert learned.cost(4) is learned.cost(7)
    assert learned.cost(1) is not learned.cost(4)


def test_a_new_size_begins_with_what_the_nearest_knows():
    learned = Learned()
    passes(learned)
    known, found = learned.cost(1), learned.cost(2)
    assert found.seconds(4, 128) == pytest.approx(known.seconds(4, 128))
    assert found.deviation(4) > known.deviation(4)


def test_before_any_pass_the_curve_is_the_one_that_was_given():
    assert Learned(curve=CURVE).corrected() is CURVE
    assert Learned().corrected() is None


def test_passes_correct_the_whole_curve_at_every_context():
    learned = Learned(curve=CURVE)
    passes(learned, factor=2.0)
    for context, n, seconds in learned.corrected().points():
        assert seconds == pytest.approx(2 * CURVE.seconds(n, context), rel=0.1)
    assert learned.corrected().contexts == CURVE.contexts


def test_without_a_curve_only_widths_that_were_seen_are_said():
    learned = Learned()
    passes(learned, widths=(1, 4))
    found = {n: seconds for _, n, seconds in learned.corrected().points()}
    assert {1, 4} <= set(found) <= {1, 2, 4, 8}
    assert found[1] == pytest.approx(0.02, rel=0.05)
    assert found[4] == pytest.approx(0.022, rel=0.05)


def test_what_was_kept_is_a_beginning_and_no_more():
    learned = Learned()
    learned.take("file", [], CURVE)
    assert learned.cost(1).seconds(4, 128) == pytest.approx(0.022)
    passes(learned, factor=3.0)
    learned.take("file", [], CURVE)
    learned.take("another", [], CostCurve.of({1: 9.0}))
    assert learned.cost(1).seconds(4, 128) == pytest.approx(0.066, rel=0.1)
    assert learned.curve is CURVE
