"""Sampling: transformers' definitions, exact pruning, the right distribution, clear errors."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation import logits_process as theirs

from draftwood.contracts import Sampling
from draftwood.errors import DraftwoodError, UsageError
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import check_sampling, choose, distribution, penalise

INF = float("inf")


def rows(max_size=40):
    """Rows with many ties (small integers), without (floats), and with masked tokens."""
    value = st.one_of(
        st.integers(-5, 5).map(float), st.floats(-30, 30, width=32), st.sampled_from([-INF, 0.0, 0.5])
    )
    some = st.lists(value, min_size=1, max_size=max_size).filter(lambda it: max(it) > -INF)
    return some.map(lambda it: np.array(it, dtype=np.float32))


def normal_row(vocab, std, seed=0, strong=0):
    rng = np.random.default_rng(seed)
    row = (rng.normal(size=vocab) * std).astype(np.float32)
    row[rng.integers(vocab, size=5)] += strong
    return row


def support(row, **sampling):
    return np.flatnonzero(distribution(row, Sampling(**sampling)))


def warped(row, *warpers):
    scores = torch.from_numpy(row.copy())[None]
    for warper in warpers:
        scores = warper(None, scores)
    return scores[0].numpy()


# --- the same support as transformers ----------------------------------------


@given(row=rows(), k=st.integers(1, 45), temperature=st.sampled_from([0.3, 0.8, 1.0, 2.0]))
def test_top_k_keeps_what_transformers_keeps(row, k, temperature):
    expected = warped(row, theirs.TemperatureLogitsWarper(temperature), theirs.TopKLogitsWarper(k))
    assert support(row, temperature=temperature, top_k=k).tolist() == np.flatnonzero(expected > -INF).tolist()


@given(row=rows(), top_p=st.sampled_from([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.999]))
def test_top_p_keeps_what_transformers_keeps(row, top_p):
    # Equal scores are cut in no defined order by torch's unstable sort: compare scores, not ids. A cumulative
    # probability within float32 rounding of the border may fall on either side.
    ours = np.sort(row[support(row, temperature=1.0, top_p=top_p)])
    expected = np.sort(row[warped(row, theirs.TopPLogitsWarper(top_p)) > -INF])
    if ours.tolist() != expected.tolist():
        mass = torch.from_numpy(np.sort(row)).double().softmax(-1).cumsum(-1).numpy()
        assert abs(len(ours) - len(expected)) <= (np.abs(mass - (1 - top_p)) < 1e-6).sum()
        assert ours.tolist() == np.sort(row)[len(row) - len(ours) :].tolist()


@given(row=rows(), top_p=st.sampled_from([0.25, 0.5, 0.9]))
def test_top_p_cuts_equal_scores_as_a_stable_sort_does(row, top_p):
    kept = support(row, temperature=1.0, top_p=top_p)
    order = np.argsort(row, kind="stable")
    assert kept.tolist() == sorted(order[len(row) - len(kept) :].tolist())


def test_top_p_of_equal_scores_is_not_fooled_by_rounding():
    # ten tokens of 0.1: nine reach 0.9, although 1 - 0.9 is below 0.1 in float64
    row = np.zeros(10, dtype=np.float32)
    assert len(support(row, temperature=1.0, top_p=0.9)) == 9
    assert len(support(row, temperature=1.0, top_p=0.05)) == 1


@given(row=rows(), min_p=st.sampled_from([0.0, 0.01, 0.1, 0.3, 0.9, 1.0]))
def test_min_p_keeps_what_transformers_keeps(row, min_p):
    expected = np.flatnonzero(warped(row, theirs.MinPLogitsWarper(min_p)) > -INF).tolist()
    ours = support(row, temperature=1.0, min_p=min_p).tolist()
    with np.errstate(divide="ignore"):
        for token in set(ours) ^ set(expected):  # only at the border, by rounding
            assert row.max() + np.log(min_p) == pytest.approx(row[token], abs=1e-5)


@settings(deadline=None)
@given(
    row=rows(),
    temperature=st.sampled_from([0.5, 1.0, 1.7]),
    k=st.integers(1, 20),
    top_p=st.sampled_from([0.3, 0.6, 0.93]),
    min_p=st.sampled_from([0.03, 0.17]),
)
def test_all_settings_together_are_applied_in_transformers_order(row, temperature, k, top_p, min_p):
    row = row + np.linspace(0, 0.01, len(row), dtype=np.float32)  # no ties: these are tested above
    expected = warped(
        row,
        theirs.TemperatureLogitsWarper(temperature),
        theirs.TopKLogitsWarper(k),
        theirs.TopPLogitsWarper(top_p),
        theirs.MinPLogitsWarper(min_p),
    )
    ours = distribution(row, Sampling(temperature, k, top_p, min_p))
    assert ours == pytest.approx(torch.from_numpy(expected).double().softmax(-1).numpy(), abs=1e-6)


@pytest.mark.parametrize(("std", "strong"), [(0.0, 0), (1.0, 0), (3.0, 15), (6.0, 0), (20.0, 0)])
@pytest.mark.parametrize("top_p", [0.5, 0.9, 0.999])
def test_on_large_rows_shortcuts_change_nothing(std, strong, top_p):
    row = normal_row(20_000, std, strong=strong)
    row[::7] = -INF
    scores = row.astype(np.float64)
    order = np.argsort(row, kind="stable")
    mass = np.cumsum(np.exp(scores[order] - scores.max()))
    removed = (mass / mass[-1]).astype(np.float32) <= np.float32(1 - top_p)
    kept = support(row, temperature=1.0, top_p=top_p)
    assert abs(len(kept) - (~removed).sum()) <= (0 if std else 2)  # float32 weights
    assert kept.tolist() == sorted(order[len(row) - len(kept) :].tolist())
    for k in (1, 50, 1000, 19_999):
        least = np.sort(row)[len(row) - k]
        expected = np.flatnonzero((row >= least) & (row > -INF))
        assert support(row, temperature=1.0, top_k=k).tolist() == expected.tolist()


# --- choosing ----------------------------------------


def dense_choice(row, sampling, noise, position):
    """Choose without any shortcut."""
    with np.errstate(divide="ignore"):
        return int(np.argmax(np.log(distribution(row, sampling)) + noise.gumbel(position, np.arange(len(row)))))


SAMPLINGS = [
    Sampling(1.0),
    Sampling(0.3),
    Sampling(3.0),
    Sampling(1.0, top_k=50),
    Sampling(1.0, top_p=0.9),
    Sampling(0.8, min_p=0.1),
    Sampling(0.8, top_k=50, top_p=0.9, min_p=0.05),
]


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize(("std", "strong"), [(1.0, 0), (3.0, 15), (8.0, 0)])
def test_pruning_never_changes_the_choice(sampling, std, strong):
    row, noise = normal_row(40_000, std, strong=strong), KeyedNoise(5)
    row[::11] = -INF
    for position in range(25):
        assert choose(row, sampling, noise, position) == dense_choice(row, sampling, noise, position)


class FixedNoise:
    """Noise of our choosing: the worst case for a bound."""

    def __init__(self, noise):
        self.noise = noise

    def gumbel(self, position, ids):
        return self.noise[ids]


def test_a_token_far_behind_still_wins_with_the_largest_noise():
    row = np.zeros(5000, dtype=np.float32)
    row[:70] = 22.7
    noise = np.zeros(5000)
    noise[4321] = 22.8  # ahead of the front by 0.1: a bound any tighter would lose it
    assert choose(row, Sampling(1.0), FixedNoise(noise), 0) == 4321


@given(row=rows())
def test_greedy_takes_the_lowest_id_of_the_best(row):
    assert choose(row, Sampling(), None, 0) == row.tolist().index(max(row.tolist()))


def test_equal_sums_give_the_lowest_id():
    for vocab in (10, 5000, 70_000):
        assert choose(np.zeros(vocab, dtype=np.float32), Sampling(1.0), FixedNoise(np.zeros(vocab)), 0) == 0


@given(row=rows())
def test_the_row_is_left_as_it_is(row):
    before = row.copy()
    for sampling in SAMPLINGS:
        choose(row, sampling, KeyedNoise(0), 1)
    assert np.array_equal(row, before)


def test_distribution_is_exact():
    row = np.log(np.array([1, 2, 3, 4], dtype=np.float32))
    assert distribution(row, Sampling(1.0)) == pytest.approx([0.1, 0.2, 0.3, 0.4])
    assert distribution(row, Sampling(1.0, top_k=2)) == pytest.approx([0, 0, 3 / 7, 4 / 7])
    assert distribution(row, Sampling(1.0, top_p=0.85)) == pytest.approx([0, 2 / 9, 3 / 9, 4 / 9])
    assert distribution(row, Sampling(1.0, min_p=0.6)) == pytest.approx([0, 0, 3 / 7, 4 / 7])
    assert distribution(row, Sampling(0.5)) == pytest.approx(np.array([1, 4, 9, 16]) / 30)
    assert distribution(row, Sampling()).tolist() == [0, 0, 0, 1]


@given(
    row=rows(),
    prefix=st.lists(st.integers(0, 60), min_size=1, max_size=80),
    penalty=st.sampled_from([0.5, 1.0, 1.1, 1.3]),
)
def test_penalty_is_transformers_and_works_on_both_array_types(row, prefix, penalty):
    before, ids = row.copy(), np.array(prefix, dtype=np.int64)
    expected = theirs.RepetitionPenaltyLogitsProcessor(penalty)(
        torch.tensor([prefix]), torch.from_numpy(row.copy())[None]
    )
    ours = penalise(row, ids, penalty)
    assert ours.dtype == np.float32
    assert ours.tolist() == expected[0].tolist()
    tensor = penalise(torch.from_numpy(row), np.unique(ids), penalty)
    assert isinstance(tensor, torch.Tensor)
    assert tensor.tolist() == ours.tolist()
    assert np.array_equal(row, before)


# --- errors ----------------------------------------


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), Sampling(0.7, top_k=2, top_p=0.9, min_p=0.1)])
def test_rows_that_say_nothing_are_refused(sampling):
    masked = np.full(5, -INF, dtype=np.float32)
    broken = np.array([1.0, np.nan, 3.0], dtype=np.float32)
    for row, sentence in ((masked, "at position 7 are all masked"), (broken, "at position 7 contain NaN")):
        with pytest.raises(DraftwoodError, match=sentence):
            choose(row, sampling, KeyedNoise(0), 7)
        with pytest.raises(DraftwoodError, match=sentence.split()[-1]):
            distribution(row, sampling)


def test_infinities_have_no_distribution_but_a_maximum():
    row = np.array([1.0, INF], dtype=np.float32)
    assert choose(row, Sampling(), None, 0) == 1
    with pytest.raises(DraftwoodError, match="infinite"):
        choose(row, Sampling(1.0), KeyedNoise(0), 0)


def test_masks_written_as_the_lowest_float_are_masks():
    row = np.array([0.0, np.finfo(np.float32).min, 0.0], dtype=np.float32)
    assert support(row, temperature=0.5).tolist() == [0, 2]


def test_sampling_without_noise_is_refused():
    with pytest.raises(UsageError, match="needs noise"):
        choose(np.zeros(3, dtype=np.float32), Sampling(1.0), None, 0)


@pytest.mark.parametrize(
    ("sampling", "word"),
    [
        *((Sampling(temperature=t), "temperature") for t in (-0.1, math.nan, INF, 1e-40)),
        *((Sampling(1.0, top_k=k), "top_k") for k in (0, -1, 2.5)),
        *((Sampling(1.0, top_p=p), "top_p") for p in (0.0, -0.1, 1.1, math.nan)),
        *((Sampling(1.0, min_p=p), "min_p") for p in (-0.1, 1.1, math.nan)),
        *((Sampling(repetition_penalty=r), "repetition_penalty") for r in (0.0, -1.0, math.nan, INF)),
        (Sampling(seed=0.5), "seed"),
        *(
            (Sampling(**{"temperature": 1.0, word: odd}), word)
            for word in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
            for odd in (10**400, -(10**400), 10**5000, Fraction(10**400), True, "0.5", b"1", math.nan, INF, 1j,
                        Decimal("NaN"), Decimal("sNaN"), [0.5], np.array([0.5, 1]), np.array("a"), object())
        ),
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(sampling, word):
    with pytest.raises(UsageError, match=f"^{word} must"):
        check_sampling(sampling)


def test_settings_at_the_border_are_taken():
    check_sampling(Sampling())
    check_sampling(Sampling(1e-30, top_k=1, top_p=1.0, min_p=0.0, repetition_penalty=0.1, seed=-5))
    check_sampling(Sampling(2, top_k=np.int64(3), min_p=1.0))


@pytest.mark.parametrize("half", [0.5, Decimal("0.5"), Fraction(1, 2), np.float16(0.5), np.array(0.5)])
def test_numbers_of_all_kinds_are_numbers_of_python(half):
    found = check_sampling(Sampling(half, np.int32(3), half, half, half, np.array(7)))
    assert repr(found) == repr(Sampling(0.5, 3, 0.5, 0.5, 0.5, 7))


def test_a_support_at_the_border():
    assert len(support(np.zeros(5, dtype=np.float32), temperature=1.0, top_p=1.0, min_p=1.0)) == 5
