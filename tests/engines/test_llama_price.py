"""Which texts llama.cpp decodes exactly where that is left to the engine: those for which it is cheap."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import draftwood
from draftwood.contracts import TryingTarget
from draftwood.drafters.lookahead.drafter import LookaheadDrafter
from draftwood.engines.llama_cpp import cache, price, reader
from draftwood.engines.llama_cpp.context import Settings, exact_settings
from draftwood.engines.llama_cpp.filling import READ, filled
from draftwood.engines.llama_cpp.target import LlamaTarget
from draftwood.engines.llama_cpp.weights import Weights
from draftwood.errors import CapabilityError
from draftwood.models import trials
from draftwood.tree import TokenTree
from tests.engines.llama_story import OneByOne
from tests.engines.tiny_gguf import VOCAB

LIMIT = 300
SHORT, LONG = ([(7 * i) % VOCAB for i in range(n)] for n in (20, 500))
FORKED = TokenTree.build([4, 5], [-1, -1])
CHAIN = TokenTree.build([4, 5])


@pytest.fixture
def path(tiny_gguf, monkeypatch):
    """A file on a machine where exactness is cheap up to `LIMIT` tokens."""
    monkeypatch.setattr("draftwood.engines.llama_cpp.target.cheap_length", lambda *_: LIMIT)
    monkeypatch.setattr(reader, "WORTH", 10**9)
    return tiny_gguf("llama", "Q8_0")


@pytest.fixture
def target(path):
    return LlamaTarget(path, threads=1)


def open_one(target, text, reserve=0):
    ((session, scores),) = target.open([text], reserve=reserve)
    return session, scores


def test_long_texts_are_decoded_in_the_librarys_own_settings(target, path):
    own = OneByOne(LlamaTarget(path, threads=1, exact=False))
    exact = OneByOne(LlamaTarget(path, threads=1, exact=True))
    (short, _), (long, _) = open_one(target, SHORT), open_one(target, LONG)
    assert short.mode.exact
    assert not long.mode.exact
    (scores,) = target.score([(short, 3, CHAIN)])
    assert np.array_equal(scores.raw(2), exact([*SHORT, 3, 4, 5]))
    (scores,) = target.score([(long, 3, TokenTree.empty())])
    assert np.abs(scores.raw(0) - own([*LONG, 3])).max() < 1


@pytest.mark.parametrize(("length", "reserve", "exact"), [(20, 300, True), (20, 500, False), (301, 0, True)])
def test_what_is_announced_counts_and_decides_once(target, length, reserve, exact):
    session, _ = open_one(target, LONG[:length], reserve)
    assert session.mode.exact == exact
    target.extend([(session, LONG)])
    assert session.mode.exact == exact
    assert session.fork().mode is session.mode
    assert session.capabilities.trees == exact


def test_a_text_is_on_the_same_side_however_it_is_read(target):
    """A server reads a prompt in parts, and announces the rest of it."""
    for total in (350, 390, 401, 420):
        whole, _ = open_one(target, LONG[: total - 50], 50)
        parts, _ = open_one(target, LONG[:100], total - 100)
        assert whole.mode is parts.mode


def test_texts_of_both_kinds_share_a_call(target, path):
    pairs = [open_one(target, text) for text in (LONG, SHORT, LONG[::-1], SHORT[::-1])]
    sessions = [session for session, _ in pairs]
    trees = [CHAIN, FORKED, TokenTree.empty(), CHAIN]
    together = target.score([(s, 3, tree) for s, tree in zip(sessions, trees, strict=True)])
    rows = [scores.raw(len(tree)) for scores, tree in zip(together, trees, strict=True)]
    for session, tree, row in zip(sessions, trees, rows, strict=True):
        (alone,) = target.score([(session, 3, tree)])
        if session.mode.exact:
            assert np.array_equal(alone.raw(len(tree)), row)
        assert np.abs(alone.raw(len(tree)) - row).max() < 1
        session.keep(tree.path(len(tree) - 1))
    for session, _ in pairs:
        session.close()


def test_a_tree_of_a_long_text_is_refused(target):
    session, _ = open_one(target, LONG)
    with pytest.raises(CapabilityError, match="scores chains of at most"):
        target.score([(session, 3, FORKED)])


@pytest.mark.parametrize("drafters", ["copy-and-recycle", LookaheadDrafter(window=3, ngram=3)])
def test_drafters_that_grow_trees_write_long_texts_too(target, drafters):
    """Planners go by what a text's session can do; in a tiny model of one thread no choice is near."""
    for text in (SHORT, LONG):
        plain = draftwood.generate(target, text, max_new_tokens=40, drafters="none")
        drafted = draftwood.generate(target, text, max_new_tokens=40, drafters=drafters)
        assert plain.ids == drafted.ids
        assert target._long.is_used == (text is LONG)


def test_exactness_that_is_asked_for_holds_at_every_length(path):
    session, _ = open_one(LlamaTarget(path, threads=1, exact=True), LONG)
    assert session.mode.exact


def test_short_texts_let_the_memory_of_a_long_one_go(target):
    long, _ = open_one(target, [(7 * i) % VOCAB for i in range(4000)])
    target.extend([(long, [1] * 90)])
    other, _ = open_one(target, LONG)
    long.close(), other.close()
    assert target._long.cache._context.cells >= cache._LARGE
    for _ in range(cache._PATIENCE):
        session, _ = open_one(target, SHORT)
        session.close()
    assert target._long.cache._context.cells == cache._FIRST


def test_it_is_said_once(target, caplog):
    with caplog.at_level(logging.WARNING, "draftwood"):
        open_one(target, SHORT)
        assert not caplog.messages
        open_one(target, LONG)
        open_one(target, LONG)
    (message,) = caplog.messages
    assert "own settings: exact ones would make them over 5 % slower here" in message


def test_one_thread_pays_no_price(tiny_gguf):
    weights = Weights(tiny_gguf("llama", "Q8_0"))
    assert price.cheap_length(weights, exact_settings(1), Settings(1)) > 1 << 20


def test_the_limit_is_tried_once_and_remembered(tiny_gguf, tmp_path, monkeypatch):
    """Where the price is 5 % from the third length on; at the second it is so only at first sight."""
    prices = iter([0.0, 0.3, 0.04, 0.06, 0.05])
    monkeypatch.setattr(price, "price_of", lambda *_: next(prices))
    monkeypatch.setattr(trials, "place", lambda: tmp_path / "trials.json")
    weights = Weights(tiny_gguf("llama", "Q8_0"))
    for _ in range(2):
        assert price.cheap_length(weights, exact_settings(2), Settings(2)) == price._LENGTHS[1]


def test_a_price_is_the_lower_quartile_of_turns():
    ours, theirs = iter([9, *[2] * 11]), iter([9, *[1] * 9, 4, 4])
    assert price.price_of(lambda: next(ours), lambda: next(theirs)) == 1
    ours, theirs = iter([9, *[1] * 4, *[70] * 7]), iter([1] * 12)
    assert price.price_of(lambda: next(ours), lambda: next(theirs)) == 0, "in doubt it costs nothing"


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_a_filled_cache_is_timed_as_a_text_is(tiny_gguf, family):
    """Passes behind it see all of the copies."""
    weights = Weights(tiny_gguf(family, "Q8_0"))
    context = filled(weights, exact_settings(1), 512, READ)
    assert price.timer(context, weights)() > 0
    assert price.timer(context, weights)() > 0


def test_a_trial_at_the_start_is_not_repeated_for_a_text(tiny_gguf, monkeypatch):
    tried = []
    monkeypatch.setattr("draftwood.engines.llama_cpp.target.cheap_length", lambda *_: tried.append(1) or LIMIT)
    target = LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1)
    assert isinstance(target, TryingTarget)
    target.try_out()
    for text in (SHORT, LONG):
        open_one(target, text)
    assert tried == [1]
    LlamaTarget(tiny_gguf("llama", "Q8_0"), threads=1, exact=False).try_out()
    assert tried == [1]
