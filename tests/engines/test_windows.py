"""Windowed attention at its edges: prompts about as long as the window."""

import numpy as np
import pytest

from draftwood.engines.transformers.session import PassRows
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.tree import TokenTree
from tests.engines.rounding import TOLERANCE
from tests.engines.test_target import truth
from tests.engines.tiny import build, scores_of_tree

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


@pytest.mark.parametrize("family", WINDOWED)
@pytest.mark.parametrize("lean", [True, False])
def test_branching_trees_deeper_than_the_window_in_one_pass_and_grown(family, lean):
    model, rng = build(family), np.random.default_rng(2)
    target = TransformersTarget(model, lean=lean)
    tree = TokenTree.build(rng.integers(0, 64, 40), [int(rng.integers(max(-1, i - 3), i)) for i in range(40)])
    assert int(tree.depth.max()) > 2 * WINDOW
    texts = [rng.integers(0, 64, length).tolist() for length in (3, 20)]
    true = np.stack([scores_of_tree(model, text, 5, tree) for text in texts])
    sessions = [session for session, _ in target.open(texts)]
    scored = target.score([(session, 5, tree) for session in sessions])
    found = [[scores.numpy(scores.raw(row)) for row in range(1 + len(tree))] for scores in scored]
    assert np.abs(found - true).max() < TOLERANCE
    for row, (token, parent) in enumerate(zip([5, *tree.tokens], [-1, *1 + tree.parents], strict=True)):
        for scores, own in zip(target.grow([(one, [token], [parent]) for one in sessions]), true, strict=True):
            assert np.abs(scores.numpy(scores.raw(0)) - own[row]).max() < TOLERANCE, f"row {row}"


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_nodes_grown_one_by_one_see_no_further_than_their_window(rows):
    """The earlier ones lie in the cache, after the text, and drop out of the window like it."""
    text = PassRows(0, np.arange(20, 20 + rows), None, 20, np.arange(10, 20))
    assert text.start(4) == 17
    mask = text.mask(4)
    assert (mask is None) == (rows == 1)
    if mask is not None:
        assert (mask == 0).sum(1).tolist() == [4] * rows
