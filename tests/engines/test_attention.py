"""Attention at the edges of windows, and whatever memory layouts its kernels take and give."""

import itertools

import numpy as np
import pytest
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from draftwood.engines.transformers import attention
from draftwood.engines.transformers.selftest import agreeing
from draftwood.engines.transformers.session import PassRows
from draftwood.engines.transformers.shared import ways
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.tree import TokenTree
from tests.engines.registered import tiny
from tests.engines.rounding import TOLERANCE
from tests.engines.test_target import truth
from tests.engines.tiny import build, scores_of_tree
from tests.tiers import rest_is_slow

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


def read(target, texts, tree):
    """Scores [texts, rows, vocab] of a tree after two texts, in one pass and grown node by node."""
    sessions = [session for session, _ in target.open([texts[0], [1], texts[1]])][::2]  # slots 0 and 2
    scored = target.score([(session, 5, tree) for session in sessions])
    nodes = zip([5, *tree.tokens], [-1, *1 + tree.parents], strict=True)
    grown = [target.grow([(one, [token], [parent]) for one in sessions]) for token, parent in nodes]
    whole = [[scores.numpy(scores.raw(row)) for row in range(1 + len(tree))] for scores in scored]
    return np.array(whole), np.array([[s.numpy(s.raw(0)) for s in one] for one in zip(*grown, strict=True)])


def deep_tree(rng):
    tree = TokenTree.build(rng.integers(0, 64, 40), [int(rng.integers(max(-1, i - 3), i)) for i in range(40)])
    assert int(tree.depth.max()) > 2 * WINDOW
    return tree, [rng.integers(0, 64, length).tolist() for length in (3, 20)]


@pytest.mark.parametrize("family", [*WINDOWED, "llama", "qwen2-window"])
@pytest.mark.parametrize("lean", [True, False])
def test_branching_trees_deeper_than_the_window_in_one_pass_and_grown(family, lean):
    model, (tree, texts) = build(family), deep_tree(np.random.default_rng(2))
    true = np.stack([scores_of_tree(model, text, 5, tree) for text in texts])
    for found in read(TransformersTarget(model, lean=lean), texts, tree):
        assert np.abs(found - true).max() < TOLERANCE


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_nodes_grown_one_by_one_see_no_further_than_their_window(rows):
    """The earlier ones lie in the cache, after the text, and drop out of the window like it."""
    text = PassRows(0, np.arange(20, 20 + rows), None, 20, np.arange(10, 20))
    assert text.start(4) == 17
    mask = text.mask(4)
    assert (mask is None) == (rows == 1)
    if mask is not None:
        assert (mask == 0).sum(1).tolist() == [4] * rows


def laid(x, layout):
    """The same numbers, of which so many axes lie outermost in memory, and next; or with room after each row."""
    if layout == "padded":
        return pad(x, (0, 8))[..., : x.shape[-1]]
    whole = x[(None,) * (4 - x.dim())].permute(*layout, 3).contiguous().permute(*np.argsort(layout).tolist(), 3)
    return whole if x.dim() == 4 else whole[0]


class Kernels(TorchFunctionMode):
    """As on a graphics card: attention and batched products give another layout, here of the same numbers."""

    def __init__(self, layout):
        super().__init__()
        self.layout = layout

    def __torch_function__(self, func, types, args=(), kwargs=None):
        product = getattr(func, "__name__", "") in ("matmul", "__matmul__") and args[0].dim() == args[1].dim() == 3
        if not product and func is not scaled_dot_product_attention:
            return func(*args, **kwargs or {})
        return laid(func(*(arg.contiguous() for arg in args), **kwargs or {}), self.layout)


CASES = [("llama", 0, 256), ("llama", 1, 0), ("mistral", 0, 0), ("gemma2", 1, 256), ("gpt_oss", 1, 256)]
"""Families, how they run (lean, modules), `_FOLDED`. Products of the last are written out: soft caps, sinks."""


@pytest.mark.parametrize(("family", "way", "folded"), rest_is_slow(CASES, *CASES[:2], CASES[3]))
def test_layouts_of_what_attention_takes_and_gives_change_no_score(family, way, folded, monkeypatch):
    model, (tree, texts), expected = tiny(family), deep_tree(np.random.default_rng(2)), None

    def taking(own, layout):
        return lambda *a, **more: own(*(laid(x, layout) if getattr(x, "ndim", 0) == 3 else x for x in a), **more)

    for layout in (*itertools.permutations(range(3)), "padded"):
        with monkeypatch.context() as patched, Kernels(layout):
            patched.setattr(attention, "_FOLDED", folded)
            for place, name in ((attention.Pass, "attend"), (attention.Pass, "store")):
                patched.setattr(place, name, taking(getattr(place, name), layout))
            target, reason = agreeing([*ways(model, packed=False).values()][way], model)  # the self-test
            assert isinstance(target, TransformersTarget), f"{layout}: {reason}"
            assert (target.decoder is None, target.capabilities.trees, target.capabilities.batch) == (way, 1, 1)
            found = np.stack(read(target, texts, tree))
            assert np.array_equal(found, expected if expected is not None else found), layout
        expected = found
