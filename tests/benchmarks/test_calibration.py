"""The arithmetic of the calibration benchmark, on labels whose error is known."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.calibration import by_source, equal_count, equal_width, noise
from hypothesis import given
from hypothesis import strategies as st

PAIRS = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def arrays(pairs):
    belief, right = zip(*pairs, strict=True)
    return np.array(belief), np.array(right, dtype=float)


def test_the_error_is_the_distance_of_promise_and_rate_weighted_by_labels():
    belief = np.array([0.25, 0.25, 0.25, 0.25, 0.85, 0.85])
    right = np.array([1.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    for bins in (equal_width(belief, right), equal_count(belief, right)):
        assert bins.count.tolist() == [4, 2]
        assert bins.rate.tolist() == [0.25, 0.5]
        assert bins.error == pytest.approx(0.35 * 2 / 6)


@given(PAIRS)
def test_no_label_is_lost_and_bins_keep_promises_and_hits(pairs):
    belief, right = arrays(pairs)
    for bins in (equal_width(belief, right), equal_count(belief, right)):
        assert bins.count.sum() == len(pairs)
        assert (bins.count > 0).all()
        assert bins.belief @ bins.count == pytest.approx(belief.sum())
        assert bins.rate @ bins.count == pytest.approx(right.sum())
        assert abs(belief.mean() - right.mean()) - 1e-9 <= bins.error <= 1


@given(PAIRS)
def test_equal_beliefs_share_a_bin(pairs):
    belief, right = arrays(pairs * 2)
    alone = equal_count(belief, right)
    shuffled = np.random.default_rng(0).permutation(len(belief))
    again = equal_count(belief[shuffled], right[shuffled])
    assert again.count.tolist() == alone.count.tolist()
    assert again.error == pytest.approx(alone.error)


def test_without_labels_nothing_is_wrong():
    none = np.empty(0)
    assert equal_width(none, none).error == equal_count(none, none).error == noise(none) == 0


def test_chance_shrinks_with_the_number_of_labels():
    few, many = np.full(20, 0.5), np.full(2000, 0.5)
    assert 0.05 < noise(few) < 0.2
    assert noise(many) < 0.02
    assert noise(np.ones(20)) == 0


def test_sources_count_by_their_labels():
    belief, right = np.array([0.5, 0.5, 1.0, 1.0]), np.array([1.0, 0.0, 0.0, 0.0])
    errors, mean = by_source(belief, right, np.array([0, 0, 1, 1]))
    assert errors == {0: 0.0, 1: 1.0}
    assert mean == 0.5
