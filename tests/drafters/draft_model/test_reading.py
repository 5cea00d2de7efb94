"""A draft model reads each token once, whatever is accepted, and sees the text that the target sees."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import GREEDY, PROMPT, SAMPLED, write

from draftwood.api.draft_models import DraftModels
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.draft_model.drafter import DraftModelDrafter, DraftTarget
from draftwood.drafters.load import load
from draftwood.errors import CapabilityError
from draftwood.testing import ToyTarget


class Counting(ToyTarget):
    """Notes, for each token that it reads, the whole text up to it."""

    def __post_init__(self):
        super().__post_init__()
        self.heard = []

    def _read(self, session, ids, watch):
        before = session.contents[0]
        self.heard += [(*before, *ids[: i + 1]) for i in range(len(ids))]
        return super()._read(session, ids, watch)

    def _grow(self, session, tokens, parents):
        before, first = session.contents[0], len(session._lines)
        scores = super()._grow(session, tokens, parents)
        grown = session.tokens[session.length :]
        self.heard += [(*before, *grown[line].tolist()) for line in session._lines[first:]]
        return scores


def run(target, drafters, sampling=GREEDY):
    return [*PROMPT, *write(target, drafters, 5, sampling=sampling, limit=40).ids]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize("others", ["", "ngram"])
def test_no_token_is_read_twice(sampling, order, others, caplog):
    """Order 3 is the target itself, whose drafts are all accepted; order 1 is mostly wrong."""
    model = Counting(order=order)
    drafters = [*(load(others) if others else ()), DraftModelDrafter(target=model)]
    text = run(ToyTarget(), drafters, sampling)
    assert not caplog.records, "it has not failed"
    assert len(set(model.heard)) == len(model.heard)
    assert tuple(text[:-6]) in model.heard, "it follows the text"


def test_a_chain_reader_reads_nothing_that_it_still_has():
    model = Counting(trees=False)
    run(ToyTarget(), [DraftModelDrafter(target=model)])
    again = len(model.heard) - len(set(model.heard))
    assert again == 0, "a model that is always right takes nothing back"
    model = Counting(trees=False, order=1)
    run(ToyTarget(), [DraftModelDrafter(target=model)])
    assert len(model.heard) - len(set(model.heard)) <= 40, "but for the last token where a draft was cut"


@pytest.mark.parametrize("kind", ["tree", "chain", "cascade"])
def test_tokens_that_the_model_lacks_are_not_read(kind, caplog):
    """The target has 8 tokens and the draft model 5."""
    target, model = ToyTarget(vocab_size=8), ToyTarget(vocab_size=5, trees=kind != "chain")
    drafter = DraftModelDrafter(target=model)
    if kind == "cascade":
        drafter = CascadeDrafter(target=model, drafters=load("ngram"))
    drafters = [*load("ngram"), drafter]
    plain = run(target, [])
    text = run(target, drafters)
    assert text == plain
    assert not caplog.records
    session = drafter.open([1, 2, 7], None)
    assert not len(session.draft(4, 0, drafter.prior))
    session.truncate(2)
    assert len(session.draft(4, 0, drafter.prior))
    session.close()


@pytest.mark.parametrize("cascade", [False, True])
def test_tokens_that_the_target_lacks_are_not_proposed(cascade, caplog):
    target, model = ToyTarget(vocab_size=5), ToyTarget(vocab_size=8)
    models = DraftModels(target)
    drafter = DraftModelDrafter(target=model).with_models(models)
    if cascade:
        drafter = CascadeDrafter(target=drafter.found, drafters=load("ngram"))
    drafter = drafter.with_models(models)
    assert drafter.with_models(models) is drafter
    assert run(target, [drafter]) == run(target, [])
    assert not caplog.records


@settings(max_examples=20)
@given(st.data())
def test_edits_of_the_text_leave_the_cache_in_step(data):
    model = ToyTarget(order=2)
    drafter = DraftModelDrafter(target=model)
    text = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=30))
    session = drafter.open(text, None)
    for _ in range(6):
        kind = data.draw(st.sampled_from(["draft", "extend", "truncate"]))
        if kind == "extend":
            more = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=20))
            session.extend(more)
            text = text + more
        elif kind == "truncate":
            length = data.draw(st.integers(0, len(text)))
            session.truncate(length)
            text = text[:length]
        fresh = drafter.open(text, None)
        trees = [one.draft(6, 0, drafter.prior) for one in (session, fresh)]
        fresh.close()
        assert trees[0].tokens.tolist() == trees[1].tokens.tolist()
        assert trees[0].parents.tolist() == trees[1].parents.tolist()
        if len(trees[0]):  # what it says first is what the model says
            best = int(model.scores_after(text).argmax())
            assert best in trees[0].tokens[trees[0].parents == -1]
    session.close()
    assert model.open_sessions == 0


def test_a_model_that_is_not_asked_reads_what_it_has_missed_later():
    model = Counting(order=2)
    drafter = DraftModelDrafter(target=model)
    session = drafter.open(PROMPT, None)
    session.draft(4, 0, drafter.prior)
    before = len(model.heard)
    session.extend([1, 2, 3] * 20)
    assert len(model.heard) == before
    session.draft(4, 0, drafter.prior)
    assert len(set(model.heard)) == len(model.heard) > before + 60
    session.close()


def test_a_text_too_long_for_the_model_is_drafted_for_no_longer(caplog):
    for trees in (True, False):
        model = ToyTarget(max_positions=len(PROMPT) + 10, trees=trees)
        text = run(ToyTarget(), [DraftModelDrafter(target=model)])
        assert len(text) == len(PROMPT) + 40
    assert not caplog.records, "it has not failed"
    with pytest.raises(CapabilityError, match="at most 3"):
        DraftModelDrafter(target=ToyTarget(max_positions=3)).open(PROMPT, None)
    with pytest.raises(CapabilityError, match="take rejected tokens back"):
        DraftModelDrafter().bound(DraftTarget(ToyTarget(rollback="snapshot")))


def test_a_model_of_the_same_mind_is_always_right():
    target = ToyTarget(order=2)
    for sampling in (GREEDY, SAMPLED):
        steps = write(target, [DraftModelDrafter(target=ToyTarget(order=2))], 5, sampling=sampling, limit=40).steps
        accepted = sum(step.accepted for step in steps)
        assert accepted >= 2 * (len(steps) - 1), "the noise is known"


@pytest.mark.parametrize("length", [1, 4, len(PROMPT)])
def test_a_session_that_resumes_reads_only_what_is_new(length):
    model = Saving()
    drafter = DraftModelDrafter(target=model)
    first = drafter.open(PROMPT, None)
    first.draft(4, 0, drafter.prior)
    saved = first.save()
    model.heard.clear()
    text = [*PROMPT[:length], *(n % 3 for n in range(11))]
    second, fresh = drafter.open(text, None), drafter.open(text, None)
    second.resume(saved, length)
    drafted = second.draft(4, 0, drafter.prior)
    assert min(len(heard) for heard in model.heard) == 1 + length
    assert drafted.tokens.tolist() == fresh.draft(4, 0, drafter.prior).tokens.tolist()
    for session in (first, second, fresh):
        session.close()
    assert model.open_sessions == 0


class Saving(Counting):
    """Keeps what it has read for texts that begin alike."""

    def save(self, session):
        return Kept(tuple(session.contents[0]))

    def resume(self, prefix, length, *, reserve=0):
        ((session, _),) = ToyTarget.open(self, [list(prefix.ids[:length])])
        self.heard.clear()
        return session


@dataclass
class Kept:
    ids: tuple[int, ...]
    nbytes: int = 8
