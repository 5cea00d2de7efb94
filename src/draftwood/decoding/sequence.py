"""A request that is being written: its committed text and the sessions that follow it."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import (
    Declaration,
    Drafter,
    Feedback,
    Plan,
    Rule,
    RuleSession,
    SavedReading,
    Scores,
    Target,
    TargetSession,
    Verdict,
    Watch,
)
from draftwood.contracts.declaring import refuse_mismatch
from draftwood.decoding import feedback as outcome
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.feedback import BrokenRowError, CheckedScores
from draftwood.decoding.prompt_scores import PromptScores, hidden_layers, shown_too, watched_by
from draftwood.decoding.request import Emission, Request, Stopping
from draftwood.step import MODEL, SourceStep, Step
from draftwood.tree import TokenTree, constant

log = logging.getLogger("draftwood")

_NO_NODES = np.empty(0, dtype=np.intp)


class ActiveSequence:
    """A request under way; fulfils `contracts.State`, which is all that a planner sees of it.

    Its life: the prompt is read, in one piece or several (`read`); `begin` emits the first token; the drafters'
    sessions are opened (`open_sources`); each pass is a `begin_step` and a `commit`; after the end, `turn` may go
    on with a longer or edited prompt; `close` frees everything.
    """

    def __init__(
        self, number: int, request: Request, target: Target, drafters: Sequence[Drafter], rule: Rule
    ) -> None:
        self.number, self.target = number, target
        self.capabilities = target.capabilities
        self.sources: list[DraftSource] = []
        self._engage(drafters if request.drafters is None else request.drafters)
        self.prefill_s = 0.0
        self.step = Step(0, 0)
        self._rules = rule
        self._session: TargetSession | None = None
        self._scores: Scores | None = None  # of the prompt's last token, until `begin`
        self._settled = False  # False during a step, and after one that an interrupt cut off
        self._opened = False  # whether the drafters have read the text
        self.is_cancelled = False
        self._cancelled_as = "cancelled"
        self._kept: list[NDArray[np.intp]] = []  # permitted nodes per proposal; empty: all of them
        self._read = self._resumed = 0  # tokens of the prompt read so far; of these, by another text
        self._readings: Sequence[tuple[Drafter, SavedReading]] = ()
        self._reading = PromptScores()
        self._start(request)

    def _engage(self, drafters: Sequence[Drafter]) -> list[DraftSource]:
        """Take on these drafters; one that is here already keeps its session. Returns the sources that are new."""
        here = {id(source.drafter): source for source in self.sources}
        self.sources = [here.get(id(drafter)) or DraftSource(drafter) for drafter in drafters]
        for source in here.values():
            if source not in self.sources:
                source.close()
        for number, source in enumerate(self.sources):
            source.number = number
        self._lends_session = any([source.needs.target_session for source in self.sources])
        return [source for source in self.sources if id(source.drafter) not in here]

    def _start(self, request: Request) -> None:
        prompt = request.prompt
        self.request = request
        self.ids = [int(i) for i in prompt]
        self.rule: RuleSession = self._rules.open(prompt, request.sampling, request.processors, request.sequence)
        limit = min(request.limit, self.capabilities.max_positions - len(prompt))
        seconds = None if request.seconds is None else request.seconds - self.prefill_s
        self.stopping = Stopping(limit, request.end_ids, request.criteria, seconds)
        self.finish: str | None = None
        self.error: Exception | None = None
        self._index = 0
        for source in self.sources:
            source.ends, source.is_off = request.end_ids, source.declared.name in request.without

    # What a planner sees.

    @property
    def drafters(self) -> list[Declaration | None]:
        return [source.seat for source in self.sources]

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

    @property
    def is_open(self) -> bool:
        """True if the target has read at least the beginning of the prompt."""
        return self._session is not None

    @property
    def is_half_read(self) -> bool:
        """True if reading the new part of the prompt has begun and is not finished."""
        return self._resumed < self._read < len(self.request.prompt)

    @property
    def unread(self) -> int:
        """Tokens of the prompt that the target has not read yet."""
        return len(self.request.prompt) - self._read

    def next_piece(self, size: int) -> Sequence[int]:
        """Return the next tokens of the prompt to read, at most ``size``."""
        return self.request.prompt[self._read : self._read + size]

    def read(self, session: TargetSession, scores: Scores, seconds: float, tokens: int | None = None) -> None:
        """Take in what the target gave for the prompt, or for its next ``tokens``."""
        self._session, self._scores = session, scores
        self._read += self.unread if tokens is None else tokens
        self.prefill_s += seconds

    def resume(self, session: TargetSession, readings: Sequence[tuple[Drafter, SavedReading]] = ()) -> None:
        """Begin after the part of the prompt that a session has read already: all but one token at most.

        ``readings``: what drafters had learnt of it, as `readings` returned.
        """
        self._session, self._readings = session, readings
        self._read = self._resumed = session.length

    def go_back(self, length: int) -> None:
        """Forget what was read after the part of the prompt that another text had read; perhaps some of that."""
        self.session.truncate(length)
        self._read = self._resumed = self.session.length

    def readings(self) -> list[tuple[Drafter, SavedReading]]:
        """Return what the drafters have learnt of the text beyond its tokens, for `resume` of another text."""
        found = [
            (source.drafter, source.tell("save()", lambda session: session.save())) for source in self.sources
        ]
        return [(drafter, saved) for drafter, saved in found if saved is not None]

    def watch(self) -> Watch | None:
        """Return the watch that gets the scores of text about to be read; None where no drafter needs them."""
        asked, shown = self._watch(self.request.prompt, self._resumed), self.request.shown
        return asked if shown is None else shown_too(asked, shown)

    def _watch(self, text: Sequence[int], first: int = 0) -> Watch | None:
        needs = [source.needs for source in self.sources]
        return self._reading.begin(needs, self.capabilities, text, first, go_on=self._read > self._resumed)

    def cancel(self, finish: str = "cancelled") -> None:
        """Let the text end before the next pass, with this ``finish``; any thread may call it.

        A text without a token always ends with ``"cancelled"``.
        """
        self._cancelled_as = finish
        self.is_cancelled = True

    def fail(self, error: Exception) -> None:
        """End the text: its prompt cannot be read."""
        self.finish, self.error = "error", error

    def leaves(self) -> bool:
        """Whether the text was cancelled while it was being written or read; then it has ended now."""
        if self.is_cancelled and self.finish is None:
            self.finish = self._cancelled_as if self.stopping.emitted else "cancelled"
            return True
        return False

    def ended(self) -> Emission:
        """Return an emission without tokens, which says that the text has ended."""
        return Emission(self.number, (), (), None, self.finish, self.error)

    def begin(self) -> Emission:
        """Emit the first token, which follows from the scores of the prompt."""
        if self.finish is not None or self.leaves():
            return self.ended()
        if self._scores is None:
            raise RuntimeError("begin() follows a read() or turn()")
        verdict = self._decided(TokenTree.empty(), self._scores)
        self._scores = None
        self.ids += verdict.emitted
        for source in self.sources if self._opened and verdict.emitted else ():
            source.begin_answer(verdict.emitted)
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
            verdict = verdict._replace(finish="error")
        self.finish, self.error = verdict.finish, verdict.error
        return verdict

    def permitted(self, trees: Sequence[TokenTree]) -> Sequence[TokenTree]:
        """Return the proposals without nodes that the request forbids; the plan for `commit` is made of these."""
        permits, self._kept = self.request.permits, []
        if permits is None:
            return trees
        try:
            self._kept = [permits(self.ids, tree) if len(tree) else _NO_NODES for tree in trees]
        except Exception as error:  # no other text is hurt, and the rule looks at every token again
            log.warning("forbidden drafts could not be taken out, so all drafts are scored: %s", error)
            return trees
        return [tree.take(kept) for tree, kept in zip(trees, self._kept, strict=True)]

    def _of_all_nodes(self, plan: Plan) -> Plan:
        """Return a plan for permitted nodes as one for all that was proposed."""
        maps = []
        for source, kept, rows in zip(self.sources, self._kept, plan.node_map, strict=True):
            whole = np.full(len(source.proposal), -1, dtype=np.int32)
            whole[kept] = rows
            maps.append(whole)
        return plan._replace(node_map=tuple(maps))

    def begin_step(self) -> None:
        """Begin the record of a step; `commit` ends it."""
        self._settled = False
        by_source = tuple([s.step for s in self.sources])
        self.step = Step(self._index, len(self.ids), replayed=self.session.replay, by_source=by_source)
        self._index += 1

    def commit(self, plan: Plan, scores: Scores, *, alone: bool) -> list[Feedback]:
        """Let the rule decide, keep what it accepted, tell the sources; returns the feedback per source.

        Empty where the text failed before it gained a token. ``alone``: the pass held nothing but the root of this
        text; otherwise a root whose row is broken is scored again in a pass of its own.
        """
        if self._kept:
            plan = self._of_all_nodes(plan)
        step = self.step
        started = perf_counter()
        verdict = self._decided(plan.tree, scores if alone else CheckedScores(scores))
        if not alone and isinstance(verdict.error, BrokenRowError):
            if verdict.emitted:  # the next pass scores the broken row again, as its root
                self.finish = self.error = None
                verdict = verdict._replace(finish=None, error=None)
            else:
                plan = Plan(TokenTree.empty(), tuple([constant(-1, len(nodes)) for nodes in plan.node_map]))
                (scores,) = self.target.score([(self.session, self.ids[-1], plan.tree)])
                verdict = self._decided(plan.tree, scores)
        tree = plan.tree
        verified = perf_counter()
        emitted = verdict.emitted
        if not emitted:  # nothing to keep or to learn
            return []
        self.session.keep(verdict.path[: len(emitted) - 1])
        self.ids += emitted
        kept = perf_counter()
        feedback = self._teach(plan, verdict, scores)
        outcome.record(step, tree, verdict)
        for source in self.sources:
            source.step = SourceStep()
        self._settled = True
        step.verify_s, step.keep_s = verified - started, kept - verified
        step.learn_s = perf_counter() - kept
        if self.request.trace:  # after the clocks were read, so it counts in none
            step.trace = (step.trace or {}) | outcome.trace(tree, verdict)
        return feedback

    def _teach(self, plan: Plan, verdict: Verdict, scores: Scores) -> list[Feedback]:
        if not len(plan.tree) and all([source.can_wait for source in self.sources]):
            for source in self.sources:
                source.learn_later(verdict.emitted)
            return []
        feedback = outcome.feedback(
            self.sources, plan, verdict, scores,
            context=self.step.context, sampling=self.request.sampling, noise=self.rule.noise,
        )  # fmt: skip
        for source, lesson in zip(self.sources, feedback, strict=True):
            source.learn(lesson)
        return feedback

    def prepare_pass(self) -> None:
        """Say which hidden states the pass keeps; read again what the cache lost where a draft pass failed."""
        if self.capabilities.hidden:
            self.session.hidden = hidden_layers([source.needs_now for source in self.sources])
        if self._lends_session and self.session.length < len(self.ids) - 1:
            self.target.extend([(self.session, self.ids[self.session.length : -1])])

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
        self.open_sources()
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
        self._read = self._resumed = 0
        asked = watched_by([self._watch(prompt, known)])
        (self._scores,) = self.target.extend([(self.session, prompt[known:])], **asked)
        self.prefill_s, self._read = perf_counter() - started, len(prompt)
        self._start(request)
        if afresh:  # an interrupted session may have learnt half a step; a session is bound to its noise
            self._opened = False
            self.open_sources()
        else:
            for source in self.sources:
                if source in new:
                    source.open(list(self.ids), self.rule.noise, self.session)
                else:
                    source.truncate(common)
                    source.extend(prompt[common:])
            self._reading.show(self.sources)
        return len(prompt) - known + again

    def open_sources(self) -> None:
        """Let every drafter read the text, once; done after the first token, so that this comes sooner."""
        if self._opened:
            return
        self._opened, prompt = True, len(self.request.prompt)
        for source in self.sources:
            source.step = SourceStep()
            source.open(self.ids[:prompt], self.rule.noise, self._session)
            for drafter, saved in self._readings:
                if drafter == source.drafter:
                    source.resume(saved, self._resumed)
        self._readings = ()
        self._reading.show(self.sources)
        for source in self.sources if len(self.ids) > prompt else ():
            source.begin_answer(self.ids[prompt:])

    def draft_caches(self) -> list[int | None]:
        """Return the bytes that each drafter with a model holds of this text in caches of its own, if known."""
        sessions = [source.session for source in self.sources if source.needs.prices]
        return [session.cache_bytes for session in sessions if session is not None]

    def close(self) -> None:
        """Close every session."""
        for source in self.sources:
            source.close()
        if self._session is not None and not sys.is_finalizing():  # its tensors may be gone already
            self._session.close()


def common_prefix(a: Sequence[int] | NDArray[np.int64], b: Sequence[int] | NDArray[np.int64]) -> int:
    """How many tokens two texts share from their beginning on."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differs[0]) if len(differs) else n
