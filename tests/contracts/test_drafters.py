"""Every drafter of the list against the contract; and the check against drafters that break it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from tests.drafter_list import ANSWERING, SCORED, SHARING, SHIPPED, WELL_BEHAVED
from tests.helpers import GREEDY, PROMPT, SAMPLED
from tests.toys import DuplicatingDrafter, HugeDrafter, InvalidDrafter, ModelDrafter, RaisingDrafter, SameDrafter

from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.drafters.load import DRAFTERS
from draftwood.errors import IntegrityError
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget, check_drafter
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch

WHERE = ("open", "draft", "learn", "extend", "close")


@pytest.mark.parametrize("name", WELL_BEHAVED)
def test_a_drafter_keeps_the_contract(name):
    target = ToyTarget(order=2)
    (drafter,) = WELL_BEHAVED[name](target, GREEDY)
    check_drafter(drafter)
    check_drafter(drafter, prompt=[7])
    check_drafter(drafter, prompt=list(range(8)) * 3)


@pytest.mark.parametrize(
    "name", [name for name in WELL_BEHAVED if name not in ("same", "wrong", "probing", "model")]
)
def test_a_drafter_keeps_the_contract_on_another_vocabulary(name):
    """Toys that know their target have its vocabulary and no other."""
    for vocab_size in (4, 31):
        (drafter,) = WELL_BEHAVED[name](ToyTarget(vocab_size=vocab_size), GREEDY)
        check_drafter(drafter, vocab_size=vocab_size)


def test_a_drafter_with_a_cache_of_its_own_closes_it():
    model = ToyTarget()
    check_drafter(ModelDrafter(model))
    assert model.open_sessions == 0


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", [name for name in WELL_BEHAVED if name not in SCORED | SHARING | ANSWERING])
def test_a_text_learnt_step_by_step_is_drafted_as_one_read_at_once(name, sampling):
    """But for what scores, other requests or where the answer began taught: that is not in the text."""
    target = ToyTarget(order=2)
    (drafter,) = WELL_BEHAVED[name](target, sampling)
    with open_sequences(target, [drafter], [Request(PROMPT, 30, sampling)], SampleAndMatch()) as (row,):
        row.open_sources()
        for limit in (30, 20):
            for _ in decode_sequences(target, FixedPlanner(5), [row]):
                fresh = drafter.open(list(row.ids), row.rule.noise)
                row.sources[0].catch_up()
                if drafter.needs.target_session:
                    fresh.follow(row.session)
                trees = [s.draft(7, 3, drafter.prior) for s in (row.sources[0].session, fresh)]
                fresh.close()
                for column in ("tokens", "parents", "belief", "evidence", "lookahead"):
                    assert getattr(trees[0], column).tolist() == getattr(trees[1], column).tolist()
            row.turn(Request([*row.ids[:20], 3, 3], limit, sampling))


# --- where an answer begins ----------------------------------------------------------------------------------


class _Heard(TextSession):
    """Notes what it is told."""

    def __init__(self, prompt):
        self.heard = []
        super().__init__(prompt)

    def extend(self, ids):
        self.heard.append(("extend", len(ids)))
        super().extend(ids)

    def begin_answer(self, ids):
        self.heard.append(("begin_answer", len(ids)))
        super().extend(ids)

    def learn(self, feedback):
        self.heard.append(("learn", len(feedback.emitted)))
        super().extend(feedback.emitted)

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.empty()


@pytest.mark.parametrize("turn", [0, 1, 2, 5])
def test_every_answer_is_announced_however_long_the_turn_before_it(turn):
    drafter, target = broken(session=_Heard), ToyTarget()
    with open_sequences(target, [drafter], [Request([7], 3)], SampleAndMatch()) as (row,):
        row.open_sources()
        told = row.sources[0].session
        for _ in decode_sequences(target, FixedPlanner(2), [row]):
            pass
        row.sources[0].catch_up()
        answer = [("begin_answer", 1), ("learn", 1), ("learn", 1)]
        assert told.heard == [("extend", 1), *answer]
        row.turn(Request([*row.ids, *[3] * turn], 3))
        for _ in decode_sequences(target, FixedPlanner(2), [row]):
            pass
        row.sources[0].catch_up()
        assert row.sources[0].session is told, "it did not fail"
        assert told.heard[4:] == [("extend", turn), *answer]


@pytest.mark.parametrize("turn", [[], [3], [3, 3]])
@pytest.mark.parametrize("name", sorted(ANSWERING | {"jacobi"}))
def test_a_session_that_was_told_of_a_turn_drafts_as_a_new_one(name, turn):
    (drafter,) = WELL_BEHAVED[name](ToyTarget(), GREEDY)
    told = drafter.open(PROMPT, None)
    told.begin_answer([1])
    told.extend([2, *turn])
    told.begin_answer([4])
    fresh = drafter.open([*PROMPT, 1, 2, *turn], None)
    fresh.begin_answer([4])
    trees = [session.draft(7, 0, drafter.prior) for session in (told, fresh)]
    for column in ("tokens", "parents", "belief", "evidence"):
        assert getattr(trees[0], column).tolist() == getattr(trees[1], column).tolist()


# --- the list is complete ------------------------------------------------------------------------------------


def test_the_list_has_every_drafter_that_is_shipped():
    assert set(SHIPPED) == set(DRAFTERS)


# --- the check notices ---------------------------------------------------------------------------------------


class _Session(TextSession):
    """Proposes the last token again, once."""

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.build(self.text[-1:].copy() if nodes else [])


@dataclass(frozen=True)
class _Drafter(BaseDrafter):
    session: ClassVar[type] = _Session
    name: ClassVar[str] = "for-tests"

    def open(self, prompt, noise):
        return self.session(prompt)


def broken(**members):
    """A drafter as above with another ``session``, or with other members, those of its session included."""
    session = members.pop("session", None) or type(
        "_Broken", (_Session,), {k: v for k, v in members.items() if callable(v)}
    )
    others = {k: v for k, v in members.items() if not callable(v)}
    return type("_BrokenDrafter", (_Drafter,), {"session": session, **others})()


def test_the_drafter_that_the_broken_ones_differ_from_is_sound():
    check_drafter(broken())


READ_BY_ALL = [0]


def reads_for_all(self, ids):
    READ_BY_ALL[:] = [*READ_BY_ALL, *ids][-1:]
    TextSession.extend(self, ids)


def drafts_what_all_read(self, nodes, lookahead_nodes, accept_rates):
    return TokenTree.build(READ_BY_ALL[: min(1, nodes)])


def forgets_to_cut(self, length):
    pass


def changes_its_mind(self, nodes, lookahead_nodes, accept_rates):
    self.count = getattr(self, "count", 0) + 1
    return TokenTree.build([self.count % 8] * min(1, nodes))


def evidence_of_no_class(self, nodes, lookahead_nodes, accept_rates):
    return TokenTree.build([0] * min(1, nodes), evidence=3)


def raises_when_it_learns(self, feedback):
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"name": ""}, "name is not empty"),
        ({"name": None}, "has a name"),
        ({"prior": np.array([0.5])}, "prior is float32"),
        ({"prior": np.array([[0.5]], dtype=np.float32)}, "prior is one-dimensional"),
        ({"prior": np.array([1.5], dtype=np.float32)}, "priors are probabilities"),
        ({"draft": evidence_of_no_class}, "evidence indexes the prior"),
        ({"draft": changes_its_mind}, "drafting twice without news proposes the same"),
        ({"extend": reads_for_all, "draft": drafts_what_all_read}, "what a session reads does not reach others"),
        ({"truncate": forgets_to_cut}, r"after truncate\(\) a session proposes as before"),
        ({"learn": raises_when_it_learns}, "the drafter raised or broke the contract"),
    ],
)
def test_the_check_names_what_is_broken(members, sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_drafter(broken(**members))


@pytest.mark.parametrize("drafter", [HugeDrafter(), DuplicatingDrafter()])
def test_the_check_refuses_who_proposes_more_than_asked(drafter):
    with pytest.raises(AssertionError, match=r"asked for \d+ nodes, proposed \d+"):
        check_drafter(drafter)


@pytest.mark.parametrize("where", WHERE)
def test_the_check_refuses_who_raises(where):
    with pytest.raises((AssertionError, RuntimeError)):
        check_drafter(RaisingDrafter(where))


@pytest.mark.parametrize("kind", ["ids", "negative", "parents", "belief", "type"])
def test_the_check_refuses_what_is_invalid(kind):
    with pytest.raises((IntegrityError, AttributeError)):
        check_drafter(InvalidDrafter(kind))


def test_a_drafter_for_another_vocabulary_is_noticed():
    with pytest.raises(IntegrityError, match="token ids must lie"):
        check_drafter(SameDrafter(ToyTarget(vocab_size=64)), vocab_size=8)
