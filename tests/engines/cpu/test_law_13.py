"""Law 13: a row's scores have the same bits however wide the pass, whatever is beside it, wherever it runs."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.contracts import Watch
from draftwood.engines.cpu.code.instructions import INSTRUCTIONS, runnable
from draftwood.engines.cpu.target import CpuTarget
from draftwood.tree import TokenTree
from tests.engines.cpu.small_models import Truth, equal, write_mixed
from tests.engines.story import OneByOne, Story, random_tree
from tests.tiers import rest_is_slow

MODELS = ("llama Q8_0", "gemma3 F32", "mixed", "lfm2 Q8_0", "llama F16", "llama Q4_0", "gemma3 Q8_0", "lfm2 F32",
          "gpt-oss Q8_0", "qwen35 Q8_0", "qwen35 F32", "gemma4 Q8_0", "gemma4 F32", "qwen35moe Q8_0",
          "qwen3next Q8_0", "granitehybrid Q8_0", "granitehybrid F32", "falcon-h1 Q8_0", "falcon-h1 F32",
          "deepseek2 Q8_0", "deepseek2 F32", "nemotron_h Q8_0", "nemotron_h F32")  # fmt: skip
QUICK = (
    *MODELS[:4], "gpt-oss Q8_0", "qwen35 Q8_0", "gemma4 Q8_0", "granitehybrid Q8_0", "falcon-h1 Q8_0",
    "deepseek2 Q8_0", "nemotron_h Q8_0",
)  # fmt: skip
LONG = 300


class Case:
    """A target, and the truth from another one: one thread, plain instructions where they were compiled before."""

    def __init__(self, path, plain: bool) -> None:
        self.path = path
        self.target = CpuTarget(path, threads=2)
        self.vocabulary = self.target.capabilities.vocab_size
        self.truth = Truth(CpuTarget(path, threads=1, instructions=INSTRUCTIONS["plain"] if plain else None))
        self.text = np.random.default_rng(5).integers(0, self.vocabulary, LONG).tolist()
        self.rows = self.truth.begin_with(self.text)
        ((session, _),) = self.target.open([self.text])
        self.saved = self.target.save(session)

    def at(self, length):
        """A session whose text is the first tokens of the case's text."""
        return resumed(self.target, self.saved, self.text[:length])


def resumed(target, saved, text):
    """A session that begins as a saved one; it reads the rest of the text where it cannot begin at any token."""
    session = target.resume(saved, len(text))
    assert session.length <= len(text)
    if session.length < len(text):
        target.extend([(session, text[session.length :])])
    return session


@pytest.fixture(scope="module")
def cases(tiny_gguf, tmp_path_factory):
    made = {}

    def case(name):
        if name not in made:
            family, _, kind = name.partition(" ")
            path = tiny_gguf(family, kind) if kind else write_mixed(tmp_path_factory.mktemp("mixed") / "m.gguf")
            made[name] = Case(path, plain=kind in ("F32", "Q8_0"))
        return made[name]

    return case


@pytest.fixture(params=rest_is_slow(MODELS, *QUICK))
def case(request, cases):
    return cases(request.param)


def check_tree(case, text, root, tree, scores) -> None:
    for node in range(-1, len(tree)):
        path = tree.path(node)
        assert equal(scores, 1 + node, case.truth([*text, root, *tree.tokens[path].tolist()])), f"node {node}"


def test_chains_of_every_width(case):
    for width in (*range(1, 66), 100, 127, 128, 200, 255, 256):
        start = 1 + (17 * width) % (LONG - width)
        session = case.at(start)
        root, *rest = case.text[start : start + width]
        (scores,) = case.target.score([(session, root, TokenTree.build(rest))])
        for row in range(width):
            assert equal(scores, row, case.rows[start + row]), f"{width} tokens, row {row}"
            assert scores.argmax(row) == case.rows[start + row].argmax()
        session.close()


@pytest.mark.parametrize(
    "size", rest_is_slow([1, 2, 3, 5, 16, 17, 63, 64, 65, 100, 255, 256, 257, 300], 1, 63, 257)
)
def test_prompts_in_pieces_of_every_size(case, size):
    seen = {}

    def show(positions, scores):
        seen.update({int(place): scores.raw(i) for i, place in enumerate(positions)})

    ((session, scores),) = case.target.open([case.text[:size]], watch=[Watch(show)])
    assert equal(scores, 0, case.rows[size - 1])
    for start in range(size, LONG, size):
        part = case.text[start : start + size]
        (scores,) = case.target.extend([(session, part)], watch=[Watch(show)])
        assert equal(scores, 0, case.rows[start + len(part) - 1])
    assert np.array_equal(np.array([seen[i] for i in range(LONG)]), case.rows)
    session.close()


def test_some_rows_of_a_prompt(case):
    wanted, seen = np.array([0, 7, 63, 64, 255, 256, 299]), {}

    def show(positions, scores):
        seen.update({int(place): scores.raw(i) for i, place in enumerate(positions)})

    ((_, scores),) = case.target.open([case.text], watch=[Watch(show, wanted)])
    assert list(seen) == wanted.tolist()
    assert equal(scores, 0, case.rows[-1])
    assert np.array_equal(np.array(list(seen.values())), case.rows[wanted])


def test_batches_of_ragged_trees(case):
    random = np.random.default_rng(2)
    for _ in range(4):
        starts = random.integers(1, LONG, int(random.integers(2, 9))).tolist()
        requests = [
            (case.at(start), int(random.integers(case.vocabulary)), random_tree(random, 12, case.vocabulary))
            for start in starts
        ]
        every = case.target.score(requests)
        for start, (_, root, tree), scores in zip(starts, requests, every, strict=True):
            check_tree(case, case.text[:start], root, tree, scores)


def test_batches_larger_than_a_pass(case):
    requests = [(case.at(start), case.text[start], TokenTree.build(case.text[start + 1 : start + 60])) for start in
                range(1, 200, 20)]  # fmt: skip
    for start, scores in zip(range(1, 200, 20), case.target.score(requests), strict=True):
        assert all(equal(scores, row, case.rows[start + row]) for row in range(60))


def test_every_number_of_threads(case):
    random = np.random.default_rng(3)
    tree = random_tree(random, 40, case.vocabulary)
    try:
        for threads in (1, 2, 3):
            case.target.model.threads = threads
            session = case.at(100)
            (scores,) = case.target.score([(session, 3, tree)])
            check_tree(case, case.text[:100], 3, tree, scores)
            ((_, scores),) = case.target.open([case.text])
            assert equal(scores, 0, case.rows[-1])
    finally:
        case.target.model.threads = 2


@pytest.mark.parametrize("name", runnable()[1:])
@pytest.mark.parametrize(
    ("family", "kind"),
    [
        ("gemma3", "F32"),
        ("gemma3", "Q8_0"),
        ("lfm2", "Q8_0"),
        ("gpt-oss", "F32"),
        ("gpt-oss", "Q8_0"),
        ("qwen35", "Q8_0"),
        ("granitehybrid", "Q8_0"),
        ("falcon-h1", "Q8_0"),
        ("deepseek2", "Q8_0"),
        ("nemotron_h", "Q8_0"),
    ],
)
def test_every_instruction_set(tiny_gguf, family, kind, name):
    path = tiny_gguf(family, kind)
    text = np.random.default_rng(6).integers(0, 320, 150).tolist()
    rows = [
        Truth(CpuTarget(path, threads=1, instructions=INSTRUCTIONS[one])).begin_with(text)
        for one in (name, runnable()[0])
    ]
    assert np.array_equal(*(found.view(np.int32) for found in rows))


def test_sessions_resumed_at_any_length_and_cut(case):
    for length in range(1, LONG, 7):
        session, twin = case.at(length), case.at(length)
        (scores,) = case.target.extend([(session, case.text[length : length + 9])])
        assert equal(scores, 0, case.rows[min(LONG, length + 9) - 1])
        (other,) = case.target.score([(twin, 1, TokenTree.build([2, 3], [-1, -1]))])
        check_tree(case, case.text[:length], 1, TokenTree.build([2, 3], [-1, -1]), other)
        session.truncate(max(1, length - 5))
        (scores,) = case.target.extend([(session, case.text[session.length : length + 1])])
        assert equal(scores, 0, case.rows[length])
        twin.close()
        session.close()


@pytest.mark.parametrize("family", ["llama", "gemma3", "lfm2", "gpt-oss", "qwen35", "granitehybrid", "deepseek2"])
def test_texts_across_the_borders_of_chunks(tiny_gguf, family):
    path = tiny_gguf(family, "Q8_0")
    target, random = CpuTarget(path, threads=2), np.random.default_rng(7)
    text = random.integers(0, 320, 1120).tolist()
    truth = Truth(CpuTarget(path, threads=1))
    rows = truth.begin_with(text)
    ((session, scores),) = target.open([text])
    assert equal(scores, 0, rows[-1])
    saved = target.save(session)
    for start in (*range(1015, 1034), 1087, 1089):
        root, *rest = text[start : start + 31]
        fork = resumed(target, saved, text[:start])
        (scores,) = target.score([(fork, root, TokenTree.build(rest))])
        assert all(equal(scores, row, rows[start + row]) for row in range(31)), f"from {start}"
        parents = [int(random.integers(max(-1, i - 3), i)) for i in range(14)]
        tree = TokenTree.build(random.integers(0, 320, 14), parents)
        (scores,) = target.score([(fork, root, tree)])
        node = 13
        path_of = tree.path(node)
        twin = resumed(target, saved, text[:start])
        (alone,) = target.score([(twin, root, TokenTree.build(tree.tokens[path_of]))])
        assert equal(scores, 1 + node, alone.raw(len(path_of)))
        fork.keep(path_of)
        twin.keep(list(range(len(path_of))))
        after, same = target.score([(fork, 5, TokenTree.empty()), (twin, 5, TokenTree.empty())])
        assert equal(after, 0, same.raw(0))


@pytest.mark.parametrize("seed", rest_is_slow(range(8), 0))
def test_texts_of_any_history(case, seed):
    """Prompts of one page or two, which grow, are cut and go on as other texts."""
    told = Story(case.target, OneByOne(case.truth.target), np.random.default_rng(seed), begin=90, longest=200)
    told.tell(60)
    assert told.gap == 0


@pytest.mark.smollm2
def test_a_real_model():
    from draftwood.local.find import gguf_file

    target = CpuTarget(gguf_file("smollm2"), threads=2)
    text = np.random.default_rng(8).integers(0, 49152, 100).tolist()
    ((session, _),) = target.open([text[:70]])
    (wide,) = target.score([(session, text[70], TokenTree.build(text[71:90]))])
    rows = [wide.raw(row) for row in range(20)]
    for row in range(0, 20, 5):
        ((_, scores),) = target.open([text[: 71 + row]])
        assert equal(scores, 0, rows[row])
