"""The llama.cpp target on tiny random files: the contract, and trees against plain decoding after any history."""

from __future__ import annotations

import gc
import os
import sys
from itertools import cycle

import numpy as np
import psutil
import pytest
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

import draftwood
from draftwood.contracts import Watch
from draftwood.engines.llama_cpp import cache
from draftwood.engines.llama_cpp import target as module
from draftwood.engines.llama_cpp.context import Context
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.errors import CapabilityError, DraftwoodError, ModelError, PromptError
from draftwood.testing import check_target
from draftwood.tree import TokenTree
from tests.engines.story import OneByOne, Story, random_tree
from tests.engines.tiny_gguf import EXACT, HEAD, KV_HEADS, LAYERS, LONGEST, TYPES, VOCAB
from tests.tiers import rest_is_slow

FAMILIES = ["llama", "gemma3", "lfm2", "mamba", "mamba2", "jamba"]
STATES = FAMILIES[2:]
FILES = [(family, kind) for family in FAMILIES for kind in TYPES]
QUICK = [
    ("llama", "Q8_0"), ("llama", "Q4_1"), ("llama", "F32"), ("gemma3", "Q4_0"), ("lfm2", "Q8_0"),
    ("mamba", "Q4_1"), ("mamba2", "F16"), ("jamba", "Q8_0"),
]  # fmt: skip
NOTHING = TokenTree.empty()
TEXT = np.random.default_rng(1).integers(0, VOCAB, 20).tolist()

LARGEST = 12
"""No score of the tiny files is larger."""
ROUNDING = LARGEST * LAYERS * np.sqrt(160) * 2**-11
"""For weights that are not `EXACT`. Each layer's attention adds up the values of up to 160 tokens in float16, of
11 bits, and in another order where a pass has another width."""


def rounding(kind):
    return 0 if kind in EXACT else ROUNDING


@pytest.fixture
def target(tiny_gguf):
    return LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1)


@pytest.fixture(scope="module")
def truth(tiny_gguf):
    return OneByOne(LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1))


@pytest.fixture
def small_cache(monkeypatch):
    """A new cache has as few cells as llama.cpp takes."""
    monkeypatch.setattr(cache, "_FIRST", 512)


@pytest.fixture
def spelled():
    """Settings under which each token is one piece of the text."""
    words = Tokenizer(WordLevel({f"t{i} ": i for i in range(VOCAB)}, unk_token="t0 "))
    words.decoder = decoders.Fuse()
    return {"tokenizer": PreTrainedTokenizerFast(tokenizer_object=words)}


def story(path, seed=0, **options):
    """A story, and what plain decoding of the same file says."""
    truth = OneByOne(LlamaTarget(path, threads=1))
    return Story(LlamaTarget(path, threads=1), truth, np.random.default_rng(seed), **options)


def bushy_tree(target):
    """As many leaves as a pass takes, all of them below the root."""
    leaves = target.capabilities.max_pass - 1
    return TokenTree.build(list(range(leaves)), [-1] * leaves)


def assert_goes_on(target, truth, *sessions):
    """Each session says what its ids say."""
    for session in sessions:
        text = [*session.ids, 7]
        (scores,) = target.score([(session, 7, NOTHING)])
        assert np.array_equal(scores.raw(0), truth(text))
        session.keep([])
        assert session.ids == text


# --- trees ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("family", "kind"), FILES)
@pytest.mark.parametrize("exact", [None, False])
def test_fulfils_the_contract(tiny_gguf, family, kind, exact):
    target = LlamaTarget(tiny_gguf(family, kind), threads=1, exact=exact)
    assert target.exact == (kind in EXACT and exact is None)
    same = target.exact
    check_target(target, tolerance=0 if same else ROUNDING)
    check_target(target, prompt=TEXT, tolerance=0 if same else ROUNDING)


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_wrong_token_shows_where_rounding_does_not(tiny_gguf, family):
    """What `ROUNDING` allows is far less than what any mistake costs."""
    truth = OneByOne(LlamaTarget(tiny_gguf(family, "F32"), threads=1))
    row = truth(TEXT)
    assert np.abs(row).max() < LARGEST
    wrong = [[*TEXT[:-place], (TEXT[-place] + 1) % VOCAB, *TEXT[len(TEXT) - place + 1 :]] for place in range(1, 7)]
    gaps = [np.abs(truth(text) - row).max() for text in wrong]  # all of them within the window
    assert min(gaps) > 2 * ROUNDING
    assert np.median(gaps) > 10 * ROUNDING


TOLD = [*((*file, 60) for file in FILES), *((*file, 2000) for file in QUICK)]


@pytest.mark.parametrize(("family", "kind", "trees"), rest_is_slow(TOLD, *((*file, 60) for file in QUICK)))
def test_rows_of_trees_are_those_of_plain_decoding_after_any_history(tiny_gguf, family, kind, trees):
    told = story(tiny_gguf(family, kind), seed=trees)
    told.tell(trees)
    assert told.gap <= rounding(kind)


STORIES = {
    "one text, until the cache grows": {"most": 1, "nodes": 47, "longest": 700},
    "two texts with wide trees": {"most": 2, "nodes": 47},
    "passes that lack sequences": {"most": 9, "nodes": 47},
    "more texts than a small cache has sequences for": {"most": 45, "nodes": 10},
}


SHORT = [
    *((name, "llama", 60) for name in STORIES),
    *((name, family, 60) for name, family in zip(cycle(STORIES), FAMILIES[1:], strict=False)),
]
EVERY = [(name, family, 60) for name in STORIES for family in FAMILIES]
LONG = [(name, family, 2000) for name, family, _ in SHORT]


@pytest.mark.usefixtures("small_cache")
@pytest.mark.parametrize(("name", "family", "trees"), rest_is_slow(EVERY + LONG, *SHORT))
def test_a_cache_that_grows_and_is_written_anew_holds_the_same(tiny_gguf, name, family, trees):
    told = story(tiny_gguf(family, "Q4_0"), seed=2, **STORIES[name])
    told.tell(trees)
    assert told.gap == 0
    held = told.target.cache
    assert sorted(held._free) == list(range(held._context.trash)), "every sequence is free again"


def test_watching_sees_each_token_once(target, truth):
    text, seen = TEXT * 16, []

    def note(positions, scores):
        ids, _ = scores.top_k(1)
        assert len(ids) == len(positions)
        seen.extend((place, scores.raw(i)) for i, place in enumerate(positions.tolist()))

    ((session, scores),) = target.open([text], watch=[Watch(note)])
    assert [position for position, _ in seen] == list(range(len(text)))
    for position in (0, 64, 255, 256, len(text) - 1):
        assert np.array_equal(seen[position][1], truth(text[: position + 1]))
    assert np.array_equal(scores.raw(0), seen[-1][1])
    assert_goes_on(target, truth, session)
    for wanted in ([], [5, 255, 256, len(text) - 1]):
        seen.clear()
        ((_, scores),) = target.open([text], watch=[Watch(note, np.array(wanted, dtype=np.int64))])
        assert [position for position, _ in seen] == wanted
        assert all(np.array_equal(row, truth(text[: position + 1])) for position, row in seen)
        assert np.array_equal(scores.raw(0), truth(text))


# --- several texts -------------------------------------------------------------------------------------------


def test_more_texts_than_it_holds_are_refused_and_leave_no_trace(target, truth):
    ((kept, _),) = target.open([TEXT])
    most = cache._MOST_TEXTS
    with pytest.raises(CapabilityError, match=f"at most {most} texts at once: lower batch_size"):
        target.open([[1, 2]] * most)
    assert len(target.cache._texts) == 1
    opened = [session for session, _ in target.open([[1, 2]] * (most - 1))]
    bushy = bushy_tree(target)
    (scores,) = target.score([(opened[-1], 3, bushy)])
    assert np.array_equal(scores.raw(len(bushy)), truth([1, 2, 3, len(bushy) - 1]))
    assert_goes_on(target, truth, kept, *opened[:5])


# --- scores --------------------------------------------------------------------------------------------------


def test_scores_outlive_later_passes_a_larger_cache_and_the_target(target, truth, monkeypatch):
    monkeypatch.setattr(cache, "_FIRST", 256)
    ((session, first),) = target.open([TEXT])
    row = first.raw(0)
    first.raw(0)[:] = 0
    (second,) = target.score([(session, 3, TokenTree.build([4, 5]))])
    session.keep([])
    target.extend([(session, TEXT * 14)])  # more than 256 cells
    last = target.extend([(session, [1])])[0]
    session.close()
    whole = [*TEXT, 3, *TEXT * 14, 1]
    del target, session
    gc.collect()
    assert np.array_equal(row, truth(TEXT))
    assert np.array_equal(first.raw(0), truth(TEXT))
    assert np.array_equal(second.raw(2), truth([*TEXT, 3, 4, 5]))
    assert np.array_equal(last.raw(0), truth(whole))
    assert last.argmax(0) == int(truth(whole).argmax())


# --- models whose state cannot be cut ------------------------------------------------------------------------


def test_a_recurrent_model_without_snapshots_declares_one_token_per_pass_and_goes_on(tiny_gguf, monkeypatch):
    """Nothing is taken back; where that is asked for all the same, the text is read again."""
    monkeypatch.setattr(module, "restores", lambda *_: False)
    path = tiny_gguf("mamba", "F32")
    target, truth = LlamaTarget(path, threads=1), OneByOne(LlamaTarget(path, threads=1))
    assert not target.capabilities.trees
    assert target.capabilities.rollback == "none"
    assert target.capabilities.max_pass == 1
    sessions = [session for session, _ in target.open([TEXT, TEXT[:5], TEXT[::-1], TEXT])]
    sessions[1].truncate(3)
    assert sessions[1].length == 0
    target.extend([(sessions[1], TEXT[:3])])
    for step in range(6):
        found = target.score([(session, step, NOTHING) for session in sessions])
        for session, scores in zip(sessions, found, strict=True):
            assert np.abs(scores.raw(0) - truth([*session.ids, step])).max() < ROUNDING
            if step % 2:  # else the pass is undone by the next one
                session.keep([])
    with pytest.raises(CapabilityError, match="at most 0 tokens"):
        target.score([(sessions[0], 1, TokenTree.build([2]))])
    for session in sessions:
        session.close()


# --- refusals and failures -----------------------------------------------------------------------------------


def test_what_is_not_declared_is_refused(target, tiny_gguf):
    ((session, _),) = target.open([TEXT])
    most = target.capabilities.max_pass - 1
    with pytest.raises(CapabilityError, match=f"trees of at most {most} tokens: cut the draft"):
        target.score([(session, 1, TokenTree.build([1] * (most + 1)))])
    chains = LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1, exact=False)
    ((session, _),) = chains.open([TEXT])
    with pytest.raises(CapabilityError, match="scores chains of at most"):
        chains.score([(session, 1, TokenTree.build([1, 2], [-1, -1]))])
    with pytest.raises(PromptError, match="empty"):
        target.open([[]])
    with pytest.raises(PromptError, match=f"at most {LONGEST}"):
        target.open([[1] * (LONGEST + 1)])
    with pytest.raises(RuntimeError, match=r"keep\(\) follows a score\(\)"):
        session.keep([])


def test_a_token_outside_the_vocabulary_leaves_all_texts_as_they_were(target, truth):
    sessions = [session for session, _ in target.open([TEXT, TEXT[:3]])]
    for wrong in (VOCAB, -1):
        with pytest.raises(DraftwoodError, match="could not compute a pass"):
            target.extend([(sessions[0], [1, wrong])])
        with pytest.raises(DraftwoodError, match="could not compute a pass"):
            target.score([(session, 1, TokenTree.build([2, wrong], [-1, -1])) for session in sessions])
    assert_goes_on(target, truth, *sessions)


def test_an_error_of_a_watcher_leaves_the_text_as_it_was(target, truth):
    ((session, _),) = target.open([TEXT])

    def fail(positions, scores):
        if positions[0] > 200:
            raise ValueError("I have seen enough")

    fails = Watch(fail)
    with pytest.raises(ValueError, match="enough"):
        target.extend([(session, TEXT * 30)], watch=[fails])
    assert session.ids == [*TEXT, *TEXT * 30][: session.length]
    assert_goes_on(target, truth, session)
    with pytest.raises(ValueError, match="enough"):
        target.open([TEXT, TEXT * 30], watch=[fails, fails])
    assert len(target.cache._texts) == 1


CALLS = ("run", "copy", "remove", "state", "restore", "clear")


def lives_of_three(target, sessions):
    """What two sessions do, so that each kind of call to the context is made; ``sessions`` gets all that live."""
    for session, _ in target.open([TEXT, TEXT[:7]]):
        sessions.append(session)
    can = target.capabilities
    bushy = random_tree(np.random.default_rng(4), min(12, can.max_pass - 1), VOCAB, chain=not can.trees)
    target.score([(session, 3, bushy) for session in sessions])
    sessions[0].keep(bushy.path(len(bushy) - 1))
    sessions += [session for session, _ in target.open([sessions[0].ids])]
    target.extend([(sessions[2], TEXT)])
    sessions[1].keep([])
    target.score([(session, 3, bushy) for session in sessions])
    sessions[0].truncate(9)
    target.extend([(sessions[1], TEXT * 14)])
    sessions[2].keep(bushy.path(0))
    target.extend([(sessions[1], TEXT * 10)])
    sessions.pop(2).close()
    target.score([(session, 3, bushy) for session in sessions])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", rest_is_slow(CALLS, "remove", "restore"))
@pytest.mark.parametrize("family", rest_is_slow(FAMILIES, "llama", "jamba"))
def test_an_interrupt_at_any_call_leaves_the_texts_whole(tiny_gguf, monkeypatch, family, call, when):
    monkeypatch.setattr(cache, "_FIRST", 256)  # the fewest cells that llama.cpp takes
    path = tiny_gguf(family, "Q8_0")
    target, truth = LlamaTarget(path, threads=1), OneByOne(LlamaTarget(path, threads=1))
    own, left = getattr(Context, call), [0]

    def interrupted(self, *args, **options):
        left[0] -= 1
        if left[0] == 0 and when == "before":
            raise KeyboardInterrupt
        found = own(self, *args, **options)
        if left[0] == 0:
            raise KeyboardInterrupt
        return found

    for at in range(1, 1000):
        sessions, finished = [], False
        target.__dict__.pop("cache", None)  # a new one
        left[0] = at
        with monkeypatch.context() as patch:
            patch.setattr(Context, call, interrupted)
            try:
                lives_of_three(target, sessions)
                finished = True
            except KeyboardInterrupt:
                pass
        assert len(target.cache._texts) <= len(sessions), "no text is held by nobody"
        assert_goes_on(target, truth, *sessions, *sessions)
        if finished:
            never = {"copy"} if family in STATES else set()  # states are not shared
            never |= {"clear"} if family.startswith("mamba") else set()  # nothing has to stay in order
            assert at > 1 or call in never, "the call is made"
            break


# --- threads, and what is left behind ------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_given_up_at_any_point_leave_every_slot_free(tiny_gguf, spelled, family):
    target = LlamaTarget(tiny_gguf(family, "Q8_0"), threads=1)
    prompts = [TEXT * 2, TEXT[::-1], TEXT[:3]]
    plain = [one.ids for one in draftwood.generate(target, prompts, max_new_tokens=20, drafters="none")]
    held = target.cache
    for at in range(0, 12, 3):
        streams = [draftwood.stream(target, prompt, max_new_tokens=20, **spelled) for prompt in prompts]
        for stream in streams:
            for _ in range(at):
                next(stream, None)
        for stream in streams[::-1]:
            stream.close()
        assert held._texts == []
        assert sorted(held._free) == list(range(held._context.trash))
    assert [one.ids for one in draftwood.generate(target, prompts, max_new_tokens=20)] == plain


def test_forty_requests_leave_no_more_behind_than_one(target):
    process, rng = psutil.Process(os.getpid()), np.random.default_rng(5)

    def write(requests):
        for _ in range(requests):
            prompts = [rng.integers(0, VOCAB, rng.integers(1, 40)).tolist() for _ in range(2)]
            draftwood.generate(target, prompts[0], max_new_tokens=12, planner="fixed:4")
            sessions = [session for session, _ in target.open(prompts)]
            target.score([(session, 1, random_tree(rng, 12, VOCAB)) for session in sessions])
            for session in sessions[::-1]:
                session.close()
                session.close()

    write(20)
    gc.collect()
    cells, before = target.cache._context.cells, process.memory_info().rss
    write(40)
    gc.collect()
    assert process.memory_info().rss - before < 8_000_000
    assert target.cache._context.cells == cells
    assert target.cache._texts == []
    assert sorted(target.cache._free) == list(range(target.cache._context.trash))


def written(target, length):
    """A text of this length is read and closed."""
    ((session, _),) = target.open([(TEXT * (1 + length // len(TEXT)))[:length]])
    session.close()


def test_memory_of_a_long_text_is_given_back_after_several_short_ones(target, truth, monkeypatch):
    monkeypatch.setattr(cache, "_FIRST", 256)
    monkeypatch.setattr(cache, "_LARGE", 1024)
    held = target.cache
    ((first, scores),) = target.open([TEXT])
    written(target, 900)
    first.close()
    written(target, 20)
    written(target, 900)  # a server that opens long texts again and again keeps the room for them
    for _ in range(cache._PATIENCE):
        assert held._context.cells >= cache._LARGE
        written(target, 20)
    assert held._context.cells == cache._FIRST
    assert sorted(held._free) == list(range(held._context.trash))
    assert np.array_equal(scores.raw(0), truth(TEXT))
    ((session, _),) = target.open([TEXT])
    assert_goes_on(target, truth, session)


def test_a_file_that_has_changed_is_refused(tmp_path, tiny_gguf):
    path = tmp_path / "model.gguf"
    path.write_bytes(tiny_gguf("llama", "Q8_0").read_bytes())
    target = LlamaTarget(path, threads=1)
    ((session, _),) = target.open([TEXT])
    os.utime(path, (1, 1))
    with pytest.raises(ModelError, match=r"model\.gguf has changed since it was loaded: load it again"):
        target.open([TEXT])
    path.unlink()  # what is mapped stays
    target.open([TEXT])
    target.score([(session, 1, NOTHING)])


@pytest.mark.skipif(sys.platform == "win32", reason="there an open file cannot be replaced")
def test_a_file_that_was_replaced_stays_as_it_was_and_is_told_once(tmp_path, tiny_gguf, caplog):
    path, other = tmp_path / "model.gguf", tmp_path / "other.gguf"
    path.write_bytes(tiny_gguf("llama", "Q8_0").read_bytes())
    other.write_bytes(tiny_gguf("llama", "F16").read_bytes())
    target = LlamaTarget(path, threads=1)
    ((_, before),) = target.open([TEXT])
    expected = before.raw(0).copy()
    other.replace(path)
    for _ in range(2):
        ((_, scores),) = target.open([TEXT])
        assert np.array_equal(scores.raw(0), expected)
    assert [message for message in caplog.messages if "was replaced" in message] == [
        f"{path} was replaced: texts are those of the file as it was; load it again"
    ]


def test_a_session_tells_what_its_tokens_take(target):
    ((session, _),) = target.open([TEXT])
    assert session.cache_bytes == len(TEXT) * LAYERS * 2 * KV_HEADS * HEAD * 2
    session.truncate(5)
    assert session.cache_bytes == 5 * LAYERS * 2 * KV_HEADS * HEAD * 2
