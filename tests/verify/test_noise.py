"""Keyed noise: the published generator, a pure function of its key, and really Gumbel."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from draftwood.verify.noise import KeyedNoise, philox4x32

# Random123 1.14, tests/kat_vectors: philox 4x32, 10 rounds (counter, key, expected)
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text):
    return np.array([int(word, 16) for word in text.split()], dtype=np.uint32)


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, expected):
    assert (philox4x32(words(counter)[None], words(key)) == words(expected)).all()


def test_noise_is_philox_of_token_position_and_sequence():
    seed, sequence, position = 0x299F31D0_A4093822, 5, 77
    for token in (0, 1, 6, 262_143):
        counter = np.array([[token // 4, position, sequence, 0]], dtype=np.uint32)
        word = philox4x32(counter, words("a4093822 299f31d0"))[0, token % 4]
        expected = -np.log(-np.log((float(word) + 0.5) / 2**32))
        assert KeyedNoise(seed, sequence).gumbel(position, np.array([token]))[0] == pytest.approx(expected)


@given(
    ids=st.lists(st.integers(0, 1999), max_size=60),
    seed=st.integers(-(2**80), 2**80),
    position=st.integers(0, 2**32 - 1),
)
def test_noise_of_a_token_does_not_depend_on_the_others(ids, seed, position):
    noise = KeyedNoise(seed, 3)
    dense = noise.gumbel(position, np.arange(2000))
    for chosen in (ids, sorted(ids), sorted(set(ids)), ids[:1]):
        some = noise.gumbel(position, np.array(chosen, dtype=np.int32))
        assert some.dtype == np.float64
        assert (some == dense[chosen]).all()


def test_every_part_of_the_key_matters():
    ids = np.arange(64)
    base = KeyedNoise(1, 0).gumbel(5, ids)
    others = [KeyedNoise(2, 0).gumbel(5, ids), KeyedNoise(1, 1).gumbel(5, ids), KeyedNoise(1, 0).gumbel(6, ids)]
    others.append(KeyedNoise(1 + 2**32, 0).gumbel(5, ids))
    for other in others:
        assert not (other == base).any()


def test_seeds_are_any_integer_and_noise_is_repeatable():
    ids = np.arange(9)
    assert (KeyedNoise(-1).gumbel(0, ids) == KeyedNoise(2**64 - 1).gumbel(0, ids)).all()
    assert (KeyedNoise(7).gumbel(0, ids) == KeyedNoise(7).gumbel(0, ids)).all()
    assert KeyedNoise(7) == KeyedNoise(7, 0)


def test_noise_is_gumbel_over_tokens_and_over_positions():
    noise = KeyedNoise(2024)
    over_tokens = noise.gumbel(11, np.arange(200_000))
    over_positions = np.concatenate([noise.gumbel(position, np.array([42])) for position in range(1_000)])
    over_seeds = np.concatenate([KeyedNoise(seed).gumbel(1, np.array([42])) for seed in range(1_000)])
    for sample in (over_tokens, over_positions, over_seeds):
        assert stats.kstest(sample, stats.gumbel_r.cdf).pvalue > 0.01
    assert abs(stats.pearsonr(over_tokens[:-1], over_tokens[1:]).statistic) < 0.01
    assert abs(stats.pearsonr(over_positions[:-1], over_positions[1:]).statistic) < 0.05


def test_noise_stays_within_its_bounds(monkeypatch):
    for word, bound in ((0xFFFFFFFF, 33 * np.log(2)), (0, -np.log(33 * np.log(2)))):
        monkeypatch.setattr(
            "draftwood.verify.noise.philox4x32",
            lambda counter, _, word=word: np.full(counter.shape, word, np.uint32),
        )
        extreme = KeyedNoise(0).gumbel(0, np.arange(100))
        assert extreme == pytest.approx(bound)
