"""Hidden states on the CPU engine: nearly those of transformers, with the same bits in passes of every shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from draftwood.contracts import Watch
from draftwood.engines.cpu.target import CpuTarget
from draftwood.errors import CapabilityError
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import random_tree
from tests.engines.cpu.tiny_families import build, tensors_of, write
from tests.tiers import rest_is_slow

NOTHING = np.empty(0, dtype=np.int64)


def states_of(target, text, layers):
    """What a fresh reading shows of a text: layer -> float32[tokens, width]."""
    seen = []
    watch = Watch(lambda *_: None, NOTHING, layers, lambda first, states: seen.append((first, states)))
    ((session, _),) = target.open([text], watch=[watch])
    session.close()
    assert [first for first, _ in seen] == list(range(0, len(text), 256))
    return {layer: np.concatenate([states[layer] for _, states in seen]) for layer in layers}


@pytest.fixture(scope="module")
def target(tiny_gguf):
    return CpuTarget(tiny_gguf("llama", "Q8_0"), threads=2)


@pytest.mark.parametrize("family", rest_is_slow(["llama", "gemma3", "olmo2"], "llama"))
def test_states_are_nearly_those_of_transformers(family, tmp_path):
    model = build(family)
    found = CpuTarget(write(tmp_path / "m.gguf", family, tensors_of(family, model), model.config), threads=1)
    text = np.random.default_rng(0).integers(0, 150, 40).tolist()
    layers = found.capabilities.hidden
    with torch.inference_mode():
        expected = model(torch.tensor([text]), output_hidden_states=True).hidden_states
    assert len(layers) == len(expected)
    states = states_of(found, text, layers)
    for layer, true in zip(layers, expected, strict=True):
        gap = np.abs(states[layer] - true[0].numpy()).max()
        assert gap < 0.01 * max(1.0, float(true.abs().max())), f"layer {layer}"


def test_rows_of_trees_have_the_bits_of_texts(target):
    rng, layers = np.random.default_rng(1), target.capabilities.hidden
    text = rng.integers(0, 300, 20).tolist()
    ((session, _),) = target.open([text])
    session.hidden = layers
    for _ in range(6):
        tree, root = random_tree(rng, 9, 300), int(rng.integers(300))
        (scores,) = target.score([(session, root, tree)])
        for node in range(-1, len(tree)):
            path = [*text, root, *tree.tokens[tree.path(node)].tolist()]
            for layer, states in states_of(target, path, layers).items():
                np.testing.assert_array_equal(scores.hidden(layer)[1 + node], states[-1])
        kept = tree.path(int(rng.integers(-1, len(tree))))
        session.keep(kept)
        text += [root, *tree.tokens[kept].tolist()]


def test_a_long_text_is_shown_in_order_and_may_be_kept(target):
    text = np.random.default_rng(2).integers(0, 300, 600).tolist()
    states = states_of(target, text, (1,))[1]
    again = states_of(target, text[:300], (1,))[1]
    np.testing.assert_array_equal(states[:300], again)


def test_the_last_states_are_those_that_tokens_are_scored_by(tiny_gguf):
    found = CpuTarget(tiny_gguf("llama", "F32"), threads=1)
    *_, end = found.capabilities.hidden
    ((session, _),) = found.open([[1, 2, 3]])
    session.hidden = (end,)
    (scores,) = found.score([(session, 4, TokenTree.empty())])
    rows = found.model.weights.file.tensors["output.weight"].data.view(np.float32)
    np.testing.assert_allclose(scores.hidden(end)[0] @ rows.T, scores.raw(0), atol=1e-3)


def test_texts_of_one_pass_keep_different_layers(target):
    texts = [[1, 2, 3], [4, 5, 6, 7, 8], [9]]
    opened = target.open(texts)
    for (session, _), layers in zip(opened, [(0,), (1, 2), ()], strict=True):
        session.hidden = layers
    tree = TokenTree.build([5, 6], [-1, -1])
    found = target.score([(session, 11, tree) for session, _ in opened])
    target.score([(opened[2][0], 3, tree)])  # what was kept outlives the next pass
    for scores, layers, text in zip(found, [(0,), (1, 2)], texts, strict=False):
        for layer in layers:
            np.testing.assert_array_equal(
                scores.hidden(layer)[0], states_of(target, [*text, 11], (layer,))[layer][-1]
            )
            alone = states_of(target, [*text, 11, 6], (layer,))[layer][-1]
            np.testing.assert_array_equal(scores.hidden(layer)[2], alone)
    with pytest.raises(CapabilityError, match="was not asked for"):
        found[2].hidden(1)


def test_a_pass_that_nobody_asked_has_no_work_for_it(target):
    program = target.model.program
    asked, plain = (program.limits(1, 1, 1, layers)[0][:, 1].sum() for layers in ((0, 1), ()))
    assert asked == plain + 2
