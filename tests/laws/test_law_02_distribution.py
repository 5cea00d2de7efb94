"""Law 2. Sampled output has the target's distribution: exact enumeration for vocabularies of 3 to 5 and depth up
to 3, chi-square beyond.

The noise cannot be enumerated, so the law is shown in two parts. First, exactly: every emitted token is the best
of log p + g over the processed distribution, where g is the noise of its position and p is enumerated; so the
draft has no say in it. Second, that this is a sample of p: counts over many seeds against the enumerated
probabilities of whole sequences. The seeds are fixed, so a test passes for ever or fails for ever; with p-values
held against 1e-4, all of them together would fail a right rule in one world of a hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.drafter_list import EVERY, with_settings
from tests.helpers import PROMPT, TARGETS, sampled_truth, write
from tests.tiers import rest_is_slow
from tests.toys import EmptyDrafter, RandomDrafter, SameDrafter, WindowDrafter, WrongDrafter

from draftwood.contracts import Sampling
from draftwood.testing import ToyTarget
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose

DOUBTFUL = 1e-4

DRAFTERS = {
    "none": lambda *_: [],
    "wrong, as a tree": lambda target, sampling: [WrongDrafter(target, sampling)],
    "right, by reading the noise": lambda target, sampling: [SameDrafter(target, sampling)],
    "random tree": lambda target, *_: [RandomDrafter(target.vocab_size)],
    "greedy chain": lambda target, *_: [SameDrafter(target)],
    "all at once": lambda target, sampling: [
        EmptyDrafter(),
        SameDrafter(target),
        WrongDrafter(target, sampling),
        WindowDrafter(target, sampling),
    ],
}

SETTINGS = {
    "plain": Sampling(1.0),
    "hot": Sampling(1.7),
    "top-k": Sampling(1.0, top_k=3),
    "top-p": Sampling(0.9, top_p=0.8),
    "min-p": Sampling(1.2, min_p=0.2),
}


def enumerate_texts(target: ToyTarget, sampling: Sampling, depth: int) -> dict[tuple[int, ...], float]:
    """The exact probability of every text of ``depth`` tokens after the prompt."""
    found = {(): 1.0}
    for _ in range(depth):
        found = {
            (*text, token): chance * p
            for text, chance in found.items()
            for token, p in enumerate(target.probabilities([*PROMPT, *text], sampling))
            if p > 0
        }
    return found


def pooled(
    counts: Counter[tuple[int, ...]], chances: dict[tuple[int, ...], float]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Counts and what was expected, cells that expect fewer than five pooled into one."""
    assert set(counts) <= set(chances), "a text of probability zero was written"
    n = counts.total()
    large = [cell for cell, p in chances.items() if n * p >= 5]
    seen = [counts[cell] for cell in large]
    expected = [n * chances[cell] for cell in large]
    if len(large) < len(chances):
        seen.append(n - sum(seen))
        expected.append(n - sum(expected))
    return np.array(seen, dtype=np.float64), np.array(expected)


def p_value(counts: Counter[tuple[int, ...]], chances: dict[tuple[int, ...], float]) -> float:
    """Chi-square of counts against probabilities."""
    return float(stats.chisquare(*pooled(counts, chances)).pvalue)


# --- exactly: the draft has no say ---------------------------------------------------------------------------


@pytest.mark.parametrize(("drafters", "settings"), with_settings(SETTINGS, "plain"))
def test_every_token_is_the_best_of_log_p_plus_noise_whatever_was_drafted(drafters, settings):
    for vocab_size, variant in zip((3, 4, 5), TARGETS.values(), strict=True):
        target = ToyTarget(vocab_size=vocab_size, order=2, sharpness=1.0, seed=vocab_size, **variant)
        sampling = replace(SETTINGS[settings], seed=vocab_size)
        written = write(target, EVERY[drafters](target, sampling), 5, sampling=sampling, limit=12)
        noise, text = KeyedNoise(sampling.seed), list(PROMPT)
        for token in written.ids:
            with np.errstate(divide="ignore"):
                scores = np.log(target.probabilities(text, sampling))
            assert token == np.argmax(scores + noise.gumbel(len(text), np.arange(vocab_size)))
            text.append(token)


# --- by counting: that is a sample of the distribution -------------------------------------------------------


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize(("vocab_size", "depth"), rest_is_slow([(3, 4), (4, 3), (5, 3)], (3, 4)))
def test_plain_texts_over_many_seeds(vocab_size, depth, settings):
    sampling = SETTINGS[settings]
    target = ToyTarget(vocab_size=vocab_size, order=2, sharpness=1.0, seed=vocab_size)
    rows = {(): target.scores_after(PROMPT)}
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(20_000 if (vocab_size, settings) == (4, "plain") else 1500):
        noise, text = KeyedNoise(seed), ()
        for _ in range(depth):
            if text not in rows:
                rows[text] = target.scores_after([*PROMPT, *text])
            text = (*text, choose(rows[text], sampling, noise, len(PROMPT) + len(text)))
        counts[text] += 1
    assert p_value(counts, enumerate_texts(target, sampling, depth)) > DOUBTFUL


@pytest.mark.parametrize(
    ("by", "drafters"),
    rest_is_slow([*(("seed", d) for d in DRAFTERS), ("sequence", "all at once")], ("seed", "all at once")),
)
def test_drafted_texts_over_many_seeds_and_sequences(drafters, by):
    """Four tokens: one from reading the prompt, and drafts three deep below it."""
    target = ToyTarget(vocab_size=3, order=2, sharpness=1.0, seed=1)
    expected = enumerate_texts(target, Sampling(1.0), 4)
    counts: Counter[tuple[int, ...]] = Counter()
    for number in range(1500):
        sampling = Sampling(1.0, seed=number if by == "seed" else 42)
        made = DRAFTERS[drafters](target, sampling)
        sequence = number if by == "sequence" else 0
        counts[tuple(write(target, made, 6, sampling=sampling, limit=4, sequence=sequence).ids)] += 1
    assert p_value(counts, expected) > DOUBTFUL


def test_the_count_would_notice_another_distribution():
    target = ToyTarget(vocab_size=3, order=2, sharpness=1.0, seed=1)
    counts: Counter[tuple[int, ...]] = Counter()
    for seed in range(1500):
        counts[tuple(write(target, sampling=Sampling(1.3, seed=seed), limit=3).ids)] += 1
    assert p_value(counts, enumerate_texts(target, Sampling(1.3), 3)) > DOUBTFUL
    assert p_value(counts, enumerate_texts(target, Sampling(1.0), 3)) < DOUBTFUL


def conditional_p_value(target: ToyTarget, sampling: Sampling, ids: Sequence[int]) -> float:
    """Chi-square, summed over contexts, of which token followed which context of ``target.order`` tokens."""
    text = [*PROMPT, *ids]
    followers: dict[tuple[int, ...], Counter[tuple[int, ...]]] = {}
    for at in range(len(PROMPT), len(text)):
        context = tuple(text[at - target.order : at])
        followers.setdefault(context, Counter())[(text[at],)] += 1
    statistic = freedom = 0.0
    for context, counts in followers.items():
        chances = target.probabilities(context, sampling)
        seen, expected = pooled(counts, {(token,): p for token, p in enumerate(chances) if p > 0})
        if len(seen) > 1 and expected.min() >= 5:
            statistic += float(((seen - expected) ** 2 / expected).sum())
            freedom += len(seen) - 1
    assert freedom >= 20, "the text is long enough to say something"
    return float(stats.chi2.sf(statistic, freedom))


@pytest.mark.parametrize(
    ("drafters", "settings"),
    rest_is_slow(
        [*((d, "plain") for d in DRAFTERS), *(("all at once", s) for s in SETTINGS if s != "plain")],
        ("none", "plain"),
        ("all at once", "top-p"),
    ),
)
def test_a_long_text_has_the_distribution_at_every_context(drafters, settings):
    target = ToyTarget(vocab_size=5, order=2, sharpness=0.7, seed=2)
    sampling = replace(SETTINGS[settings], seed=11)
    made = DRAFTERS[drafters](target, sampling)
    written = write(target, made, 6, sampling=sampling, limit=1500)
    assert conditional_p_value(target, sampling, written.ids) > DOUBTFUL


def test_the_plain_words_and_the_loop_agree_on_the_long_text():
    target = ToyTarget(vocab_size=5, order=2, sharpness=0.7, seed=2)
    sampling = Sampling(1.0, seed=11)
    assert write(target, sampling=sampling, limit=200).ids == sampled_truth(target, sampling, limit=200)
