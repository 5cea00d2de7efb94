"""Passes of fixed shapes score as passes that fit; run here without capturing them, which needs a GPU."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.engines.transformers.static import StaticPasses
from draftwood.engines.transformers.target import TransformersTarget
from tests.engines.rounding import TOLERANCE
from tests.engines.test_target import random_tree, truth
from tests.engines.tiny import build


@pytest.mark.parametrize("family", ["llama", "llama-multi-head", "qwen2-window", "qwen3", "mistral-window"])
def test_fixed_shapes_score_as_the_model_itself(family):
    model, rng = build(family), np.random.default_rng(0)
    target = TransformersTarget(model)
    target._static = StaticPasses(target._lean, target.arena, capture=False)
    text = rng.integers(0, 64, 30).tolist()
    ((session, _),) = target.open([text], reserve=100)
    for _ in range(20):
        tree, root = random_tree(rng, most=11), int(rng.integers(64))
        (scores,) = target.score([(session, root, tree)])
        for node in range(-1, len(tree)):
            path = [*text, root, *tree.tokens[tree.path(node)].tolist()]
            assert np.abs(scores.numpy(scores.raw(1 + node)) - truth(model, path)).max() < TOLERANCE
        kept = tree.path(int(rng.integers(-1, len(tree))))
        session.keep(kept)
        text += [root, *tree.tokens[kept].tolist()]
    assert target._static._made, "fixed shapes were used"


def test_what_cannot_be_captured_runs_as_it_is():
    model = build("llama")
    target = TransformersTarget(model)
    target._static = StaticPasses(target._lean, target.arena)  # capturing raises where there is no GPU
    ((session, _),) = target.open([[1, 2, 3]], reserve=10)
    (scores,) = target.score([(session, 4, random_tree(np.random.default_rng(1)))])
    assert np.abs(scores.numpy(scores.raw(0)) - truth(model, [1, 2, 3, 4])).max() < TOLERANCE
