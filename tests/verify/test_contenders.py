"""The few tokens that can win: among them is the one that comparing all of them chooses, ties included."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draftwood.verify import contenders as kernel
from draftwood.verify.contenders import contenders
from draftwood.verify.noise import KeyedNoise, to_gumbel
from draftwood.verify.sampling import _leader, _leader_of_many

SEEDS = st.integers(0, 2**64 - 1)


def same(row, ids, noise, position):
    """Whether the contenders hold the winner of all; returns how many there are, None if too many."""
    every = np.arange(len(row)) if ids is None else ids
    assert _leader_of_many(row, ids, noise, position) == _leader(row, every, noise, position)
    spread = np.full(int(every[-1]) + 1, -np.inf, dtype=np.float32)
    spread[every] = row
    found = contenders(spread, noise, position)
    if found is None:
        return None
    tokens, words = found
    assert (np.diff(tokens) > 0).all()
    assert (to_gumbel(words) == noise.gumbel(position, tokens)).all()
    return len(tokens)


@given(SEEDS, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from([0.01, 1, 4, 30, 1e20, 1e38]))
def test_the_winner_of_all_is_among_them(seed, sequence, position, spread):
    rng = np.random.default_rng(seed % 1000)
    row = (rng.normal(size=3000) / 5 * spread).astype(np.float32)
    same(row, None, KeyedNoise(seed, sequence), position)
    row[rng.random(3000) < 0.5] = -np.inf
    row[7] = 0
    same(row, None, KeyedNoise(seed, sequence), position)


@given(SEEDS, st.integers(2, 5))
def test_ties_and_some_ids_only(seed, levels):
    rng = np.random.default_rng(seed % 1000)
    row = rng.integers(levels, size=4000).astype(np.float32)
    ids = np.flatnonzero(rng.random(50_000) < 0.08)[:4000]
    same(row[: len(ids)], ids, KeyedNoise(seed), 11)


def test_more_than_can_be_listed_are_all_compared(monkeypatch):
    monkeypatch.setattr(kernel, "_MOST", 2)
    row = np.linspace(0, 1, 2000, dtype=np.float32)
    assert same(row, None, KeyedNoise(8), 5) is None
