"""Where two texts part, and by how much the target preferred its choice."""

import numpy as np

from draftwood.contracts import Sampling
from draftwood.measure.ties import first_difference
from draftwood.testing import ToyTarget
from draftwood.verify.noise import KeyedNoise


def test_equal_texts_do_not_part():
    assert first_difference(ToyTarget(), [1, 2], [3, 4], [3, 4]) is None


def test_the_margin_is_that_of_the_two_best_scores_where_the_texts_part():
    target = ToyTarget()
    found = first_difference(target, [1, 2], [3, 4, 5], [3, 4, 6])
    row = np.sort(target.scores_after([1, 2, 3, 4]))
    assert (found.index, found.tokens) == (2, (5, 6))
    assert np.isclose(found.margin, row[-1] - row[-2])
    assert target.open_sessions == 0


def test_sampled_texts_are_judged_with_their_noise():
    target = ToyTarget()
    sampling = Sampling(temperature=0.5, seed=9)
    found = first_difference(target, [1, 2], [3], [4], sampling)
    noisy = np.sort(target.scores_after([1, 2]) / 0.5 + KeyedNoise(9).gumbel(2, np.arange(8)))
    assert np.isclose(found.margin, noisy[-1] - noisy[-2])


def test_a_shorter_text_parts_at_its_end():
    found = first_difference(ToyTarget(), [1], [3, 4], [3])
    assert (found.index, found.tokens) == (1, (4, None))
