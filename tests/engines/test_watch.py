"""Who asks sees scores of text while it is read: those wanted, once, as a whole forward pass gives them."""

from functools import cache

import numpy as np
import pytest
import torch
from transformers import DynamicCache

from draftwood.contracts import Watch
from draftwood.engines.transformers.native.target import NativeTarget
from draftwood.engines.transformers.plugin.cache import ContinuedTarget
from draftwood.engines.transformers.target import TransformersTarget
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from tests.api.generating import CACHE
from tests.engines import tiny
from tests.engines.rounding import RECURRENT
from tests.engines.test_native import build as native_model

TOLERANCE = 15 * RECURRENT
"""Scores reach 15."""


class Seen:
    """Notes what it is shown."""

    def __init__(self, wanted=None):
        self.rows, self.calls = {}, 0
        self.watch = Watch(self.note, None if wanted is None else np.array(wanted, dtype=np.int64))

    def note(self, positions, scores):
        self.calls += 1
        ids, probabilities = scores.top_k(3)
        assert len(positions) == len(ids) > 0
        for row, place in enumerate(positions.tolist()):
            assert place not in self.rows, "each token comes once"
            raw = np.array(scores.numpy(scores.raw(row)))
            self.rows[place] = raw
            assert ids[row].tolist() == np.argsort(-raw, kind="stable")[:3].tolist()
            assert probabilities[row] == pytest.approx(
                np.exp(raw - raw.max())[ids[row]] / np.exp(raw - raw.max()).sum()
            )

    def check(self, own, text, where):
        assert list(self.rows) == list(where)
        truth = own(text)
        for place, raw in self.rows.items():
            assert np.abs(raw - truth[place]).max() < TOLERANCE, f"position {place} of {len(text)}"


def forward(model):
    def own(text):
        with torch.no_grad():
            return model(torch.tensor([list(text)]), use_cache=False).logits[0].numpy()

    return own


def toy():
    target = ToyTarget(vocab_size=64)
    own = lambda text: [target.scores_after(text[: end + 1]) for end in range(len(text))]  # noqa: E731
    return target, own


def arena(family, **settings):
    model = tiny.build(family)
    return TransformersTarget(model, **settings), forward(model)


def native(name, **settings):
    model = native_model(name)
    return NativeTarget(model, **settings), forward(model)


MAKE = {
    "toy": toy,
    "arena": lambda: arena("llama"),
    "arena in pieces": lambda: arena("llama", chunk=12),
    "arena not lean": lambda: arena("qwen2", lean=False, chunk=12),
    "arena with windows": lambda: arena("gemma3", chunk=12),
    "native chains": lambda: native("bloom", chunk=12),
    "native with states": lambda: native("lfm2"),
    "native with states, in pieces": lambda: native("mamba2", chunk=12),
    "native step by step": lambda: native("jamba", step_by_step=True),
}


KINDS = tuple(MAKE)
LATER = [kind for kind in KINDS if kind != "native step by step"]


@cache
def made(kind):
    """A target and its model's own scores."""
    return MAKE[kind]()


def some(n, seed=0):
    return np.random.default_rng(seed).integers(0, 64, n).tolist()


@pytest.mark.parametrize("wanted", [None, ([0, 11, 12, 13, 28], [], [16])], ids=["all", "some"])
@pytest.mark.parametrize("kind", KINDS)
def test_wanted_rows_of_every_prompt_are_shown(kind, wanted):
    target, own = made(kind)
    prompts = [some(30), some(1, 1), some(17, 2)]
    watches = [Seen(rows) for rows in wanted or [None] * 3]
    opened = target.open(prompts, watch=[seen.watch for seen in watches])
    shown = wanted or [range(len(prompt)) for prompt in prompts]
    for (session, scores), prompt, seen, rows in zip(opened, prompts, watches, shown, strict=True):
        seen.check(own, prompt, rows)
        assert np.abs(scores.numpy(scores.raw(0)) - own(prompt)[-1]).max() < TOLERANCE
        session.close()


@pytest.mark.parametrize("kind", LATER)
def test_what_is_read_later_is_shown_and_nothing_else(kind):
    target, own = made(kind)
    text = some(20)
    ((session, _),) = target.open([text])
    for step, count in enumerate((5, 1, 26)):
        more, seen = some(count, step), Seen()
        (scores,) = target.extend([(session, more)], [seen.watch])
        text = text + more
        seen.check(own, text, range(len(text) - count, len(text)))
        assert np.abs(scores.numpy(scores.raw(0)) - own(text)[-1]).max() < TOLERANCE
    # After a draft was rejected, and after a cut: what the cache still holds is not shown again.
    target.score([(session, 5, TokenTree.build([1, 2, 3]))])
    session.keep([0])
    text = [*text, 5, 1]
    seen = Seen()
    target.extend([(session, [7, 8])], [seen.watch])
    seen.check(own, [*text, 7, 8], range(len(text), len(text) + 2))
    session.truncate(9)
    assert session.length == 9
    text, known, seen = [*text[:9], 4, 4, 4], session.length, Seen()
    target.extend([(session, text[known:])], [seen.watch])
    seen.check(own, text, range(known, 12))
    session.close()


@pytest.mark.parametrize("kind", ["arena", "native with states"])
def test_a_long_text_of_which_little_is_wanted_comes_at_once(kind):
    target, own = made(kind)
    wanted = [*range(100), *range(200, 355), 398, 399]  # one more than fit a pass
    for rows, calls in ((wanted[:-1], 1), (wanted, 2), ([399], 1), (range(300), 2)):
        text, seen = some(400), Seen(rows)
        ((session, _),) = target.open([text], watch=[seen.watch])
        assert seen.calls == calls
        seen.check(own, text, rows)
        session.close()


def test_pieces_that_are_only_read_again_are_not_shown():
    target, own = made("native with states, in pieces")
    text = some(30)
    ((session, _),) = target.open([text])
    session.truncate(28)  # 12 tokens in a pass: two pieces and a part of the third are known
    seen = Seen()
    target.extend([(session, [4, 4])], [seen.watch])
    seen.check(own, [*text[:28], 4, 4], range(28, 30))
    assert seen.calls == 1


@pytest.mark.parametrize("kind", LATER)
def test_a_watch_that_raises_leaves_a_session_that_goes_on(kind):
    def interrupt(positions, scores):
        raise KeyboardInterrupt

    interrupted = Watch(interrupt)
    target, own = made(kind)
    with pytest.raises(KeyboardInterrupt):
        target.open([some(30), some(3)], watch=[interrupted] * 2)
    text = some(20)
    ((session, _),) = target.open([text])
    with pytest.raises(KeyboardInterrupt):
        target.extend([(session, some(15, 3))], [interrupted])
    session.truncate(20)
    (scores,) = target.extend([(session, [1, 2])])
    assert np.abs(scores.numpy(scores.raw(0)) - own([*text, 1, 2])[-1]).max() < TOLERANCE
    session.close()


def test_rows_of_a_given_cache_are_not_shown(monkeypatch):
    model = tiny.build("llama")
    target, own = TransformersTarget(model), forward(model)
    prompts = [some(20), some(20, 1)]
    cache = DynamicCache()
    with torch.no_grad():
        model(torch.tensor(prompts)[:, :12], **{CACHE: cache}, use_cache=True)
    watches = [Seen(), Seen()]
    resume, held = target.resume, []
    monkeypatch.setattr(
        target, "resume", lambda *a, **more: (held.append(target.lock.is_mine), resume(*a, **more))[1]
    )
    for session, _ in ContinuedTarget(target, cache, [0, 0]).open(prompts, watch=[seen.watch for seen in watches]):
        session.close()
    assert held == [True, True], "no other thread writes into the arena meanwhile"
    for prompt, seen in zip(prompts, watches, strict=True):
        seen.check(own, prompt, range(12, 20))


def test_the_scores_of_the_last_row_hold_no_others():
    model = tiny.build("llama")
    target = TransformersTarget(model)
    for session, scores in target.open([some(30), some(40)], watch=[Seen().watch, Seen().watch]):
        assert scores.raw(0).untyped_storage().size() == 64 * 4
        session.close()
