"""Penalties, biases and log-probabilities, in both kinds of arrays and behind drafts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from draftwood.api.setup import Setup
from draftwood.contracts import Sampling
from draftwood.decoding.loop import decode
from draftwood.serve.asking import Biases, Penalties
from draftwood.serve.logprobs import LogprobRecorder
from draftwood.testing import ToyTarget
from draftwood.verify.sampling import distribution

ARRAYS = [np.asarray, torch.tensor]


@pytest.mark.parametrize("kind", ARRAYS)
def test_penalties(kind):
    row = kind(np.zeros(6, dtype=np.float32))
    found = Penalties(0.5, 0.25, 2)(np.array([5, 5, 1, 1, 3, 1]), row)
    assert found.tolist() == [0, -1.25, 0, -0.75, 0, 0]


@pytest.mark.parametrize("kind", ARRAYS)
def test_biases(kind):
    row = kind(np.zeros(4, dtype=np.float32))
    assert Biases({1: -100, 3: 2, 2: 2})(np.array([0]), row).tolist() == [0, -100, 2, 2]


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, top_p=0.9, seed=3)])
@pytest.mark.parametrize("drafters", ["none", "ngram"])
def test_log_probabilities_are_those_that_tokens_are_drawn_from(sampling, drafters):
    target, prompt = ToyTarget(vocab_size=16, order=2), [1, 2, 3]
    setup = Setup(target, None, drafters, "fixed:6")
    recorder = LogprobRecorder(sampling, 3)
    request = replace(setup.request(prompt, max_new_tokens=40), sampling=sampling, processors=[recorder])
    ids = [t for e in decode(target, setup.drafters, setup.planner, setup.rule, [request]) for t in e.tokens]
    told = recorder.between(ids, 0, len(ids))
    assert [one.token for one in told] == ids
    for place, one in enumerate(told):
        ((session, scores),) = target.open([prompt + ids[:place]])
        session.close()
        expected = distribution(scores.raw(0), Sampling(1.0) if sampling.greedy else sampling)
        assert one.logprob == pytest.approx(np.log(expected[one.token]))
        best = np.sort(expected)[::-1][:3]
        assert [np.exp(logprob) for _, logprob in one.top] == pytest.approx(best.tolist())
