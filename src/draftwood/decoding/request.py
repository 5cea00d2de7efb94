"""One request under way: its committed text and the sessions that follow it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from draftwood.contracts import (
    Ask,
    Capabilities,
    Declaration,
    Drafter,
    Feedback,
    Plan,
    Processor,
    Rule,
    RuleSession,
    Sampling,
    Scores,
    Target,
    TargetSession,
    Verdict,
    Watch,
)
from draftwood.decoding import feedback as outcome
from draftwood.decoding.broken_rows import BrokenRowError, CheckedScores, without_drafts
from draftwood.decoding.capability_check import refuse_mismatch
from draftwood.decoding.draft_source import DraftSource, propose
from draftwood.decoding.prompt_scores import Reading, unseen
from draftwood.decoding.stopping import Criterion, Stopping, StopStrings
from draftwood.errors import PromptError, UsageError
from draftwood.step import MODEL, SourceStep, Step
from draftwood.tree import TokenTree


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody wants written.

    Attributes
    ----------
    prompt
        Token ids, at least one.
    limit
        Most tokens to emit, at least 1; the model's positions limit it further.
    sampling, processors, sequence
        How tokens are chosen, see `Sampling`, `Processor` and `Rule`.
    end_ids, stop, criteria
        Where the text ends.
    seconds
        After so many seconds, counted from before the prompt is read, the token that is written then is the last.
    trace
        Keep each step's scored tree in its record (`Step.trace`).
    drafters
        Who proposes, where this request has drafters of its own (bound to what its user expects): as many, of the
        same names and in the same order as those that `open_sequences` is given, which are meant by None.
    """

    prompt: Sequence[int]
    limit: int
    sampling: Sampling = field(default_factory=Sampling)
    processors: Sequence[Processor] = ()
    sequence: int = 0
    end_ids: frozenset[int] = frozenset()
    stop: StopStrings | None = None
    criteria: Sequence[Criterion] = ()
    trace: bool = False
    drafters: Sequence[Drafter] | None = None
    seconds: float | None = None

    def check(self, capabilities: Capabilities) -> None:
        """Raise `UsageError` or `PromptError` for what this target cannot write."""
        ids = np.asarray(self.prompt)
        if not ids.size:
            raise PromptError("the prompt is empty: give some text")
        if ids.min() < 0 or ids.max() >= capabilities.vocab_size:
            raise PromptError(f"the prompt has token ids outside the vocabulary [0, {capabilities.vocab_size})")
        if len(ids) >= capabilities.max_positions:
            raise PromptError(
                f"the prompt has {len(ids)} tokens, the model takes {capabilities.max_positions} with its answer: "
                "shorten the prompt"
            )
        if self.limit < 1:
            raise UsageError(f"max_new_tokens is {self.limit}: it must be at least 1")


@dataclass(frozen=True, slots=True)
class Emission:
    """Tokens that one request gained: from reading the prompt (``step`` is None) or from one step.

    ``sources`` has the index of the drafter behind each token, `MODEL` for the target's own. Where the text cannot
    go on, ``finish`` is ``"error"`` and ``error`` says why; ``step`` is None where nothing was gained either.
    """

    row: int
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    step: Step | None
    finish: str | None
    error: Exception | None = None


class ActiveSequence:
    """A request under way; fulfils `contracts.State`, which is all that a planner sees of it."""

    def __init__(
        self, number: int, request: Request, target: Target, drafters: Sequence[Drafter], rule: Rule
    ) -> None:
        self.number = number
        self.capabilities = target.capabilities
        self.sources: list[DraftSource] = []
        self._engage(drafters if request.drafters is None else request.drafters)
        self.prefill_s = 0.0
        self.step = Step(0, 0)
        self._rules = rule
        self._session: TargetSession | None = None
        self._scores: Scores | None = None
        self._settled = False
        self._reading = Reading()
        self._start(request)

    def _engage(self, drafters: Sequence[Drafter]) -> list[DraftSource]:
        """Take on these drafters; one that is here already keeps its session. Returns the sources that are new."""
        here = {id(source.drafter): source for source in self.sources}
        self.sources = [here.get(id(drafter)) or DraftSource(drafter) for drafter in drafters]
        for source in here.values():
            if source not in self.sources:
                source.close()
        return [source for source in self.sources if id(source.drafter) not in here]

    def _start(self, request: Request) -> None:
        prompt = request.prompt
        self.request = request
        self.ids = [int(i) for i in prompt]
        self.rule: RuleSession = self._rules.open(prompt, request.sampling, request.processors, request.sequence)
        limit = min(request.limit, self.capabilities.max_positions - len(prompt))
        self.stopping = Stopping(limit, request.end_ids, request.stop, request.criteria, request.seconds)
        self.finish: str | None = None
        self.error: Exception | None = None
        self._index = 0

    # What a planner sees.

    @property
    def drafters(self) -> list[Declaration | None]:
        return [s.declared if s.session is not None else None for s in self.sources]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def remaining(self) -> int:
        return self.stopping.remaining

    @property
    def greedy(self) -> bool:
        return self.request.sampling.greedy

    @property
    def traced(self) -> bool:
        return self.request.trace

    # What the loop does with it.

    @property
    def session(self) -> TargetSession:
        """The target's side."""
        if self._session is None:
            raise RuntimeError("the target has not read this request yet")
        return self._session

    def read(self, session: TargetSession, scores: Scores, seconds: float) -> None:
        """Take in the target's session of the prompt that it has just read."""
        self._session, self._scores, self.prefill_s = session, scores, seconds

    def watch(self) -> Watch | None:
        """Return who is to see the scores of text about to be read; None where no drafter asks for them."""
        return self._reading.begin([source.needs for source in self.sources])

    def begin(self) -> Emission:
        """Emit the token that reading the prompt has paid for."""
        if self._scores is None:
            raise RuntimeError("begin() follows a read() or turn()")
        verdict = self._decided(TokenTree.empty(), self._scores)
        self._scores = None
        self.ids += verdict.emitted
        for source in self.sources if verdict.emitted else ():
            source.extend(verdict.emitted)
        self._settled = True
        credit = (MODEL,) * len(verdict.emitted)
        return Emission(self.number, verdict.emitted, credit, None, self.finish, self.error)

    def _decided(self, tree: TokenTree, scores: Scores) -> Verdict:
        """Let the rule decide; whatever it fails on (broken scores, a processor) ends this text and no other."""
        try:
            verdict = self.rule.verify(tree, scores, self.stopping)
        except Exception as error:  # with a processor's or a criterion's own errors among them
            verdict = Verdict((), (), error=error)
        if verdict.error is not None:
            verdict = replace(verdict, finish="error")
        self.finish, self.error = verdict.finish, verdict.error
        return verdict

    def draft(self, asks: Sequence[Ask]) -> list[TokenTree]:
        """Ask every source; what breaks the contract counts as a failure, never as text."""
        self._settled = False
        started = perf_counter()
        by_source = tuple(s.step for s in self.sources)
        self.step = Step(self._index, len(self.ids), replayed=self.session.replay, by_source=by_source)
        self._index += 1
        vocab = self.capabilities.vocab_size
        trees = propose(self.sources, asks, vocab)
        self.step.draft_s = perf_counter() - started
        return trees

    def commit(self, plan: Plan, scores: Scores, again: Callable[[], Scores] | None = None) -> list[Feedback]:
        """Let the rule decide, keep what it accepted, tell the sources; returns the feedback per source.

        Where the text fails before this pass gave a token, there is none. ``again`` scores the root alone: needed,
        and called, where the pass held more than the root and its row is broken.
        """
        step = self.step
        started = perf_counter()
        verdict = self._decided(plan.tree, scores if again is None else CheckedScores(scores))
        if again is not None and isinstance(verdict.error, BrokenRowError):
            if verdict.emitted:  # the next pass begins at the row in doubt
                self.finish = self.error = None
                verdict = replace(verdict, finish=None, error=None)
            else:
                plan, scores = without_drafts(plan), again()
                verdict = self._decided(plan.tree, scores)
        tree = plan.tree
        verified = perf_counter()
        if not verdict.emitted:  # nothing to keep, and nothing that anybody could learn
            return []
        self.session.keep(verdict.path[: len(verdict.emitted) - 1])
        self.ids += verdict.emitted
        kept = perf_counter()
        feedback = outcome.feedback(
            self.sources, plan, verdict, scores,
            context=step.context, sampling=self.request.sampling, noise=self.rule.noise,
        )  # fmt: skip
        for source, lesson in zip(self.sources, feedback, strict=True):
            source.learn(lesson)
        outcome.record(step, tree, verdict)
        for source in self.sources:
            source.step = SourceStep()
        self._settled = True
        step.verify_s, step.keep_s = verified - started, kept - verified
        step.learn_s = perf_counter() - kept
        if self.request.trace:  # in no timing
            step.trace = (step.trace or {}) | outcome.trace(tree, verdict)
        return feedback

    def rescored(self, target: Target) -> Scores:
        """Score the last committed token again, in a pass that holds nothing else."""
        (scores,) = target.score([(self.session, self.ids[-1], TokenTree.empty())])
        return scores

    def emission(self) -> Emission:
        """Return what the last step gave."""
        step = self.step
        gained = step if step.emitted else None
        return Emission(self.number, step.emitted, step.sources, gained, self.finish, self.error)

    def turn(self, request: Request) -> int:
        """Go on with an edited or longer prompt (the next turn of a chat); reads only what is new.

        Returns how many tokens had to be read. `begin` comes next.
        """
        request.check(self.capabilities)
        refuse_mismatch(self.capabilities, request.drafters or ())
        started, prompt = perf_counter(), request.prompt
        common = common_prefix(self.ids, prompt)
        same_noise = (request.sampling, request.sequence) == (self.request.sampling, self.request.sequence)
        afresh = not (self._settled and same_noise)
        self._settled = False
        self.session.truncate(min(common, len(prompt) - 1, self.session.length))
        known = self.session.length
        again = self.session.replay
        self.ids = self.ids[:known]  # an interrupt while reading must not leave ids that the cache no longer holds
        new = self._engage(request.drafters) if request.drafters is not None else []
        watch, left = self.watch(), prompt[known:]
        self._scores = self.session.extend(left) if watch is None else self.session.extend(left, watch)
        self.prefill_s = perf_counter() - started
        self._start(request)
        if afresh:  # interrupted, a draft session may have learnt half a step; another noise needs another one
            self.open_sources()
        else:
            for source in self.sources:
                if source in new:
                    source.open(list(self.ids), self.rule.noise)
                else:
                    source.truncate(common)
                    source.extend(prompt[common:])
            self._reading.show(self.sources)
        return len(prompt) - known + again

    def open_sources(self) -> None:
        """Let every drafter read the text."""
        for source in self.sources:
            source.step = SourceStep()
            source.open(list(self.ids), self.rule.noise)  # a copy: it may be written to
        self._reading.show(self.sources)

    def close(self) -> None:
        """Close every session."""
        for source in self.sources:
            source.close()
        if self._session is not None and not sys.is_finalizing():  # its tensors may be gone already
            self._session.close()


@contextmanager
def open_sequences(
    target: Target, drafters: Sequence[Drafter], requests: Sequence[Request], rule: Rule
) -> Iterator[list[ActiveSequence]]:
    """Read the prompts and open every session; all are closed on the way out, however it is left.

    Raises
    ------
    CapabilityError
        If a drafter needs what the target lacks; before anything is read.
    PromptError, UsageError
        For requests that cannot be written; before anything is read.
    """
    refuse_mismatch(target.capabilities, drafters)
    for request in requests:
        request.check(target.capabilities)
        refuse_mismatch(target.capabilities, request.drafters or ())
    rows = [ActiveSequence(i, request, target, drafters, rule) for i, request in enumerate(requests)]
    try:
        started = perf_counter()
        watches = [row.watch() for row in rows]
        # Where nobody asks for it, a target need not know of it.
        asked = {"watch": [watch or unseen for watch in watches]} if any(watches) else {}
        reserve = max((r.limit for r in requests), default=0)
        opened = target.open([r.prompt for r in requests], reserve=reserve, **asked)
        seconds = perf_counter() - started
        for row, (session, scores) in zip(rows, opened, strict=True):
            row.read(session, scores, seconds)
        for row in rows:  # only now: what they raise must find every session of the target in its row
            row.open_sources()
        yield rows
    finally:
        for row in rows:
            row.close()


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts share from their beginning on."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differs[0]) if len(differs) else n
