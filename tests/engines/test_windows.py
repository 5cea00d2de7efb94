"""Windowed attention at its edges: prompts as long as the window, cuts to any length, interrupts in a shift."""

from __future__ import annotations

import numpy as np
import pytest

from draftwood.engines.transformers.target import TransformersTarget
from draftwood.tree import TokenTree
from tests.engines.rounding import TOLERANCE
from tests.engines.test_target import truth
from tests.engines.tiny import build, scores_of_texts

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
def test_cuts_to_every_length(family, lean):
    """Whether the buffers still hold all that the next token sees is off by one token or it is not."""
    model, rng = build(family), np.random.default_rng(5)
    target = TransformersTarget(model, chunk=12, lean=lean)
    text = rng.integers(0, 64, 60).tolist()
    for steps in range(0, 20, 3):
        ((session, _),) = target.open([text])
        for root in text[:steps]:  # so that the buffers have been shifted by another number of rows
            target.score([(session, root, TokenTree.empty())])
            session.keep([])
        ids = session.ids
        lengths = range(len(ids) - 1, len(ids) - 3 * WINDOW, -1)
        own = scores_of_texts(model, [[*ids[:length], 3] for length in lengths])
        for length, rows in zip(lengths, own, strict=True):
            twin = session.fork()
            twin.truncate(length)
            assert twin.length in (0, length)
            if twin.length < length:
                target.extend([(twin, ids[:length])])
            (scores,) = target.score([(twin, 3, TokenTree.empty())])
            assert np.abs(scores.numpy(scores.raw(0)) - rows[length]).max() < TOLERANCE
            twin.close()
        session.close()


def test_an_interrupt_while_rows_move_leaves_no_half_shifted_text(monkeypatch):
    """Seven of ten rows move to the front, over some of themselves: that must not be done twice."""
    model = build("gemma3")
    target = TransformersTarget(model, chunk=12)
    text = np.random.default_rng(6).integers(0, 64, 10).tolist()
    ((session, _),) = target.open([text])
    move = target.arena.move_rows

    def interrupted(slot, window, start, rows):
        move(slot, window, start, rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(target.arena, "move_rows", interrupted)
    wide = TokenTree.build(list(range(11)))
    with pytest.raises(KeyboardInterrupt):
        target.score([(session, 5, wide)])
    monkeypatch.undo()
    assert session.ids == text[: session.length], "what it says that it holds it holds"
    if session.length < len(text):
        target.extend([(session, text[session.length :])])
    (scores,) = target.score([(session, 5, wide)])
    assert_true(model, scores, 0, [*text, 5])
    assert_true(model, scores, 11, [*text, 5, *range(11)])
