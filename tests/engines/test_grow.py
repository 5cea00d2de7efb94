"""Trees grown level by level give the scores of one pass over the whole tree, and leave nothing behind."""

import tracemalloc
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings

from draftwood.engines.self_draft import read_layers
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.errors import CapabilityError, UsageError
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from tests.engines.rounding import TOLERANCE
from tests.engines.tiny import build
from tests.helpers import trees

KINDS = ("llama", "qwen2-window", "mistral-window", "gemma3")
TEXT = [3, 1, 4, 1, 5, 2, 6, 5, 3, 5]


@cache
def _targets(kind):
    model = build(kind)
    return TransformersTarget(model), TransformersTarget(model, lean=False)


def _levels(tree):
    """The nodes of a tree by depth, in any order within it."""
    depth = tree.depth.tolist()
    return [
        [node for node in range(len(tree)) if depth[node] == level]
        for level in range(1, max(depth, default=0) + 1)
    ]


def _grown(target, session, root, tree):
    """Scores of the root and of each node, read level by level."""
    (scores,) = target.grow([(session, [root], [-1])])
    rows, place = {-1: target_row(scores, 0)}, {-1: 0}
    for level in _levels(tree):
        tokens = [int(tree.tokens[node]) for node in level]
        (scores,) = target.grow([(session, tokens, [place[int(tree.parents[node])] for node in level])])
        for row, node in enumerate(level):
            place[node] = len(place)
            rows[node] = target_row(scores, row)
    return np.stack([rows[node] for node in range(-1, len(tree))]), place


def target_row(scores, row):
    return np.array(scores.numpy(scores.raw(row)))


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=6)
@given(tree=trees(vocab_size=8, max_size=8, lookahead_nodes=False))
def test_a_tree_grown_by_levels_has_the_scores_of_one_pass(kind, tree):
    for target in _targets(kind):
        ((session, _),) = target.open([TEXT])
        grown, _ = _grown(target, session, 7, tree)
        (whole,) = target.score([(session, 7, tree)])
        expected = np.stack([target_row(whole, row) for row in range(1 + len(tree))])
        np.testing.assert_allclose(grown, expected, atol=TOLERANCE)
        session.close()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_settled_is_what_would_have_been_read(kind):
    tree = TokenTree.build([1, 2, 3, 4, 5], [-1, -1, 1, 1, 3])
    for target in _targets(kind):
        ((session, _),) = target.open([TEXT])
        _, place = _grown(target, session, 7, tree)
        target.settle(session, [place[node] for node in (-1, 1, 3, 4)])
        ((fresh, _),) = target.open([[*TEXT, 7, 2, 4, 5]])
        assert session.ids == fresh.ids
        ours, theirs = (target.extend([(one, [6])])[0] for one in (session, fresh))
        np.testing.assert_allclose(target_row(ours, 0), target_row(theirs, 0), atol=TOLERANCE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_chain_grows_by_several_nodes_at_once(kind):
    for target in _targets(kind):
        ((session, _),) = target.open([TEXT])
        target.grow([(session, [7, 1, 2], [-1, 0, 1])])
        (scores,) = target.grow([(session, [4, 6], [2, 3])])
        ((_, expected),) = target.open([[*TEXT, 7, 1, 2, 4, 6]])
        np.testing.assert_allclose(target_row(scores, 1), target_row(expected, 0), atol=TOLERANCE)


def test_a_pass_forgets_what_was_grown():
    (target, _) = _targets("llama")
    ((session, _),) = target.open([TEXT])
    (before,) = target.score([(session, 7, TokenTree.empty())])
    expected = target_row(before, 0)
    target.grow([(session, [7, 5, 6], [-1, 0, 1])])
    (after,) = target.score([(session, 7, TokenTree.empty())])
    assert target_row(after, 0).tobytes() == expected.tobytes()
    session.keep(())
    assert session.ids == [*TEXT, 7]


def test_rows_that_a_draft_has_spoilt_touch_no_other():
    model = build("llama")
    target = TransformersTarget(model)
    ((one, _), (other, _)) = target.open([TEXT, TEXT[:3]])
    tree = TokenTree.build([1, 2])
    expected = target_row(target.score([(one, 7, tree), (other, 3, tree)])[1], 2)
    half = target.early_exit("1")
    with torch.no_grad():  # only rows of token 6 are not finite
        half.decoder._embedding = half.decoder._embedding.clone()
        half.decoder._embedding[6] = torch.nan
    half.grow([(one, [7, 6, 6], [-1, 0, 1]), (other, [3, 6, 6, 6, 6], [-1, 0, 1, 2, 3])])
    found = target_row(target.score([(one, 7, tree), (other, 3, tree)])[1], 2)
    np.testing.assert_allclose(found, expected, atol=TOLERANCE)


def test_all_layers_but_none_are_the_model_itself():
    target = TransformersTarget(build("llama"))
    layers = target.n_layers
    ((session, _),) = target.open([TEXT])
    whole = target_row(target.grow([(session, [7], [-1])])[0], 0)
    part = target.early_exit(str(layers - 1))
    assert part.arena is target.arena
    assert part.lock is target.lock
    assert part.decoder._embedding is target.decoder._embedding, "it has no weights of its own"
    drafted = target_row(part.grow([(session, [7], [-1])])[0], 0)
    assert np.abs(whole - drafted).max() > 0
    assert target.early_exit(str(layers - 1)) is part, "made once"


@pytest.mark.parametrize(
    ("text", "layers"),
    [("", [0, 1, 2]), ("2", [0, 1]), ("0-1.4", [0, 1, 4]), ("3.1", [1, 3]), (" 5 ", [0, 1, 2, 3, 4])],
)
def test_layers_are_read(text, layers):
    assert list(read_layers(text, 6)) == layers


@pytest.mark.parametrize("text", ["0", "6", "7", "0-5", "-1", "a", "1-", "5-9", "3-2"])
def test_layers_that_the_model_has_not_are_refused(text):
    with pytest.raises(UsageError, match="layers"):
        read_layers(text, 6)


@pytest.mark.parametrize("text", ["1000000000000", "0-1000000000000", "0.3-1000000000000", "9" * 5000])
def test_numbers_far_beyond_the_model_take_neither_memory_nor_time(text):
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="it has 6 layers"):
            read_layers(text, 6)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_target_of_another_kind_has_no_layers():
    with pytest.raises(CapabilityError, match="early-exit needs"):
        ToyTarget().early_exit("1")
    with pytest.raises(CapabilityError, match="early-exit needs"):
        TransformersTarget(build("llama"), lean=False).early_exit("1")
