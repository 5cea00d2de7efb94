"""Drafters that are asked once for all texts: the same trees as one by one; failures stay where they belong."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.helpers import untimed, write_batch

from draftwood.contracts import Ask, Needs
from draftwood.decoding.draft_many import FEW, draft_all
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.propose import propose
from draftwood.decoding.request import Request
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.drafters.load import load
from draftwood.drafters.ngram.drafter import NgramDrafter, NgramSession
from draftwood.step import SourceStep, Step
from draftwood.testing import ToyTarget, check_drafter
from draftwood.tree import TokenTree

MANY = [
    "ngram",
    "ngram:length=3:frequent=2",
]
COLUMNS = "tokens", "parents", "belief", "source", "evidence", "draft_prob", "lookahead", "path_belief"


def a_text(rng, longest=400):
    text: list[int] = []
    while len(text) < rng.randrange(longest):
        begin = rng.randrange(len(text)) if text else 0
        text += text[begin : begin + rng.randrange(30)] + [rng.randrange(60) for _ in range(rng.randrange(8))]
    return text


def assert_equal(ours, theirs):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name), err_msg=name)
    assert ours.is_chain == theirs.is_chain
    ours.check_integrity(60)
    assert not any(column.flags.writeable for column in ours.columns)


def sessions_of(drafter, rng, rows):
    return [drafter.open(a_text(rng), None) for _ in range(rows)]


def changed(session, rng):
    """What may happen to a session between two drafts."""
    what = rng.randrange(6)
    if what == 0:
        session.truncate(rng.randrange(200))
    elif what == 1:
        return session.fork()
    elif what == 2:
        session.extend([rng.randrange(60) for _ in range(rng.randrange(3000))])  # its arrays move
    elif what < 5:
        session.extend(tuple(a_text(rng, 12)))
    return session


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("seed", range(4))
def test_trees_are_those_of_single_drafts(name, seed):
    rng = random.Random(seed)
    (drafter,) = load(name)
    rates = np.asarray(drafter.prior)
    sessions = [*sessions_of(drafter, rng, 9), drafter.open([], None), drafter.open([5], None)]
    for _ in range(12):
        sessions = [changed(session, rng) for session in sessions]
        twins = [session.fork() for session in sessions]
        for kind in range(2):
            nodes = [rng.choice((0, 1, 2, 7, 16, 40, 300)) for _ in sessions] if kind else [16] * len(sessions)
            trees = drafter.draft_many(sessions, nodes, [0] * len(nodes), rates)
            assert len(trees) == len(sessions)
            for session, twin, tree, most in zip(sessions, twins, trees, nodes, strict=True):
                assert_equal(tree, twin.draft(most, 0, rates))
                assert session.match_length == twin.match_length


def test_one_of_a_batch_that_was_closed_or_is_somebody_elses_drafts_alone():
    class Own(NgramSession):
        def draft(self, nodes, lookahead_nodes, accept_rates):
            return TokenTree.build([9])

    drafter = NgramDrafter()
    sessions = [drafter.open([1, 2, 3, 1, 2], None) for _ in range(3)]
    sessions[0].close()
    own = Own(drafter, sessions[1]._index, sessions[1]._cursor)
    trees = drafter.draft_many([*sessions, own], [4] * 4, [0] * 4, drafter.prior)
    assert [tree.tokens.tolist()[:1] for tree in trees] == [[], [3], [3], [9]]
    assert drafter.draft_many([own], [4], [0], drafter.prior)[0].tokens.tolist() == [9]


def test_trees_of_one_call_outlive_it_and_their_sessions():
    drafter = NgramDrafter()
    sessions = [drafter.open([*range(i, i + 50), *range(i, i + 20)], None) for i in range(8)]
    trees = drafter.draft_many(sessions, [8] * 8, [0] * 8, drafter.prior)
    for session in sessions:
        session.close()
    del sessions
    assert [tree.tokens.tolist() for tree in trees] == [list(range(i + 20, i + 28)) for i in range(8)]
    with pytest.raises(ValueError, match="cannot set WRITEABLE"):
        trees[0].tokens.flags.writeable = True


def test_arrays_that_a_kernel_may_not_write_to_are_not_named_by_address():
    from draftwood.index.addresses import ArrayRow

    row, array = ArrayRow(), np.arange(4)
    assert row.at(array) == row.at(array)
    array.flags.writeable = False
    with pytest.raises(ValueError, match="contiguous, aligned and writable"):
        row.at(array, array)


class Text:
    """As much of an `ActiveSequence` as drafting reads."""

    def __init__(self, drafters, text):
        self.sources = [DraftSource(drafter) for drafter in drafters]
        seats = [None] * len(self.sources)
        for number, source in enumerate(self.sources):
            source.take_seat(number, seats)
            source.open(list(text), None)
        self.capabilities = ToyTarget().capabilities
        self.step = Step(0, len(text))

    def begin_step(self):
        for source in self.sources:
            source.step = SourceStep()

    def draft(self, asks):
        self.begin_step()
        return propose(self.sources, asks, self.capabilities.vocab_size)


class OneSession(TextSession):
    match_length = 3

    def draft(self, nodes, lookahead_nodes, accept_rates):
        if not len(self.text) or not nodes:
            return TokenTree.empty()
        if self.text[0] == 7:
            raise RuntimeError("this text is at fault")
        return TokenTree.build([int(self.text[0])])


@dataclass(frozen=True, eq=False)
class Together(BaseDrafter):
    """Proposes each text's first token; counts who is asked."""

    name: ClassVar[str] = "together"
    batches: ClassVar[bool] = True
    answer: Any = None
    lookahead_nodes: int = 0

    @property
    def needs(self):
        return Needs(lookahead_nodes=self.lookahead_nodes)

    def open(self, prompt, noise):
        return OneSession(prompt)

    def draft_many(self, sessions, nodes, lookahead_nodes, accept_rates, base_trees=None):
        return self.answer([int(session.text[0]) if len(session.text) else -1 for session in sessions])


def asks_of(texts, nodes=4):
    return [[Ask(nodes, 0, source.declared.prior) for source in text.sources] for text in texts]


def drafted(drafter, firsts, times=1):
    texts = [Text([drafter], [first, 1, 2]) for first in firsts]
    for _ in range(times):
        for text in texts:
            text.begin_step()
        proposals = draft_all(texts, asks_of(texts))
    return texts, [trees[0].tokens.tolist() for trees in proposals]


def test_a_drafter_is_asked_once_and_the_record_is_complete():
    calls = []
    drafter = Together(lambda firsts: calls.append(firsts) or [TokenTree.build([first, 0]) for first in firsts])
    texts, tokens = drafted(drafter, range(6))
    assert calls == [[0, 1, 2, 3, 4, 5]]
    assert tokens == [[first, 0] for first in range(6)]
    steps = [text.sources[0].step for text in texts]
    assert {(step.calls, step.asked, step.proposed, step.match_length) for step in steps} == {(1, 4, 2, 3)}
    assert len({step.draft_s for step in steps}) == 1, "all share the call's time"
    assert 0 < sum(step.draft_s for step in steps) <= sum(text.step.draft_s for text in texts)


def test_a_drafter_that_proposes_other_trees_together_is_told():
    check_drafter(Together(lambda firsts: [TokenTree.build([token] if token >= 0 else []) for token in firsts]))
    with pytest.raises(AssertionError, match="one tree per session"):
        check_drafter(Together(lambda _: []))
    with pytest.raises(AssertionError, match="what its draft"):
        check_drafter(Together(lambda firsts: [TokenTree.build([5]) for _ in firsts]))


def test_few_texts_are_asked_one_by_one():
    calls = []
    _, tokens = drafted(Together(calls.append), range(FEW))
    assert not calls
    assert tokens == [[first] for first in range(FEW)]


def test_a_tree_against_the_contract_disables_the_request_at_fault(caplog):
    wrong = {2: TokenTree.build([99]), 3: None, 4: TokenTree.build([1], evidence=5), 5: TokenTree.build([1], [3])}
    drafter = Together(lambda firsts: [wrong.get(first, TokenTree.build([first])) for first in firsts])
    texts, tokens = drafted(drafter, range(8))
    assert tokens == [[0], [1], [], [], [], [], [6], [7]]
    assert [text.sources[0].session is None for text in texts] == [2 <= i < 6 for i in range(8)]
    assert [text.sources[0].step.failed for text in texts] == [2 <= i < 6 for i in range(8)]
    assert "failed in draft_many() and is off for this request" in caplog.text


@pytest.mark.parametrize("answer", [lambda _: 1 / 0, lambda _: [], lambda _: None])
def test_where_the_call_fails_all_are_asked_one_by_one(answer, caplog):
    calls = []

    def counted(firsts):
        calls.append(firsts)
        return answer(firsts)

    texts, tokens = drafted(Together(counted), [1, 2, 7, 4, 5, 6], times=3)
    assert len(calls) == 1, "it is not tried again"
    assert tokens == [[1], [2], [], [4], [5], [6]]
    assert [text.sources[0].session is None for text in texts] == [False, False, True, False, False, False]
    assert caplog.text.count("is asked one by one") == 1


def test_a_text_in_which_nothing_is_asked_is_left_out():
    calls = []
    drafter = Together(lambda firsts: calls.append(firsts) or [TokenTree.build([first]) for first in firsts])
    texts = [Text([drafter], [first]) for first in range(6)]
    asks = asks_of(texts)
    asks[2], texts[4].sources[0].session = [Ask(0, 0, asks[2][0].accept_rates)], None
    trees = draft_all(texts, asks)
    assert calls == [[0, 1, 3, 5]]
    assert [len(some[0]) for some in trees] == [1, 1, 0, 1, 0, 1]
    assert [text.sources[0].step.calls for text in texts] == [1, 1, 0, 1, 0, 1]


@pytest.mark.parametrize("name", [*MANY, "copy-and-recycle", "ngram+suffix", "ngram+lookup"])
def test_all_sources_together_propose_what_they_propose_one_by_one(name):
    rng = random.Random(3)
    for _ in range(5):
        given = [[token % 8 for token in a_text(rng)] or [1] for _ in range(7)]
        drafters = load(name)
        ours, theirs = ([Text(drafters, text) for text in given] for _ in range(2))
        together = draft_all(ours, asks_of(ours, 16))
        alone = [text.draft(asks) for text, asks in zip(theirs, asks_of(theirs, 16), strict=True)]
        for one, other in zip(together, alone, strict=True):
            for tree, twin in zip(one, other, strict=True):
                assert_equal(tree, twin)


@pytest.mark.parametrize("name", ["ngram", "copy-and-recycle"])
def test_texts_and_records_are_what_they_are_one_by_one(name, monkeypatch):
    target, drafters = ToyTarget(), load(name)
    requests = [Request([i % 8, 1, 2, 3, i % 5, 1, 2], 30) for i in range(FEW + 3)]
    together = write_batch(target, drafters, requests)
    monkeypatch.setattr("draftwood.decoding.draft_many.FEW", 100)
    alone = write_batch(target, load(name), requests)
    for request, one, other in zip(requests, together, alone, strict=True):
        assert one.ids == other.ids == write_batch(target, (), [request])[0].ids
        assert [untimed(step) for step in one.steps] == [untimed(step) for step in other.steps]
        assert all(step.draft_s > 0 for step in one.steps)
