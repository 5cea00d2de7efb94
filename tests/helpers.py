"""What tests of several rooms share: runs of the loop on toys, the truth without the loop, random trees."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from hypothesis import strategies as st

import draftwood
from draftwood.contracts import Ask, Drafter, Feedback, Needs, Plan, Planner, Processor, Rule, Sampling, State
from draftwood.decoding.arrivals import open_sequences
from draftwood.decoding.loop import decode, decode_sequences
from draftwood.decoding.request import Criterion, Emission, Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.drafters.draft_model.drafter import DraftTarget
from draftwood.drafters.head.drafter import HeadDrafter
from draftwood.planning.beliefs import Beliefs
from draftwood.planning.fixed import FixedPlanner
from draftwood.step import Step
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree, merge
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose, distribution
from tests.toys import RandomDrafter

PROMPT = (1, 2, 0, 1, 2)
GREEDY = Sampling()
SAMPLED = Sampling(temperature=1.0, seed=7)

TARGETS: dict[str, dict[str, Any]] = {
    "trees": {},
    "chains only": {"trees": False},
    "snapshot and replay": {"rollback": "snapshot"},
}
"""The targets that take drafts. The one that gives a token per pass and takes none is `ONE_BY_ONE`."""
ONE_BY_ONE: dict[str, Any] = {"rollback": "none"}


@dataclass(frozen=True, eq=False)
class Listening(RandomDrafter):
    """Random trees; keeps every feedback, and what was committed before it."""

    k: int = 0
    choice: bool = False
    name: ClassVar[str] = "listening"
    heard: list[Any] = field(default_factory=list)

    @property
    def needs(self):
        return Needs(top_k=self.k, choice=self.choice)

    def open(self, prompt, noise):
        session = super().open(prompt, noise)
        learn = session.learn

        def listen(feedback):
            self.heard.append((session.text.tolist(), feedback))
            learn(feedback)

        session.learn = listen
        return session


# --- running the loop ----------------------------------------------------------------------------------------


@dataclass
class Written:
    """What one request gave."""

    ids: list[int] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    finish: str | None = None

    def add(self, emission: Emission) -> None:
        assert self.finish is None, "nothing follows the end"
        self.ids += emission.tokens
        self.sources += emission.sources
        self.finish = emission.finish
        if emission.step is not None:
            self.steps.append(emission.step)


def write_batch(
    target: ToyTarget,
    drafters: Sequence[Drafter],
    requests: Sequence[Request],
    planner: int | Planner = 8,
    rule: Rule = SampleAndMatch(),  # noqa: B008  (it has no state)
) -> list[Written]:
    """Decode several requests together; every session must be closed afterwards."""
    written = [Written() for _ in requests]
    planner = FixedPlanner(planner) if isinstance(planner, int) else planner
    for emission in decode(target, drafters, planner, rule, requests):
        written[emission.row].add(emission)
    assert target.open_sessions == 0, "every session was closed"
    return written


def write(
    target: ToyTarget,
    drafters: Sequence[Drafter] = (),
    planner: int | Planner = 8,
    *,
    prompt: Sequence[int] = PROMPT,
    limit: int = 24,
    sampling: Sampling = GREEDY,
    processors: Sequence[Processor] = (),
    sequence: int = 0,
    end_ids: Sequence[int] = (),
    criteria: Sequence[Criterion] = (),
) -> Written:
    """Decode one request."""
    request = Request(prompt, limit, sampling, processors, sequence, frozenset(end_ids), criteria)
    return write_batch(target, drafters, [request], planner)[0]


@contextmanager
def opened(target: ToyTarget, drafters: Sequence[Drafter], request: Request) -> Iterator[ActiveSequence]:
    """A text whose prompt was read and of which nothing is written yet."""
    with open_sequences(target, drafters, [request], SampleAndMatch()) as (row,):
        yield row


def go_on(target: ToyTarget, row: ActiveSequence, planner: int | Planner = 4) -> Written:
    """Write what was opened, or a turn of it, to its end."""
    written = Written()
    planner = FixedPlanner(planner) if isinstance(planner, int) else planner
    for emission in decode_sequences(target, planner, [row]):
        written.add(emission)
    return written


@dataclass(frozen=True)
class Everything:
    """A planner that asks for ``nodes`` in every step and scores whatever it gets, also far beyond the limit."""

    nodes: int = 16

    def open(self) -> Everything:
        return self

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        nothing = Ask(0, 0, TokenTree.empty().belief)
        return [[Ask(self.nodes, self.nodes, d.prior) if d else nothing for d in s.drafters] for s in states]

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        merged = [merge(trees) for trees in proposals]
        return [Plan(tree, tuple(rows)) for tree, rows in merged]

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        pass


SECONDS = [f.name for f in dataclasses.fields(Step) if f.name.endswith("_s")]


def untimed(step: Step) -> Step:
    """The step without its seconds: what replays and reruns must agree on."""
    sources = [
        dataclasses.replace(
            s, open_s=0.0, draft_s=0.0, learn_s=0.0,
            stages=tuple(dataclasses.replace(stage, seconds=0.0) for stage in s.stages),
        )
        for s in step.by_source
    ]  # fmt: skip
    return dataclasses.replace(step, **dict.fromkeys(SECONDS, 0.0), by_source=tuple(sources))


# --- the truth without the loop ------------------------------------------------------------------------------


def greedy_truth(target: ToyTarget, prompt: Sequence[int] = PROMPT, limit: int = 24) -> list[int]:
    """Plain greedy decoding in its plainest words: the best token, again and again."""
    text = list(prompt)
    for _ in range(limit):
        text.append(int(np.argmax(target.scores_after(text))))
    return text[len(prompt) :]


def sampled_truth(
    target: ToyTarget,
    sampling: Sampling,
    prompt: Sequence[int] = PROMPT,
    limit: int = 24,
    processors: Sequence[Processor] = (),
    sequence: int = 0,
) -> list[int]:
    """Plain decoding in its plainest words: processed distribution, log p + g, the best, again and again."""
    noise = None if sampling.greedy else KeyedNoise(sampling.seed, sequence)
    text = list(prompt)
    for _ in range(limit):
        row = target.scores_after(text).copy()
        for token in set(text[-(sampling.penalty_last_n or 0) :]):
            row[token] *= sampling.repetition_penalty if row[token] < 0 else 1 / sampling.repetition_penalty
        for process in processors:
            row = process(np.array(text), row)
        if noise is None:
            text.append(choose(row, sampling, None, len(text)))
            continue
        with np.errstate(divide="ignore"):
            scores = np.log(distribution(row, sampling))
        text.append(int(np.argmax(scores + noise.gumbel(len(text), np.arange(len(row))))))
    return text[len(prompt) :]


# --- processors with a memory --------------------------------------------------------------------------------


class TwiceAtMost:
    """Forbids a token that was emitted twice, until all were; each call must come once and in order."""

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.length: int | None = None

    def __call__(self, prefix: Any, row: Any) -> Any:
        if self.length is not None:
            assert len(prefix) == self.length + 1, "called once per emitted token, in order"
            newest = int(prefix[-1])
            self.counts[newest] = self.counts.get(newest, 0) + 1
            if sum(self.counts.values()) == 2 * (len(row) - 1):
                self.counts = {}
        self.length = len(prefix)
        row[[token for token, count in self.counts.items() if count >= 2]] = -np.inf
        return row


class Grammar:
    """A finite automaton over tokens: an odd token must be followed by a larger one, or by 0 after the largest."""

    def __call__(self, prefix: Any, row: Any) -> Any:
        allowed = self.after(int(prefix[-1]), len(row))
        masked = np.full_like(row, -np.inf)
        masked[allowed] = row[allowed]
        return masked

    @staticmethod
    def after(token: int, vocab_size: int) -> list[int]:
        if token % 2 == 0:
            return list(range(vocab_size))
        return list(range(token + 1, vocab_size)) or [0]


PROCESSORS: dict[str, Callable[[], list[Processor]]] = {
    "none": list,
    "stateful": lambda: [TwiceAtMost()],
    "grammar": lambda: [Grammar()],
}
SETTINGS_OF_LAWS = {
    "greedy with a penalty": Sampling(repetition_penalty=1.5, seed=5),
    "temperature": Sampling(0.7, seed=5),
    "top-k": Sampling(1.0, top_k=3, seed=5),
    "top-p": Sampling(1.0, top_p=0.7, seed=5),
    "min-p": Sampling(1.3, min_p=0.1, seed=5),
    "penalty": Sampling(1.0, repetition_penalty=1.4, seed=5),
    "penalty of the last": Sampling(repetition_penalty=1.4, penalty_last_n=5, seed=5),
    "everything": Sampling(0.9, top_k=6, top_p=0.9, min_p=0.02, repetition_penalty=1.2, seed=5),
}


# --- trees ---------------------------------------------------------------------------------------------------


@st.composite
def trees(
    draw: Callable[..., Any],
    vocab_size: int = 4,
    max_size: int = 10,
    beliefs: Sequence[float] = (1.0, 0.5, 0.25, 0.125),
    lookahead_nodes: bool = True,
    source: int = 0,
) -> TokenTree:
    """Any tree that fulfils the contract, equal siblings included; beliefs whose products are exact."""
    n = draw(st.integers(0, max_size))
    parents = [draw(st.integers(-1, i - 1)) for i in range(n)]
    lookahead: list[bool] = []
    for parent in parents:
        lookahead.append(lookahead_nodes and ((parent >= 0 and lookahead[parent]) or draw(st.integers(0, 3)) == 0))
    tree = TokenTree.build(
        draw(st.lists(st.integers(0, vocab_size - 1), min_size=n, max_size=n)),
        parents,
        belief=draw(st.lists(st.sampled_from(beliefs), min_size=n, max_size=n)),
        source=source,
        evidence=draw(st.lists(st.integers(0, 5), min_size=n, max_size=n)),
        draft_prob=draw(st.lists(st.sampled_from([0.1, 0.9]), min_size=n, max_size=n)),
        lookahead=lookahead,
    )
    tree.check_integrity(vocab_size)
    return tree


def texts(tree: TokenTree) -> list[tuple[int, ...]]:
    """For each node the tokens on the way to it: what identifies a node across merging and pruning."""
    return [tuple(tree.tokens[tree.path(node)].tolist()) for node in range(len(tree))]


def feedback(*emitted: int, proposal: TokenTree | None = None, path: Sequence[int] = ()) -> Feedback:
    """What a pass taught in which the proposal was scored whole; without one, in a plain step."""
    tree = proposal if proposal is not None else TokenTree.empty()
    choice = np.full(1 + len(tree), -1, dtype=np.int32)
    return Feedback(tree, tree, np.arange(len(tree), dtype=np.int32), tuple(path), emitted, choice)


def scored_feedback(
    emitted: Sequence[int],
    ids: Any,
    probabilities: Any,
    tree: TokenTree | None = None,
    path: Sequence[int] = (),
) -> Feedback:
    """What a pass taught a drafter that proposed nothing, with the best tokens of each row."""
    best = np.array(ids, dtype=np.int32)
    nothing, none = TokenTree.empty(), np.empty(0, dtype=np.int32)
    top_k = best, np.array(probabilities, dtype=np.float32)
    scored = nothing if tree is None else tree
    return Feedback(scored, nothing, none, tuple(path), tuple(emitted), best[:, 0], top_k)


class Still(Beliefs):
    """Beliefs that stay at their priors."""

    def learn(self, *args, **kwargs):
        del args, kwargs


def check_texts_with_a_head(model, file, drafters, temperature, caplog):
    """Ask that a model's texts are its own where the head in a file drafts, and that it does draft."""
    prompts = [[3, 5, 7, 3, 5, 9], [8, 8, 1], list(range(30))]
    settings = {"max_new_tokens": 24, "temperature": temperature, "seed": 3}
    plain = draftwood.generate(model, prompts, drafters="none", **settings)
    spec = drafters.replace("head", f'head:file="{file}"')
    for planner in ("fixed:12", "goodput"):
        found = draftwood.generate(model, prompts, drafters=spec, planner=planner, **settings)
        assert [answer.ids for answer in found] == [answer.ids for answer in plain]
    answer = draftwood.generate(model, prompts[0], drafters=spec, planner="fixed:12", **settings)
    assert sum(step.drafted for step in answer.steps), "the head has proposed something"
    assert not [record.message for record in caplog.records if "failed" in record.message]


def check_turns_with_a_head(target, head, sampling, caplog):
    """Ask the same of the turns of a conversation, some of which are cut."""
    drafter = HeadDrafter(target=DraftTarget(head))
    with opened(target, [drafter], Request([3, 5, 7, 3], 12, sampling)) as row:
        go_on(target, row, 8)
        told = list(row.ids)
        for prompt in ([*told, 3, 4], told, told[:7], [*told[:3], 7, 6, 5], [6, 5]):
            row.turn(Request(prompt, 12, sampling))
            written = go_on(target, row, 8)
            with opened(target, [], Request(prompt, 12, sampling)) as plain:
                go_on(target, plain, 0)
            assert row.ids == plain.ids
            assert sum(step.drafted for step in written.steps), "it goes on drafting"
    assert not [record.message for record in caplog.records if "failed" in record.message]


def in_threads(work: Callable[..., object], *several: Any) -> None:
    """Call this with each of several arguments, all at once; raises the first error."""
    with ThreadPoolExecutor(len(several)) as pool:
        list(pool.map(work, several))


def limit_threads(monkeypatch: Any, most: int) -> list[threading.Thread]:
    """Let so many more threads start, as under a limit of processes; returns those that did."""
    start, started = threading.Thread.start, list[threading.Thread]()

    def limited(thread: threading.Thread) -> None:
        if len(started) == most:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    return started
