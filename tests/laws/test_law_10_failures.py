"""Law 10. A drafter that raises, is slow, or proposes invalid ids costs speed, never text."""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.helpers import GREEDY, PROMPT, SAMPLED, TARGETS, greedy_truth, sampled_truth, write
from tests.toys import InvalidDrafter, LyingDrafter, RaisingDrafter, RandomDrafter, SameDrafter, SlowDrafter

from draftwood.contracts import Needs
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.drafters.load import load
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.load import load as load_planner
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch

CHAIN = TokenTree.build([0, 0])


def changed(**columns: Any) -> TokenTree:
    """A proper chain with some of its columns replaced."""
    return dataclasses.replace(CHAIN, **columns)


PROPOSALS: dict[str, Any] = {
    "token ids too large": TokenTree.build([8]),
    "negative token ids": TokenTree.build([-1]),
    "no tree": None,
    "a list": [1, 2, 3],
    "a child before its parent": TokenTree.build([0, 0], [1, -1]),
    "its own parent": TokenTree.build([0], [0]),
    "a parent below the root": TokenTree.build([0], [-2]),
    "a cycle": TokenTree.build([0, 0], [1, 0]),
    "belief above one": TokenTree.build([0], belief=1.5),
    "negative belief": TokenTree.build([0], belief=-0.5),
    "belief is no number": TokenTree.build([0], belief=float("nan")),
    "a draft below a lookahead node": TokenTree.build([0, 0], lookahead=[True, False]),
    "tokens of another type": changed(tokens=np.zeros(2, dtype=np.int64)),
    "columns of other lengths": changed(belief=np.ones(3, dtype=np.float32)),
    "a column as a list": changed(parents=[-1, 0]),
    "a column is missing": changed(source=None),
}


@dataclass(frozen=True)
class Proposing(BaseDrafter):
    """Proposes what one of `PROPOSALS` says."""

    what: str
    name: ClassVar[str] = "proposing"

    def open(self, prompt, noise):
        return _ProposingSession(prompt, PROPOSALS[self.what])


class _ProposingSession(TextSession):
    def __init__(self, prompt, proposal):
        super().__init__(prompt)
        self._proposal = proposal

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return self._proposal


@dataclass(frozen=True)
class FailsLater(SameDrafter):
    """Right until its text has ``at`` tokens, then raises."""

    at: int = 12
    name: ClassVar[str] = "fails-later"

    def propose(self, text, nodes, noise):
        if len(text) >= self.at:
            raise OSError("the index is gone")
        return super().propose(text, nodes, noise)


class _Rotten:
    """A session of which nothing works, not even reading its attributes."""

    def __getattribute__(self, name):
        raise RuntimeError(f"nothing works here, {name} neither")


@dataclass(frozen=True)
class RottenDrafter(BaseDrafter):
    """Opens, and that is all it can do."""

    name: ClassVar[str] = "rotten"

    def open(self, prompt, noise):
        return _Rotten()


class _WithoutMatchLength(TextSession):
    def __getattribute__(self, name):
        if name == "match_length":
            raise AttributeError("this session of an older plug-in has no match_length")
        return super().__getattribute__(name)

    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.build([0] * nodes)


@dataclass(frozen=True)
class OldDrafter(BaseDrafter):
    """Fulfils all of the contract but its newest attribute."""

    name: ClassVar[str] = "old"

    def open(self, prompt, noise):
        return _WithoutMatchLength(prompt)


FAILING = {
    **{f"raises in {where}": RaisingDrafter(where) for where in ("open", "draft", "learn", "extend")},
    **{f"invalid {kind}": InvalidDrafter(kind) for kind in ("ids", "negative", "parents", "belief", "type")},
    **{f"proposes {what}": Proposing(what) for what in PROPOSALS},
    "rotten": RottenDrafter(),
    "old": OldDrafter(),
}


FAILING_AND_TARGETS = [
    *((failing, "trees") for failing in FAILING),
    *((f"raises in {where}", v) for where in ("draft", "learn") for v in TARGETS if v != "trees"),
]
"""Who is off proposes nothing to any target, so every way to fail needs one of them."""


@pytest.mark.parametrize(("failing", "variant"), FAILING_AND_TARGETS)
def test_the_text_is_unchanged_the_failure_reported_once_and_the_drafter_not_asked_again(failing, variant, caplog):
    target, drafter = ToyTarget(**TARGETS[variant]), FAILING[failing]
    written = write(target, [drafter])
    assert written.ids == greedy_truth(target)
    first, *later = [step.by_source[0] for step in written.steps]
    assert first.failed
    for own in later:
        assert (own.failed, own.calls, own.asked, own.proposed, own.kept, own.accepted) == (False, 0, 0, 0, 0, 0)
    (record,) = caplog.records
    assert record.name == "draftwood"
    assert record.levelno == logging.WARNING
    assert f"drafter {drafter.name!r} failed in" in record.getMessage()
    assert "off for this request" in record.getMessage()


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("failing", FAILING)
def test_other_drafters_go_on_when_one_fails(failing, order):
    target = ToyTarget()
    made = [FAILING[failing], SameDrafter(target)][::order]
    same = made.index(SameDrafter(target))
    written = write(target, made, 4)
    assert written.ids == greedy_truth(target)
    assert sum(step.by_source[same].accepted for step in written.steps) >= 16
    assert len(written.steps) <= 6
    assert not any(step.by_source[same].failed for step in written.steps)


@pytest.mark.parametrize("failing", FAILING)
def test_a_batch_fails_row_by_row(failing):
    target = ToyTarget()
    requests = [Request(PROMPT, 9), Request((1,), 9, SAMPLED)]
    with open_sequences(target, [FAILING[failing]], requests, SampleAndMatch()) as rows:
        list(decode_sequences(target, FixedPlanner(3), rows))
        assert rows[0].ids[len(PROMPT) :] == greedy_truth(target, limit=9)
        assert rows[1].ids[1:] == sampled_truth(target, SAMPLED, (1,), 9)


def test_failing_in_mid_text():
    target = ToyTarget()
    written = write(target, [FailsLater(target)], 2)
    assert written.ids == greedy_truth(target)
    failed = [step.by_source[0].failed for step in written.steps]
    assert failed.count(True) == 1
    assert failed.index(True) == 2
    assert [step.by_source[0].accepted for step in written.steps[:3]] == [2, 2, 0]


class _CannotCut(TextSession):
    def draft(self, nodes, lookahead_nodes, accept_rates):
        return TokenTree.build([0] * nodes)

    def truncate(self, length):
        raise NotImplementedError("this session only grows")


@dataclass(frozen=True)
class GrowingDrafter(BaseDrafter):
    """Cannot take text back, as a chat would need."""

    name: ClassVar[str] = "growing"

    def open(self, prompt, noise):
        return _CannotCut(prompt)


def test_failing_between_two_turns(caplog):
    target = ToyTarget()
    drafters = [GrowingDrafter(), SameDrafter(target)]
    with open_sequences(target, drafters, [Request(PROMPT, 9)], SampleAndMatch()) as (row,):
        list(decode_sequences(target, FixedPlanner(4), [row]))
        prompt = [*row.ids[:8], 5]
        row.turn(Request(prompt, 9))
        emissions = list(decode_sequences(target, FixedPlanner(4), [row]))
    assert [t for e in emissions for t in e.tokens] == greedy_truth(target, prompt, 9)
    assert [e.step.by_source[0].failed for e in emissions[1:]].count(True) == 1
    (record,) = caplog.records
    assert "failed in truncate()" in record.getMessage()


def test_failing_when_closed_is_reported_and_every_session_is_closed(caplog):
    target = ToyTarget()
    written = write(target, [RaisingDrafter("close"), SameDrafter(target)])
    assert written.ids == greedy_truth(target)
    (record,) = caplog.records
    assert "failed in close()" in record.getMessage()


def test_the_traceback_is_there_for_who_asks(caplog):
    target = ToyTarget()
    write(target, [RaisingDrafter()])
    assert not caplog.records[0].exc_info
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "draftwood"):
        write(target, [RaisingDrafter()])
    assert caplog.records[0].exc_info


def test_slow_and_lying_drafters_are_no_failures(caplog):
    target = ToyTarget()
    for drafter in (SlowDrafter(seconds=1e-4), LyingDrafter()):
        written = write(target, [drafter])
        assert written.ids == greedy_truth(target)
        assert not any(step.by_source[0].failed for step in written.steps)
        assert all(step.by_source[0].draft_s > 0 for step in written.steps if step.by_source[0].calls)
    assert not caplog.records


def test_a_source_number_that_is_not_its_own_is_corrected():
    """Credit goes by the place in the set, whatever number a drafter writes into its tree."""

    class Impostor(SameDrafter):
        def propose(self, text, nodes, noise):
            return super().propose(text, nodes, noise).credited_to(41)

    target = ToyTarget()
    for drafters in ([Impostor(target)], [RaisingDrafter(), Impostor(target)]):
        written = write(target, drafters, 4)
        assert written.ids == greedy_truth(target)
        assert set(written.sources) == {-1, len(drafters) - 1}


class Fickle(RandomDrafter):
    """Declares what it should a few times, then raises."""

    name = "fickle"

    def __init__(self, what, times=0):
        super().__init__(8)
        object.__setattr__(self, "what", what)
        object.__setattr__(self, "times", times)

    def __getattribute__(self, name):
        if name == object.__getattribute__(self, "__dict__").get("what"):
            left = object.__getattribute__(self, "times")
            object.__setattr__(self, "times", left - 1)
            if left <= 0:
                raise ZeroDivisionError("mine")
        return super().__getattribute__(name)

    def __repr__(self):
        return self.represented

    represented = "Fickle()"


@pytest.mark.parametrize("times", [0, 1, 2, 5])
@pytest.mark.parametrize("what", ["name", "prior", "needs", "represented", "open"])
@pytest.mark.parametrize("planner", ["goodput", "fixed:4+backoff", "goodput+switching"])
def test_a_drafter_whose_declarations_raise_sooner_or_later_changes_no_text(what, times, planner, caplog):
    target = ToyTarget(order=2)
    for drafters in ([Fickle(what, times)], [SameDrafter(target), Fickle(what, times), *load("ngram+recycling")]):
        for _ in range(3):
            made = load_planner(planner)
            written = write(target, drafters, made, limit=20)
            assert written.ids == greedy_truth(target, limit=20)
    assert all("is off for this request" in record.getMessage() for record in caplog.records)


class Vandal(RandomDrafter):
    """Writes into its prompt, every array that reaches it and arrays that it has given away; keeps count."""

    name = "vandal"
    needs = Needs(top_k=2, prompt=True, choice=True, base_tree=True)

    def open(self, prompt, noise):
        session = super().open(prompt, noise)
        prompt += [0, 0, 0]
        given, self.__dict__["refused"], self.__dict__["written"] = [], 0, 0

        def scribble(array):
            try:
                array[...] = 10**6 if array.dtype != bool else True
                self.__dict__["written"] += bool(array.size)
            except ValueError:
                self.__dict__["refused"] += 1

        def columns(tree):
            return [
                getattr(tree, name) for name in ("tokens", "parents", "belief", "evidence", "lookahead", "source")
            ]

        def branch(base_tree, nodes, lookahead_nodes, accept_rates):
            for array in (accept_rates, *columns(base_tree)):
                scribble(array)
            base = np.array([1, 2, 3], dtype=np.int32), np.array([-1, 0, 0], dtype=np.int32)
            given[:] = base
            return TokenTree.build(base[0][:], base[1][:])

        def learn(feedback):
            trees = (*columns(feedback.tree), *columns(feedback.proposal))
            for array in (*trees, feedback.node_map, feedback.choice, *(feedback.top_k or ())):
                scribble(array)
            for array in given:  # what it still holds of a tree that was scored
                array[...] = 10**6

        session.branch, session.learn = branch, learn
        session.observe = lambda _first, ids, probabilities: [scribble(ids), scribble(probabilities)]
        return session


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_arrays_that_reach_a_drafter_are_read_only(sampling):
    target, vandal = ToyTarget(order=2), Vandal(8)
    sets = [
        "recycling",
        "ngram+recycling:keep=true",
        "lookahead:window=3:ngram=3:vocabulary=3+jacobi+logits-extend",
    ]
    for others in (load(spec) for spec in sets):
        for drafters in ([vandal, *others], [*others, vandal]):
            written = write(target, drafters, 8, sampling=sampling, limit=30)
            assert written.ids == sampled_truth(target, sampling, limit=30)
            assert written.steps[0].context == len(PROMPT) + 1
            assert vandal.refused > 20
            assert vandal.written == 0
            for step in written.steps:
                failed = [own.failed for own in step.by_source]
                assert not any(failed)


class Hurried(RandomDrafter):
    """Proposes from one buffer, and goes on writing into it while the target scores: as a worker thread might."""

    name = "hurried"

    def open(self, prompt, noise):
        session, buffer = super().open(prompt, noise), np.zeros(4, dtype=np.int32)
        draft = session.draft

        def draft_from_it(nodes, lookahead_nodes, accept_rates):
            tree = draft(nodes, lookahead_nodes, accept_rates)
            buffer[:] = np.resize(tree.tokens, 4)
            return TokenTree.build(buffer)

        session.draft = draft_from_it
        self.__dict__["buffer"] = buffer
        return session


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_what_a_drafter_writes_into_its_proposal_later_changes_no_text(sampling):
    target, hurried = ToyTarget(order=2), Hurried(8)

    def meanwhile(_ids, row):
        if "buffer" in vars(hurried):  # it is opened after the first token
            hurried.buffer[:] = int(row.argmax())
        return row

    written = write(target, [hurried], 8, sampling=sampling, processors=[meanwhile])
    assert written.ids == sampled_truth(target, sampling)
    assert not any(own.failed for step in written.steps for own in step.by_source)


class Burglar(RandomDrafter):
    """Makes what is read-only writable again, where numpy lets it, and fills it with what is no token."""

    name = "burglar"
    needs = Needs(base_tree=True)

    def open(self, prompt, noise):
        session = super().open(prompt, noise)

        def break_in(tree):
            for name in ("tokens", "parents", "source"):
                array = getattr(tree, name)
                array.flags.writeable = True
                array[...] = 99

        def branch(base_tree, nodes, lookahead_nodes, accept_rates):
            break_in(base_tree)
            return TokenTree.build([1, 2])

        session.branch = branch
        session.learn = lambda feedback: [break_in(feedback.tree), break_in(feedback.proposal)]
        return session


@pytest.mark.parametrize("others", ["ngram", "ngram+lookup"])
def test_a_drafter_that_breaks_into_what_is_read_only_changes_no_text(others):
    target = ToyTarget(order=2)
    for drafters in ([Burglar(8), *load(others)], [*load(others), Burglar(8)]):
        written = write(target, drafters, 8)
        assert written.ids == greedy_truth(target)
        innocent = [i for i, drafter in enumerate(drafters) if not isinstance(drafter, Burglar)]
        assert not any(step.by_source[i].failed for step in written.steps for i in innocent)
