"""What a planner has learnt: pass times by batch size."""

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
