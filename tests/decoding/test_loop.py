"""The loop: it closes what it opened, its records add up, credit and feedback are right, turns read little."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

import numpy as np
import pytest
from tests.drafter_list import EVERY, with_settings
from tests.helpers import (
    GREEDY,
    ONE_BY_ONE,
    PROMPT,
    SAMPLED,
    TARGETS,
    Listening,
    Still,
    go_on,
    greedy_truth,
    opened,
    sampled_truth,
    write,
)
from tests.toys import ModelDrafter, RandomDrafter, SameDrafter, WindowDrafter

from draftwood.contracts import Capabilities, Needs, Sampling
from draftwood.decoding.loop import decode, decode_sequences
from draftwood.decoding.request import Request
from draftwood.drafters.base import BaseDrafter, TextSession
from draftwood.errors import CapabilityError, DraftwoodError, PromptError, UsageError
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.learned import Learned
from draftwood.step import MODEL
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch

REQUESTS = [Request(PROMPT, 12), Request((3,), 7)]


class Interrupting:
    """Counts calls and raises `KeyboardInterrupt` at the n-th; None never does."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.calls = at, 0

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt


# --- closing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("taken", range(8))
def test_closing_early_closes_every_session(taken):
    target, model = ToyTarget(), ToyTarget()
    texts = decode(target, [RandomDrafter(), ModelDrafter(model)], FixedPlanner(3), SampleAndMatch(), REQUESTS)
    for _ in range(taken):
        next(texts)
    texts.close()
    assert target.open_sessions == model.open_sessions == 0


def test_no_requests_give_nothing():
    assert list(decode(ToyTarget(), [RandomDrafter()], FixedPlanner(), SampleAndMatch(), [])) == []


@dataclass(frozen=True)
class Stoppable(BaseDrafter):
    """Proposes the last token twice; in each verb it may be interrupted."""

    verb: str
    interrupt: Interrupting
    name: ClassVar[str] = "stoppable"

    def open(self, prompt, noise):
        if self.verb == "open":
            self.interrupt()
        return _StoppableSession(prompt, self)


class _StoppableSession(TextSession):
    def __init__(self, prompt, drafter):
        self._drafter = drafter
        super().__init__(prompt)

    def _verb(self, verb):
        if self._drafter.verb == verb:
            self._drafter.interrupt()

    def draft(self, nodes, lookahead_nodes, accept_rates):
        self._verb("draft")
        return TokenTree.build([int(self.text[-1])] * min(2, nodes))

    def learn(self, feedback):
        super().learn(feedback)
        self._verb("learn")


class StoppableTarget(ToyTarget):
    """A toy that may be interrupted at the end of a pass, or of keeping what was accepted."""

    verb, interrupt = "none", Interrupting()

    def open(self, prompts, *, reserve=0):
        opened = super().open(prompts, reserve=reserve)
        for session, _ in opened:

            def keep(path, keep=session.keep):
                keep(path)
                if self.verb == "keep":
                    self.interrupt()

            session.keep = keep
        return opened

    def score(self, requests):
        scores = super().score(requests)
        if self.verb == "score":
            self.interrupt()
        return scores


@pytest.mark.parametrize("verb", ["open", "draft", "learn"])
@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_in_a_drafter_goes_through_and_closes_every_session(verb, at):
    target, model = ToyTarget(), ToyTarget()
    stoppable = Stoppable(verb, Interrupting(at))
    requests = [*REQUESTS, Request((1, 2), 4)]
    texts = decode(target, [ModelDrafter(model), stoppable], FixedPlanner(3), SampleAndMatch(), requests)
    with pytest.raises(KeyboardInterrupt):
        list(texts)
    assert target.open_sessions == model.open_sessions == 0


def test_an_error_of_the_rule_goes_through_and_closes_every_session():
    def picky(prefix, row):
        if len(prefix) > len(PROMPT) + 5:
            raise DraftwoodError("the grammar is broken")
        return row

    target = ToyTarget()
    requests = [Request((3,), 7), Request(PROMPT, 12, processors=[picky])]
    with pytest.raises(DraftwoodError, match="the grammar is broken"):
        list(decode(target, [RandomDrafter()], FixedPlanner(3), SampleAndMatch(), requests))
    assert target.open_sessions == 0


# --- refusing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error", "sentence"),
    [
        (Request((), 5), PromptError, "the prompt is empty: give some text"),
        (Request((1, 8), 5), PromptError, r"outside the vocabulary \[0, 8\)"),
        (Request((1, -1), 5), PromptError, r"outside the vocabulary \[0, 8\)"),
        (Request([1] * 16, 5), PromptError, "the prompt has 16 tokens, the model takes 16 with its answer"),
        (Request((1,), 0), UsageError, "max_new_tokens is 0: it must be at least 1"),
        (Request((1,), -3), UsageError, "max_new_tokens is -3"),
        (Request((1,), 5, Sampling(1.0, top_p=0.0)), UsageError, "top_p must"),
    ],
)
def test_a_request_that_cannot_be_written_is_refused_before_anything_is_read(request_, error, sentence):
    target = ToyTarget(max_positions=16)
    with pytest.raises(error, match=sentence):
        next(decode(target, [], FixedPlanner(), SampleAndMatch(), [Request((1,), 5), request_]))
    assert target.open_sessions == 0


@dataclass(frozen=True)
class Needy(RandomDrafter):
    """Needs whatever it is told to need."""

    wants: Needs = Needs()  # noqa: RUF009  (frozen)
    name: ClassVar[str] = "needy"

    @property
    def needs(self):
        return self.wants


class Mute(ToyTarget):
    """Declares neither top-k nor hidden states."""

    @property
    def capabilities(self):
        return Capabilities(self.vocab_size, self.max_positions, top_k=False)


@pytest.mark.parametrize(
    ("target", "drafter", "sentence"),
    [
        (Mute(), Needy(wants=Needs(top_k=2)), "drafter 'needy' needs top-k scores"),
        (Mute(), Needy(wants=Needs(hidden=(3, 1))), r"needs hidden states of layers \[1, 3\]"),
        (ToyTarget(**ONE_BY_ONE), RandomDrafter(), "one token per pass"),
    ],
)
def test_a_drafter_that_needs_what_the_target_lacks_is_refused(target, drafter, sentence):
    with pytest.raises(CapabilityError, match=sentence):
        next(decode(target, [drafter], FixedPlanner(), SampleAndMatch(), REQUESTS))
    assert target.open_sessions == 0


# --- the records add up --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("drafters", "settings"), with_settings(("greedy", "sampled"), "sampled"))
def test_the_steps_add_up(drafters, settings):
    target, sampling = ToyTarget(order=2), GREEDY if settings == "greedy" else SAMPLED
    made = EVERY[drafters](target, sampling)
    written = write(target, made, 5, sampling=sampling)
    context = len(PROMPT) + 1
    assert written.sources[0] == MODEL
    for number, step in enumerate(written.steps):
        assert (step.index, step.context) == (number, context)
        still = 24 - (context - len(PROMPT))
        context += len(step.emitted)
        assert step.accepted <= step.drafted <= 5
        assert len(step.sources) == len(step.emitted)
        assert sum(source != MODEL for source in step.sources) == step.accepted
        assert len(step.by_source) == len(made)
        assert sum(own.kept for own in step.by_source) >= step.drafted
        assert sum(own.accepted for own in step.by_source) >= step.accepted * any(step.by_source)
        for source, own in enumerate(step.by_source):
            assert own.accepted <= own.kept <= own.proposed
            assert step.sources.count(source) <= own.accepted <= step.accepted
            assert own.calls in (0, 1)
            assert own.asked == (min(5, still - 1) if own.calls else 0)
            assert own.calls or own.proposed == 0
    assert [t for step in written.steps for t in step.emitted] == written.ids[1:]
    assert [s for step in written.steps for s in step.sources] == written.sources[1:]
    assert context == len(PROMPT) + len(written.ids)


def test_seconds_are_measured_and_never_negative():
    target = ToyTarget()
    steps = write(target, [SameDrafter(target), RandomDrafter()], 4).steps
    for number, step in enumerate(steps):
        parts = (step.plan_s, step.draft_s, step.score_s, step.verify_s, step.keep_s, step.learn_s)
        assert all(part > 0 for part in parts)
        for own in step.by_source:
            assert (own.open_s > 0) == (number == 0)
            assert (own.draft_s > 0) == bool(own.calls)  # of the last token nobody is asked
            assert own.learn_s > 0
        assert sum(own.draft_s for own in step.by_source) <= step.draft_s
        assert sum(own.learn_s for own in step.by_source) <= step.learn_s


def test_a_plain_step_has_no_source():
    for step in write(ToyTarget()).steps:
        assert (step.by_source, step.sources, step.drafted, step.lookahead_scored) == ((), (MODEL,), 0, 0)


def test_the_match_length_is_what_the_drafter_says():
    @dataclass(frozen=True)
    class Matching(SameDrafter):
        def open(self, prompt, noise):
            session = super().open(prompt, noise)
            session.match_length = 3
            return session

    target = ToyTarget()
    assert {s.by_source[0].match_length for s in write(target, [Matching(target)]).steps} == {3}
    assert {s.by_source[0].match_length for s in write(target, [SameDrafter(target)]).steps} == {0}


# --- credit --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Believing(SameDrafter):
    """Right, and believes it this much."""

    belief: float = 0.5
    length: int = 3
    name: ClassVar[str] = "believing"

    def propose(self, text, nodes, noise):
        right = super().propose(text, min(self.length, nodes), noise)
        return TokenTree.build(right.tokens, belief=self.belief)

    @property
    def prior(self):
        return np.full(1, self.belief, dtype=np.float32)


def still(nodes):
    """A planner that goes on believing what the drafters' priors say."""
    return FixedPlanner(nodes, learned=Learned(Still()))


@pytest.mark.parametrize(("first", "second", "credited"), [(0.5, 0.75, 1), (0.75, 0.5, 0), (0.5, 0.5, 0)])
def test_who_believes_more_is_the_source_and_both_have_proposed(first, second, credited):
    target = ToyTarget()
    written = write(
        target, [Believing(target, belief=first), Believing(target, belief=second)], still(8), limit=21
    )
    assert written.ids == greedy_truth(target, limit=21)
    for step in written.steps:
        assert step.sources == (credited, credited, credited, MODEL)
        assert (step.drafted, step.accepted) == (3, 3)
        assert [(own.proposed, own.kept, own.accepted) for own in step.by_source] == [(3, 3, 3)] * 2


def test_who_alone_went_on_is_credited_for_the_rest():
    target = ToyTarget()
    short, long = Believing(target, belief=0.9, length=1), Believing(target, belief=0.5, length=3)
    for step in write(target, [long, short], still(8), limit=21).steps:
        assert step.sources == (1, 0, 0, MODEL)
        assert [own.accepted for own in step.by_source] == [3, 1]


def test_what_was_pruned_is_proposed_and_not_kept():
    target = ToyTarget()
    for step in write(
        target, [Believing(target, belief=0.9, length=2), RandomDrafter()], still(2), limit=13
    ).steps:
        assert step.drafted == 2
        assert step.by_source[0].kept == 2
        assert step.by_source[1].kept <= step.by_source[1].proposed


# --- feedback ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_feedback_says_what_was_scored_and_what_came_of_it(sampling):
    target, listener = ToyTarget(), Listening()
    written = write(target, [Believing(target, sampling, 1.0, 2), listener], 6, sampling=sampling)
    assert any(len(feedback.tree) > len(feedback.path) > 0 for _, feedback in listener.heard)
    assert len(listener.heard) == len(written.steps)
    for (before, feedback), step in zip(listener.heard, written.steps, strict=True):
        tree = feedback.tree
        assert len(before) == step.context
        assert feedback.emitted == step.emitted
        assert tuple(tree.tokens[list(feedback.path)].tolist()) == step.emitted[: len(feedback.path)]
        assert len(tree) == step.drafted + step.lookahead_scored
        assert feedback.node_map.dtype == np.int32
        assert len(feedback.node_map) == len(feedback.proposal)
        for node, row in enumerate(feedback.node_map.tolist()):
            if row >= 0:
                own, there = feedback.proposal, tree
                assert own.tokens[own.path(node)].tolist() == there.tokens[there.path(row)].tolist()
        assert feedback.choice.dtype == np.int32
        visited = [0, *(1 + node for node in feedback.path)]
        assert feedback.choice[visited][: len(step.emitted)].tolist() == list(step.emitted)
        unknown = sorted(set(range(1 + len(tree))) - set(visited))
        assert feedback.choice[unknown].tolist() == [-1] * len(unknown)
        assert feedback.top_k is None
        assert feedback.hidden == {}


def test_the_choice_on_the_path_is_exact_even_where_top_k_would_not_know_it():
    def banned(prefix, row):
        row[row.argmax()] = -np.inf
        return row

    target, listener = ToyTarget(), Listening(k=1, choice=True)
    written = write(target, [listener], 6, processors=[banned])
    for (before, feedback), step in zip(listener.heard, written.steps, strict=True):
        assert feedback.choice[0] == step.emitted[0] != target.scores_after(before).argmax()


# --- turns ---------------------------------------------------------------------------------------------------


class CountingTarget(ToyTarget):
    """Counts the tokens that its sessions read outside of passes."""

    read = 0

    def extend(self, texts, watch=None):
        self.read += sum(len(ids) for _, ids in texts)
        return super().extend(texts, watch)


@pytest.mark.parametrize("drafters", ["none", "same", "ngram", "model", "raising in learn"])
def test_a_turn_reads_only_what_is_new(drafters):
    target = CountingTarget()
    made = EVERY[drafters](target, GREEDY) if drafters != "none" else []
    with opened(target, made, Request(PROMPT, 9)) as row:
        go_on(target, row)
        said = list(row.ids)
        assert target.read == len(PROMPT)
        # Of the turn before, only the last token has not been through the model.
        for prompt, expected in (
            ([*said, 3, 4, 5], 4),
            ([*said, 3, 4, 5], 1),
            (said[:8], 1),
            ([*said[:6], 7, 7], 2),
            ([7, 7], 2),
        ):
            before = target.read
            assert row.turn(Request(prompt, 5)) == target.read - before == expected
            assert list(row.ids) == prompt
            assert go_on(target, row).ids == greedy_truth(target, prompt, 5)
    assert target.open_sessions == 0


@pytest.mark.parametrize(("drafters", "variant"), with_settings(TARGETS, "trees"))
def test_the_text_of_a_turn_is_that_of_a_fresh_request(drafters, variant):
    target = ToyTarget(order=2, **TARGETS[variant])
    made = EVERY[drafters](target, SAMPLED)
    with opened(target, made, Request(PROMPT, 6, SAMPLED)) as row:
        text = []
        for prompt, sampling in (
            (PROMPT, SAMPLED),
            ([*PROMPT, 1, 1, 1], SAMPLED),
            ([*PROMPT, 1], SAMPLED),
            ([*PROMPT, 1, 5], Sampling(0.8, seed=99)),
            ([6, 6], GREEDY),
        ):
            if text:
                row.turn(Request(prompt, 6, sampling))
            text = go_on(target, row).ids
            assert text == sampled_truth(target, sampling, prompt, 6)
            assert row.finish == "length"
    assert target.open_sessions == 0


@pytest.mark.parametrize("where", ["draft", "score", "keep", "learn", "between steps"])
@pytest.mark.parametrize("at", [1, 2, 3])
@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("further", [0, 2, 5])
def test_after_an_interrupt_in_mid_step_a_turn_writes_what_a_fresh_request_would(where, at, sampling, further):
    target, model = StoppableTarget(), ToyTarget()
    interrupt = Interrupting(at)
    if where in ("score", "keep"):
        target.verb, target.interrupt = where, interrupt
    made = [Stoppable(where, interrupt), ModelDrafter(model), SameDrafter(target, sampling)]
    request = Request(PROMPT, 20, sampling)
    with opened(target, made, request) as row:
        shown: list[int] = []
        try:
            for number, emission in enumerate(decode_sequences(target, FixedPlanner(2), [row]), 1):
                shown += emission.tokens
                if where == "between steps" and number == at:
                    break
        except KeyboardInterrupt:
            pass
        truth = sampled_truth(target, sampling, limit=20)
        assert shown == truth[: len(shown)]
        assert len(shown) < 20
        # The next prompt may go on with tokens that were committed and never shown.
        for prompt in ([*PROMPT, *truth[: len(shown) + further], 4, 4], [*PROMPT, *truth[:9], 1], PROMPT, [2]):
            row.turn(Request(prompt, 9, sampling))
            written = go_on(target, row, 12)
            assert written.ids == sampled_truth(target, sampling, prompt, 9)
            assert not any(own.failed for step in written.steps for own in step.by_source)
            same = [step.by_source[2] for step in written.steps]
            assert all(own.accepted == own.kept for own in same), "a stale draft"
    assert target.open_sessions == model.open_sessions == 0


def test_drafters_follow_the_text_from_turn_to_turn():
    target = ToyTarget()
    with opened(target, [SameDrafter(target)], Request(PROMPT, 11)) as row:
        for turn, kept in enumerate([5, 16, 9, 3, 14]):
            if turn:
                row.turn(Request([*row.ids[:kept], turn, 7, turn], 11))
            assert [(step.drafted, step.accepted) for step in go_on(target, row).steps] == [(4, 4), (4, 4)]


def test_drafters_that_read_the_noise_follow_it_from_turn_to_turn():
    target, sampling = ToyTarget(sharpness=0.5), Sampling(1.0, seed=1)
    request, same = Request(PROMPT, 11, sampling), SameDrafter(target, sampling)
    with opened(target, [same], request) as row:
        for turn, (seed, sequence) in enumerate([(1, 0), (1, 0), (2, 0), (2, 1)]):
            if turn:
                row.turn(Request([*row.ids, turn], 11, Sampling(1.0, seed=seed), sequence=sequence))
            assert [(step.drafted, step.accepted) for step in go_on(target, row).steps] == [(4, 4), (4, 4)]


def test_a_turn_that_is_refused_leaves_the_text_as_it_was():
    target = ToyTarget(max_positions=32)
    with opened(target, [RandomDrafter()], Request(PROMPT, 6)) as row:
        go_on(target, row)
        said = list(row.ids)
        for prompt, limit in (([], 6), ([1] * 32, 6), ([8], 6), (said, 0)):
            with pytest.raises(UsageError):
                row.turn(Request(prompt, limit))
            assert row.ids == said
        row.turn(Request([*said, 1], 6))
        assert go_on(target, row).ids == greedy_truth(target, [*said, 1], 6)


def test_the_time_limit_of_a_turn_counts_its_reading(monkeypatch):
    target, ticks = ToyTarget(), count(0, 2000)
    with opened(target, [], Request(PROMPT, 2)) as row:
        go_on(target, row, 0)
        monkeypatch.setattr("draftwood.decoding.sequence.perf_counter", lambda: next(ticks))
        row.turn(Request([*row.ids, 3], 5, seconds=1000.0))
        assert len(go_on(target, row, 0).ids) == 1


def test_a_turn_goes_on_after_the_end_and_within_new_positions():
    target = ToyTarget(max_positions=20)
    with opened(target, [SameDrafter(target)], Request(PROMPT, 100)) as row:
        assert len(go_on(target, row).ids) == 15
        row.turn(Request(row.ids[:18], 100))
        assert len(go_on(target, row).ids) == 2


def test_writing_before_reading_is_a_mistake_of_the_programmer():
    target = ToyTarget()
    with opened(target, [], Request(PROMPT, 3)) as row:
        row.begin()
        with pytest.raises(RuntimeError, match=r"begin\(\) follows"):
            row.begin()


def test_lookahead_nodes_have_their_place_in_feedback():
    target, listener = ToyTarget(), Listening(vocab_size=8)
    write(target, [WindowDrafter(target), listener], 3)
    assert any(feedback.tree.n_lookahead for _, feedback in listener.heard)
    for _, feedback in listener.heard:
        feedback.tree.check_integrity(8)
        assert not feedback.tree.lookahead[list(feedback.path)].any()
