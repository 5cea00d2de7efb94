"""The kernel's choice is the one that comparing all tokens with numpy makes, or it cannot tell."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.contracts import Sampling
from draftwood.verify.gumbel_max import winner
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import _leader, _support, choose

SEEDS = st.integers(0, 2**64 - 1)


def check(row, noise, position, sampling):
    scores, ids = _support(row, sampling, "here")
    true = _leader(scores, np.arange(len(row)) if ids is None else ids, noise, position)
    assert choose(row, sampling, noise, position) == true
    if ids is None:
        assert winner(row, noise, position, sampling.temperature) in (true, -1)


@given(
    SEEDS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from([0.01, 1, 4, 30, 1e12, 1e37]),
    st.sampled_from([1e-3, 0.3, 0.7, 1.0, 1.7, 1e4]),
)  # fmt: skip
def test_the_winner_of_the_kernel_is_the_winner_of_all(seed, sequence, position, spread, temperature):
    rng, noise = np.random.default_rng(seed % 1000), KeyedNoise(seed, sequence)
    row = (rng.normal(size=3000) / 9 * spread).astype(np.float32) * np.float32(min(1, temperature))
    for some in ({}, {"top_p": 0.999}, {"top_p": 0.5}, {"top_k": 2000}, {"top_k": 3, "min_p": 0.2, "top_p": 0.9}):
        check(row, noise, position, Sampling(temperature, **some))
    row[rng.random(3000) < 0.5] = -np.inf
    row[7] = 0
    check(row, noise, position, Sampling(temperature))


@given(SEEDS, st.integers(2, 5))
def test_ties(seed, levels):
    row = np.random.default_rng(seed % 1000).integers(levels, size=4000).astype(np.float32)
    for some in ({}, {"top_p": 0.9}, {"top_p": 0.01}, {"top_k": 1}, {"top_k": 7}, {"min_p": 0.5}):
        check(row, KeyedNoise(seed), 11, Sampling(1.0, **some))
    check(row * np.float32(1e30), KeyedNoise(seed), 11, Sampling(1.0))


def test_neighbours_that_the_temperature_makes_equal():
    row = np.full(2000, -30, np.float32)
    row[1356], row[1923] = float.fromhex("0x1.ebc0cap+0"), float.fromhex("0x1.ebc0c8p+0")
    for position in range(8):
        check(row, KeyedNoise(0), position, Sampling(1.484142457658281, top_p=0.4))


@pytest.mark.parametrize("odd", [np.nan, -np.nan, np.inf, 3e38])
def test_where_no_choice_can_be_made_the_kernel_makes_none(odd):
    row = np.zeros(2000, dtype=np.float32)
    row[1500] = odd
    assert winner(row, KeyedNoise(1), 0, 0.5) == winner(np.full(2000, -np.inf), KeyedNoise(1), 0, 1.0) == -1


def test_most_choices_are_the_kernel_s_own():
    rng, own = np.random.default_rng(0), 0
    for position in range(500):
        own += winner(rng.normal(size=5000).astype(np.float32), KeyedNoise(3), position, 0.8) >= 0
    assert own == 500
