"""Law 12, of prompts: a text's scores do not depend on how it was read, nor on what was announced of its length.

Both engines that are exact to the last bit, on tiny random files; the truth is one token per pass.
"""

from random import Random

import numpy as np
import pytest
from tests.engines.reading import ways_of_reading
from tests.engines.story import OneByOne
from tests.engines.tiny_gguf import VOCAB
from tests.tiers import rest_is_slow

import draftwood
from draftwood.engines.cpu.target import CpuTarget
from draftwood.engines.llama_cpp.target import LlamaTarget

LONGEST = 600
EDGES = (2, 23, 24, 25, 49, 63, 64, 65, 127, 128, 129, 132, 191, 255, 256, 257, 300, 385, 511, 512, 513, 600)
"""Lengths about those at which some engine might take another kernel, or another piece."""
FILES = [
    *(("llama.cpp", family, kind) for family in ("llama", "gemma3", "jamba") for kind in ("Q8_0", "Q4_0", "Q4_1")),
    *(
        ("cpu", family, "Q4_0")
        for family in ("llama", "gemma3", "lfm2", "qwen35", "granitehybrid", "falcon-h1", "deepseek2")
    ),
]
QUICK = [
    ("llama.cpp", "llama", "Q4_1"), ("llama.cpp", "gemma3", "Q8_0"), ("cpu", "llama", "Q4_0"),
    ("cpu", "granitehybrid", "Q4_0"),
]  # fmt: skip


def target_and_truth(engine, path):
    """A target, and the scores after a text by another one of the same file, one token per pass."""
    kind = CpuTarget if engine == "cpu" else LlamaTarget
    return kind(path, threads=1), OneByOne(kind(path, threads=1))


def assert_scores_are_the_same(target, truth, lengths, vocabulary=VOCAB):
    text = np.random.default_rng(len(lengths)).integers(0, vocabulary, LONGEST).tolist()
    for length in lengths:
        expected = np.array(truth(text[:length]))
        for way, row in ways_of_reading(target, text[:length], Random(length)):
            assert np.array_equal(row, expected), f"{length} tokens, {way}"


@pytest.mark.parametrize(("engine", "family", "kind"), rest_is_slow(FILES, *QUICK))
def test_scores_are_the_same_however_a_text_was_read(tiny_gguf, engine, family, kind):
    target, truth = target_and_truth(engine, tiny_gguf(family, kind))
    assert_scores_are_the_same(target, truth, EDGES)


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "family", "kind"), FILES)
def test_scores_of_every_length_are_the_same_however_a_text_was_read(tiny_gguf, engine, family, kind):
    target, truth = target_and_truth(engine, tiny_gguf(family, kind))
    assert_scores_are_the_same(target, truth, range(2, 1 + LONGEST))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["llama.cpp", "cpu"])
def test_scores_of_smollm2_are_the_same_however_a_text_was_read(engine):
    target, _ = draftwood.load("smollm2", engine=engine)
    assert_scores_are_the_same(target, OneByOne(target), (24, 132, 257, 400), target.capabilities.vocab_size)


def test_weights_that_are_exact_are_so_at_every_announced_length(tiny_gguf):
    target = LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1)
    opened = [target.open([[1, 2, 3]], reserve=reserve)[0] for reserve in (0, 300, 3000)]
    assert {session.cache for session, _ in opened} == {target.cache}
    assert target.exact
    assert target.setting.dtype.endswith(" exact")
