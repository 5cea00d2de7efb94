"""The best tokens of a pass: found by blocks, whatever the vocabulary, the number format, the ties, the NaN."""

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from draftwood.engines.transformers import scores as module
from draftwood.engines.transformers.scores import TorchScores, _best
from draftwood.testing import NumpyScores

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def naive(logits, k):
    """Sort everything, the lower id first on a tie."""
    rows = logits.double().numpy()
    order = np.argsort(-rows, axis=1, kind="stable")[:, :k]
    weights = np.exp(rows - rows.max(axis=1, keepdims=True))
    return order, np.take_along_axis(weights / weights.sum(axis=1, keepdims=True), order, axis=1)


def check(logits, k):
    scores = TorchScores(logits)
    best, wanted = naive(logits, k)
    ids, probabilities = scores.top_k(k)
    assert ids.tolist() == best.tolist()  # the lowest id comes first on every tie
    assert ids.shape == probabilities.shape == (len(logits), min(k, logits.shape[1]))
    assert (ids.dtype, probabilities.dtype) == (np.int32, np.float32)
    np.testing.assert_allclose(probabilities, wanted, atol=1e-6)
    assert ids[:, 0].tolist() == [scores.argmax(row) for row in range(len(logits))]
    others, shares = (found.numpy() for found in _best(logits.float(), min(k, logits.shape[1])))
    rows = logits.float().numpy()  # on a graphics card, on a tie, others may follow the first
    assert np.take_along_axis(rows, others, 1).tolist() == np.take_along_axis(rows, best, 1).tolist()
    assert all(len(set(row)) == len(row) for row in others.tolist())
    assert others[:, 0].tolist() == best[:, 0].tolist()
    np.testing.assert_allclose(shares, wanted, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graphics_card_keeps_the_logits(dtype, monkeypatch):
    """In blocks of 64 rows; and on a CPU bfloat16 is read as it is."""
    logits, blocks = torch.randn(150, 1100).to(dtype), []
    scores = TorchScores(logits)
    monkeypatch.setattr(module, "_best", lambda some, k: (blocks.append(len(some)), _best(some, k))[1])
    wanted = scores.top_k(3)
    assert not blocks
    scores._on_cpu = False
    monkeypatch.setattr(module, "best_of_rows", None)
    ids, shares = scores.top_k(3)
    assert blocks == [64, 64, 22]
    assert ids.dtype == np.int32
    assert ids[:, 0].tolist() == wanted[0][:, 0].tolist()
    np.testing.assert_allclose(shares, wanted[1], atol=1e-6)


@given(
    rows=st.integers(1, 4),
    vocab=st.one_of(st.integers(1, 40), st.integers(500, 3000)),
    k=st.integers(1, 12),
    dtype=st.sampled_from(DTYPES),
    levels=st.sampled_from([2, 5, 1 << 20]),
    seed=st.integers(0, 1 << 16),
)
@example(rows=2, vocab=1024, k=2, dtype=torch.float32, levels=2, seed=0)  # whole blocks
@example(rows=2, vocab=1025, k=1, dtype=torch.float32, levels=2, seed=0)  # one token behind them
def test_the_best_tokens_are_those_of_sorting_everything(rows, vocab, k, dtype, levels, seed):
    """Few levels are many ties; and a part of the vocabulary is masked."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, levels, (rows, vocab)) / levels * 8
    values[:, rng.random(vocab) < 0.2] = -np.inf
    values[:, int(rng.integers(vocab))] = 1.0
    check(torch.tensor(values, dtype=dtype), k)


@given(arrays(np.float32, (2, 600), elements=st.sampled_from([0.0, -0.0, np.float32(-1)])))
def test_both_zeros_are_a_tie(values):
    for dtype in DTYPES:
        check(torch.from_numpy(values).to(dtype), 3)


@pytest.mark.parametrize("vocab", [9, 2000])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1.0, -1.0])  # x86 makes negative NaN of zero times infinity
def test_a_broken_row_has_valid_ids_and_no_probability(vocab, dtype, sign):
    logits = torch.randn(4, vocab, dtype=dtype)
    logits[0, vocab // 2] = torch.tensor(torch.nan).copysign(torch.tensor(sign))
    logits[1] = -torch.inf
    logits[2, -1] = torch.inf
    scores = TorchScores(logits)
    ids, probabilities = scores.top_k(3)
    assert ids.min() >= 0
    assert ids.max() < vocab
    assert (probabilities[:3] == 0).all()
    assert (probabilities[3] > 0).all()
    assert [scores.argmax(row) for row in range(4)] == [-1, -1, vocab - 1, int(logits[3].argmax())]
    assert (
        logits[3][ids[3]].tolist() == logits[3].topk(3).values.tolist()
    )  # values: on a tie others may stand there


def test_toys_say_the_same_of_a_broken_row():
    rows = np.zeros((3, 5), dtype=np.float32)
    rows[0, 3], rows[1], rows[2, 4] = np.nan, -np.inf, 1
    scores = NumpyScores(rows)
    ids, probabilities = scores.top_k(9)
    assert ids.shape == probabilities.shape == (3, 5)
    assert (probabilities[:2] == 0).all()
    assert [scores.argmax(row) for row in range(3)] == [-1, -1, 4]
