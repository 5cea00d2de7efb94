"""Windowed attention at its edges: prompts about as long as the window."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.engines.transformers.target import TransformersTarget
from draftwood.tree import TokenTree
from tests.engines.rounding import TOLERANCE
from tests.engines.test_target import truth
from tests.engines.tiny import build

WINDOW = 8  # of both families here
WINDOWED = ["mistral-window", "gemma3"]


def assert_true(model, scores, row, text):
    assert np.abs(scores.numpy(scores.raw(row)) - truth(model, text)).max() < TOLERANCE


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("lean", [True, False])
@pytest.mark.parametrize("length", range(WINDOW - 1, WINDOW + 4))
def test_prompts_about_as_long_as_the_window(family, lean, length):
    model, rng = build(family), np.random.default_rng(length)
    text = rng.integers(0, 64, length).tolist()
    target = TransformersTarget(model, lean=lean)
    ((session, first),) = target.open([text])
    assert_true(model, first, 0, text)
    (scores,) = target.score([(session, 5, TokenTree.build([6, 7, 8], [-1, 0, -1]))])
    assert_true(model, scores, 3, [*text, 5, 8])
