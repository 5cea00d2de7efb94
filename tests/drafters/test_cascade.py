"""A cascade: the text stays the target's own, and its models read no token of the text twice."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.helpers import GREEDY, PROMPT, SAMPLED, greedy_truth, sampled_truth, write, write_batch
from tests.toys import InvalidDrafter, RaisingDrafter, SameDrafter, WrongDrafter

from draftwood.contracts import Prices
from draftwood.decoding.arrivals import read_whole
from draftwood.decoding.request import Request
from draftwood.drafters.cascade.drafter import CascadeDrafter
from draftwood.drafters.cascade.session import Ahead
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.drafters.load import load
from draftwood.errors import CapabilityError, UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.step import Step
from draftwood.testing import ToyTarget, check_drafter
from draftwood.testing.targets import ToySession


class Counting(ToyTarget):
    """Notes each text, up to each token, that enters the cache of one of its sessions, and each row it scores."""

    def __post_init__(self):
        super().__post_init__()
        self.entered, self.scored = [], []

    def _session(self):
        return CountingSession(self, self.entered)

    def _score(self, session, root, tree):
        before = (*session.contents[0], root)
        self.scored.append(before)
        self.scored += [(*before, *tree.tokens[tree.path(node)].tolist()) for node in range(len(tree))]
        return super()._score(session, root, tree)


class CountingSession(ToySession):
    def __init__(self, target, entered):
        super().__init__(target)
        self.entered = entered

    def append(self, ids):
        before = self.length
        super().append(ids)
        self._note(before)

    def keep(self, path):
        before = self.length
        super().keep(path)
        self._note(before)

    def _note(self, before):
        text = self.contents[0]
        self.entered += [tuple(text[: i + 1]) for i in range(before, len(text))]


def cascade(target, drafters, **options):
    return CascadeDrafter(target=target, drafters=tuple(drafters), planner=FixedPlanner(4), **options)


@pytest.mark.parametrize("trees", [True, False])
def test_a_cascade_keeps_the_contract(trees):
    small = ToyTarget(order=2, trees=trees)
    check_drafter(cascade(small, [cascade(small, load("ngram+recycling"))]), prompt=[7])
    assert small.open_sessions == 0


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("order", [1, 3])
@pytest.mark.parametrize(("inner", "beside"), [("none", False), ("ngram+recycling", False), ("ngram", True)])
def test_no_token_of_the_text_is_read_twice(sampling, order, inner, beside, caplog):
    """Order 3 is the target itself, whose drafts are all accepted; order 1 is mostly wrong."""
    model, target = Counting(order=order), ToyTarget()
    others = load("ngram") if beside else ()
    written = write(target, [*others, cascade(model, load(inner))], 5, sampling=sampling, limit=40)
    assert written.ids == sampled_truth(target, sampling, limit=40)
    assert not caplog.records, "nobody has failed"
    assert len(set(model.entered)) == len(model.entered)
    text = (*PROMPT, *written.ids)
    assert text[:-8] in model.entered, "it follows the text"
    again = len(model.scored) - len(set(model.scored))
    refused = sum(stage.proposed - stage.accepted for stage in stages(written.steps))
    assert again <= refused, "only what the model itself had refused is scored again"
    assert model.open_sessions == 0


def stages(steps: list[Step]):
    return [stage for step in steps for source in step.by_source for stage in source.stages]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("inner", ["wrong", "raising", "invalid", "failing model"])
def test_a_bad_inner_drafter_changes_no_text_in_a_batch(sampling, inner, caplog):
    caplog.set_level(logging.CRITICAL)
    target, model = ToyTarget(), ToyTarget(order=2)
    broken = {
        "wrong": WrongDrafter(model, sampling),
        "raising": RaisingDrafter(),
        "invalid": InvalidDrafter("ids"),
        "failing model": cascade(Failing(order=2), load("ngram")),
    }[inner]
    prompts = [(1, 2, 0, 1, 2), (3, 3), (7, 0, 7, 0, 7, 0), (5,), (2, 4, 6), (1,)]
    requests = [Request(prompt, 20, sampling, sequence=i) for i, prompt in enumerate(prompts)]
    plain = write_batch(target, [], requests)
    for planner in (5, GoodputPlanner()):
        drafted = write_batch(target, [cascade(model, [broken])], requests, planner)
        assert [one.ids for one in drafted] == [one.ids for one in plain]
        assert model.open_sessions == 0


class Failing(ToyTarget):
    def score(self, requests):
        raise RuntimeError("a model without a mind")


def test_texts_that_share_a_pass_share_those_of_the_cascade():
    prompts = [(1, 2, 0, 1, 2), (3, 3), (7, 0, 7, 0, 7, 0)]
    passes = []
    for together in (True, False):
        model = ToyTarget(order=2)
        drafter = cascade(model, load("ngram"))
        requests = [Request(prompt, 20) for prompt in prompts]
        for some in [requests] if together else [[request] for request in requests]:
            write_batch(ToyTarget(), [drafter], some)
        passes.append(model.passes)
    assert passes[0] < 0.7 * passes[1]


def test_a_model_of_the_same_mind_is_always_right_sampled_too():
    for sampling in (GREEDY, SAMPLED):
        target = ToyTarget(order=2)
        inner = SameDrafter(ToyTarget(order=2), sampling)
        written = write(target, [cascade(ToyTarget(order=2), [inner])], 5, sampling=sampling, limit=40)
        assert sum(step.accepted for step in written.steps) >= 3 * (len(written.steps) - 1)
        own = stages(written.steps)
        assert sum(stage.accepted for stage in own) > 0.5 * sum(stage.proposed for stage in own)


def test_stages_are_in_the_record():
    small = cascade(ToyTarget(order=1), load("ngram"), model="small")
    target = ToyTarget(order=2)
    written = write(target, [cascade(ToyTarget(order=2), [small], model="middle")], 5, limit=30)
    steps = [step for step in written.steps if stages([step])]
    assert [stage.name for stage in stages(steps[:1])] == ["middle", "small"]
    for step in steps:
        middle = stages([step])[0]
        assert middle.passes > 0
        assert 0 <= middle.accepted <= middle.proposed
        assert middle.seconds <= step.by_source[0].draft_s
    assert [Step.from_json(step.to_json()) for step in steps] == steps


def test_prices_end_a_draft():
    model = ToyTarget(order=2)
    drafter = cascade(model, load("ngram"))
    session = drafter.open(PROMPT, None)
    rates = drafter.prior
    assert len(session.draft(12, 0, rates)) == 12, "without prices as many as are asked for"
    unsure = cascade(ToyTarget(sharpness=0.1), [], p_min=0.5).open(PROMPT, None)
    assert not len(unsure.draft(8, 0, rates)), "each of eight tokens is about as likely"
    for token_s, most in ((1e9, 16), (1e-12, 0)):
        session = drafter.open(PROMPT, None)
        session.prices = Prices(1e9)
        session.draft(1, 0, rates)  # reads the prompt
        session.extend([3])
        session.prices = Prices(token_s)
        assert len(session.draft(16, 0, rates)) == most
        session.close()


@settings(max_examples=20)
@given(st.data())
def test_edits_of_the_text_leave_the_caches_in_step(data):
    model, small = ToyTarget(order=2), ToyTarget(order=1)
    drafter = cascade(model, [*load("ngram+recycling"), cascade(small, load("ngram"))])
    text = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=30))
    session = drafter.open(text, None)
    for _ in range(6):
        kind = data.draw(st.sampled_from(["draft", "extend", "accept", "truncate"]))
        if kind in ("extend", "accept"):
            more = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=20))
            if kind == "accept":
                more = [*session.draft(4, 0, drafter.prior).tokens.tolist(), *more[:1]]
            session.extend(more)
            text = text + more
        elif kind == "truncate":
            length = data.draw(st.integers(0, len(text)))
            session.truncate(length)
            text = text[:length]
        expected = list(text)
        while text and len(expected) < len(text) + 6:
            expected.append(int(model.scores_after(expected).argmax()))
        assert session.draft(6, 0, drafter.prior).tokens.tolist() == expected[len(text) :]
    session.close()
    assert model.open_sessions == small.open_sessions == 0


def test_an_interrupted_draft_reads_the_text_again():
    model = ToyTarget(order=2)
    drafter = cascade(model, load("ngram"))
    session = drafter.open(PROMPT, None)
    before = session.draft(5, 0, drafter.prior)
    session.extend([3])
    model.score, kept = interrupted, model.score
    with pytest.raises(KeyboardInterrupt):
        session.draft(5, 0, drafter.prior)
    model.score = kept
    session.truncate(len(PROMPT))
    assert session.draft(5, 0, drafter.prior).tokens.tolist() == before.tokens.tolist()
    session.close()


def test_what_was_not_read_is_named_again_where_the_same_text_comes_again():
    target = ToyTarget(order=2)
    ahead = Ahead([1, 2], None, target, ())
    read_whole(target, [ahead])
    ahead.begin()
    text = np.array([1, 2, (ahead.ids[2] + 1) % 8, 3, 3], dtype=np.int32)
    assert ahead.follow(text) == ahead.follow(text) == text[2:].tolist()
    ahead.close()


def interrupted(requests):
    raise KeyboardInterrupt


def test_what_the_model_cannot_do_is_said_at_once():
    with pytest.raises(CapabilityError, match="take rejected tokens back"):
        cascade(ToyTarget(rollback="snapshot"), [])
    with pytest.raises(CapabilityError, match="chains only"):
        cascade(ToyTarget(trees=False), load("lookahead"))
    with pytest.raises(CapabilityError, match="at most 3"):
        cascade(ToyTarget(max_positions=3), []).open(PROMPT, None)
    with pytest.raises(UsageError, match="needs its model"):
        CascadeDrafter()


def test_a_cascade_drafts_for_a_cascade_of_plain_draft_models():
    """The inner draft model grows trees on a cache of its own."""
    target, model, small = ToyTarget(), Counting(), ToyTarget()
    drafter = cascade(model, [DraftModelDrafter(target=small)])
    written = write(target, [drafter], 5, limit=40)
    assert written.ids == greedy_truth(target, limit=40)
    assert len(written.steps) < 10
    assert sum(stage.accepted for stage in stages(written.steps)) > 10
    assert len(set(model.entered)) == len(model.entered)
    assert small.open_sessions == 0
