"""Drafters that are asked once for all texts; failures stay where they belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from draftwood.contracts import Ask, Needs
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.propose import draft_all
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.step import SourceStep, Step
from draftwood.testing import ToyTarget, check_drafter
from draftwood.tree import TokenTree


class Text:
    """As much of an `ActiveSequence` as drafting reads."""

    def __init__(self, drafters, text):
        self.sources = [DraftSource(drafter) for drafter in drafters]
        for source in self.sources:
            source.open(list(text), None)
        self.capabilities = ToyTarget().capabilities
        self.step = Step(0, len(text))

    def begin_step(self):
        for source in self.sources:
            source.step = SourceStep()


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
