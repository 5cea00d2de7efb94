"""Lessons that wait: a session knows as much as if told step by step, in one call where that will do."""

import numpy as np
import pytest

from draftwood.contracts import Feedback
from draftwood.decoding.draft_source import DraftSource
from draftwood.drafters.load import load
from draftwood.tree import TokenTree

TEXT = [1, 2, 3, 4, 1, 2]
EMPTY = TokenTree.empty()


def lesson(token):
    return Feedback(EMPTY, EMPTY, np.empty(0, np.int32), (), (token,), np.array([token], np.int32))


@pytest.mark.parametrize(
    "name", ["ngram", "lookup", "ngram-mod", "ngram-map-k", "parrot", "ngram-cache", "jacobi"]
)
def test_tokens_that_waited_teach_what_single_lessons_teach(name):
    (drafter,) = load(name)
    waiting, told = DraftSource(drafter), drafter.open(TEXT, None)
    waiting.open(list(TEXT), None)
    for token in (3, 4, 1, 2, 3, 4, 1):
        waiting.learn_later([token])
        told.learn(lesson(token))
    waiting.catch_up()
    rates = np.asarray(drafter.prior, np.float32)
    ours, theirs = (session.draft(8, 0, rates) for session in (waiting.session, told))
    assert len(ours) or name in ("ngram-mod", "ngram-map-k"), "only these want longer repeats"
    for column in ("tokens", "parents", "belief", "evidence"):
        assert getattr(ours, column).tolist() == getattr(theirs, column).tolist()
