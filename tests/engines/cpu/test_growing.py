"""Trees grown level by level, by all layers or the first ones, have the bits of passes over the whole text."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

import draftwood
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.files.gguf_file import GgufFile
from draftwood.errors import CapabilityError, UsageError
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import Truth, equal
from tests.engines.story import random_tree

TEXT = [5, 9, 7, 260, 261, 9, 7, 260, 11]
FAMILIES = pytest.mark.parametrize("family", ["llama", "gemma3"])


def with_layers(path: Path, layers: int) -> CpuTarget:
    """Return a target of the first layers of a file, as if it had no others."""
    file = GgufFile(path)
    family = file.metadata["general.architecture"]
    file.metadata[f"{family}.block_count"] = layers
    others = [name for name in file.tensors if name.startswith("blk.") and int(name.split(".")[1]) >= layers]
    for name in others:
        del file.tensors[name]
    return CpuTarget(file, threads=1)


def check_grown(part, session, truth, root, tree) -> dict[int, int]:
    """Grow a tree level by level and compare each row with the truth; returns the places of its nodes."""
    (scores,) = part.grow([(session, [root], [-1])])
    assert equal(scores, 0, truth([*session.ids, root]))
    places, depth = {-1: 0}, tree.depth.tolist()
    for level in range(1, max(depth, default=0) + 1):
        nodes = [node for node in range(len(tree)) if depth[node] == level]
        tokens = [int(tree.tokens[node]) for node in nodes]
        (scores,) = part.grow([(session, tokens, [places[int(tree.parents[node])] for node in nodes])])
        for row, node in enumerate(nodes):
            places[node] = len(places)
            path = tree.tokens[tree.path(node)].tolist()
            assert equal(scores, row, truth([*session.ids, root, *path])), f"node {node}"
    return places


@FAMILIES
def test_the_first_layers_are_the_model_that_has_no_others(tiny_gguf, family):
    path, random = tiny_gguf(family, "Q4_0"), np.random.default_rng(3)
    target, truth = CpuTarget(path, threads=2), Truth(with_layers(path, 1))
    part, whole = target.early_exit("1"), Truth(CpuTarget(path, threads=1))
    ((session, _),) = target.open([TEXT])
    for _ in range(4):
        tree, root = random_tree(random, 12, target.capabilities.vocab_size), int(random.integers(300))
        check_grown(part, session, truth, root, tree)
        (scores,) = target.score([(session, root, tree)])  # which finds nothing of what was grown
        for node in range(-1, len(tree)):
            assert equal(scores, 1 + node, whole([*session.ids, root, *tree.tokens[tree.path(node)].tolist()]))
        session.keep(tree.path(len(tree) - 1))


@pytest.mark.parametrize("family", ["qwen35", "granitehybrid", "falcon-h1"])
def test_states_stay_those_of_all_layers_where_some_have_grown_a_tree(tiny_gguf, family):
    path = tiny_gguf(family, "Q8_0")
    target, truth = CpuTarget(path, threads=2), Truth(CpuTarget(path, threads=1))
    part, text = target.early_exit("1-1"), list(TEXT)
    ((session, _),) = target.open([TEXT])
    for root in (7, 8, 9):
        part.grow([(session, [root, 5], [-1, 0])])
        part.grow([(session, [6, 6], [0, 1])])
        (scores,) = target.score([(session, root, TokenTree.build([5, 6], [-1, -1]))])
        assert equal(scores, 1, truth([*text, root, 5]))
        assert equal(scores, 2, truth([*text, root, 6]))
        session.keep([0])
        text += [root, 5]


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen35", "granitehybrid", "falcon-h1", "deepseek2"])
def test_all_layers_grow_what_the_model_scores_and_settle_it(tiny_gguf, family):
    path, random = tiny_gguf(family, "Q8_0"), np.random.default_rng(4)
    target, truth = CpuTarget(path, threads=2), Truth(CpuTarget(path, threads=1))
    ((session, _),) = target.open([TEXT])
    text = list(TEXT)
    for _ in range(3):
        tree, root = random_tree(random, 12, target.capabilities.vocab_size), int(random.integers(300))
        places = check_grown(target, session, truth, root, tree)
        path_ = tree.path(int(random.integers(-1, len(tree))))
        target.settle(session, [0, *(places[node] for node in path_)])
        text += [root, *tree.tokens[path_].tolist()]
        assert session.ids == text
    (scores,) = target.extend([(session, [8])])
    assert equal(scores, 0, truth([*text, 8]))


def test_what_cannot_be_grown_is_said(tiny_gguf):
    target = CpuTarget(tiny_gguf("llama", "Q4_0"))
    ((session, _),) = target.open([TEXT])
    with pytest.raises(UsageError, match="one of the 0 nodes"):
        target.grow([(session, [1], [0])])
    with pytest.raises(CapabilityError, match="draft fewer"):
        target.grow([(session, [1] * 1000, list(range(-1, 999)))])
    with pytest.raises(UsageError, match="it has 2 layers"):
        target.early_exit("2")
    assert target.early_exit("1") is target.early_exit("0-0"), "made once"


@pytest.mark.parametrize("family", ["llama", "qwen35"])
def test_what_was_scored_is_not_kept_after_nodes_have_grown_in_its_cells(tiny_gguf, family):
    path = tiny_gguf(family, "Q8_0")
    target, truth = CpuTarget(path), Truth(CpuTarget(path, threads=1))
    for grows in (target, target.early_exit("1")):
        ((session, _),) = target.open([TEXT])
        target.score([(session, 7, TokenTree.build([5, 6], [-1, -1]))])
        grows.grow([(session, [8, 9], [-1, 0])])
        with pytest.raises(RuntimeError, match="no scored tree to keep from"):
            session.keep([1])
        assert session.ids == TEXT
        (scores,) = target.extend([(session, [7, 6])])
        assert equal(scores, 0, truth([*TEXT, 7, 6]))


def test_a_part_keeps_no_target_alive(tiny_gguf):
    target = CpuTarget(tiny_gguf("llama", "Q4_0"))
    part, gone = target.early_exit(), weakref.ref(target)
    del target
    gc.collect()
    assert gone() is None
    assert part.weight_bytes == 0


@pytest.mark.parametrize("drafters", ["early-exit:layers=1", "ngram+early-exit", "early-exit:layers=1-1"])
@pytest.mark.parametrize("temperature", [0, 1])
def test_law_1_and_3_the_text_is_the_plain_one(tiny_gguf, drafters, temperature):
    target = CpuTarget(tiny_gguf("llama", "Q4_0"))
    settings = {"temperature": temperature, "seed": 5, "max_new_tokens": 40, "planner": "fixed:6"}
    plain = draftwood.generate(target, TEXT, drafters="none", **settings)
    drafted = draftwood.generate(target, TEXT, drafters=drafters, **settings)
    assert drafted.ids == plain.ids
    assert drafted.stats.draft_coverage > 0
    both = draftwood.generate(target, [TEXT, TEXT[:3]], drafters=drafters, **settings)
    assert both[0].ids == plain.ids


def test_texts_share_a_pass(tiny_gguf):
    path = tiny_gguf("llama", "Q4_0")
    target, truth = CpuTarget(path), Truth(with_layers(path, 1))
    part = target.early_exit("1")
    one, other = (session for session, _ in target.open([TEXT, TEXT[:4]]))
    part.grow([(one, [7, 1], [-1, -1]), (other, [2], [-1])])
    found = part.grow([(one, [3], [1]), (other, [4, 5], [0, 0])])
    assert equal(found[0], 0, truth([*TEXT, 1, 3]))
    assert equal(found[1], 1, truth([*TEXT[:4], 2, 5]))


def test_an_empty_tree_is_scored_after_a_grown_one(tiny_gguf):
    target = CpuTarget(tiny_gguf("llama", "Q4_0"))
    ((session, _),) = target.open([TEXT])
    (before,) = target.score([(session, 7, TokenTree.empty())])
    expected = before.raw(0)
    target.grow([(session, [7, 5, 6], [-1, 0, 1])])
    (after,) = target.score([(session, 7, TokenTree.empty())])
    assert equal(after, 0, expected)
    session.keep(())
    assert session.ids == [*TEXT, 7]
