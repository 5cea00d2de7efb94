"""One request under way: its committed text and the sessions that follow it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from draftwood.contracts import (
    Ask,
    Capabilities,
    Drafter,
    Feedback,
    Floats,
    Ints,
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
from draftwood.ending import Criterion, Ending, StopStrings
from draftwood.errors import CapabilityError, PromptError, UsageError
from draftwood.source import Source
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
    trace
        Keep each step's scored tree in its record (`Step.trace`).
    drafters
        Who proposes, where this request has drafters of its own (bound to what its user expects): as many, of the
        same names and in the same order as those that `open_rows` is given, which are meant by None.
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

    ``sources`` has the index of the drafter behind each token, `MODEL` for the target's own.
    """

    row: int
    tokens: tuple[int, ...]
    sources: tuple[int, ...]
    step: Step | None
    finish: str | None


class Row:
    """A request under way; fulfils `contracts.State`, which is all that a planner sees of it."""

    def __init__(
        self, number: int, request: Request, target: Target, drafters: Sequence[Drafter], rule: Rule
    ) -> None:
        self.number = number
        self.capabilities = target.capabilities
        self.sources: list[Source] = []
        self._engage(drafters if request.drafters is None else request.drafters)
        self.prefill_s = 0.0
        self.step = Step(0, 0)
        self._rules = rule
        self._session: TargetSession | None = None
        self._scores: Scores | None = None
        self._settled = False
        self._seen: list[tuple[int, Ints, Floats]] = []  # top-k of text that was read, until the sources have it
        self._start(request)

    def _engage(self, drafters: Sequence[Drafter]) -> list[Source]:
        """Take on these drafters; one that is here already keeps its session. Returns the sources that are new."""
        here = {id(source.drafter): source for source in self.sources}
        self.sources = [here.get(id(drafter)) or Source(drafter) for drafter in drafters]
        self._top_k = max((d.needs.top_k for d in drafters), default=0)
        self._watches = any(d.needs.prompt for d in drafters)
        self._hidden = sorted({layer for d in drafters for layer in d.needs.hidden})
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
        self.ending = Ending(limit, request.end_ids, request.stop, request.criteria)
        self.finish: str | None = None
        self._index = 0

    # What a planner sees.

    @property
    def drafters(self) -> list[Drafter | None]:
        return [s.drafter if s.session is not None else None for s in self.sources]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def remaining(self) -> int:
        return self.ending.remaining

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

    @property
    def watch(self) -> Watch | None:
        """Who is to see the scores of text that is read; None where no drafter asked for them."""
        return self._watch if self._watches else None

    def _watch(self, first: int, scores: Scores) -> None:
        self._seen.append((first, *scores.top_k(self._top_k)))

    def _show(self) -> None:
        seen, self._seen = self._seen, []
        for first, ids, probabilities in seen:
            for source in self.sources:
                source.observe(first, ids, probabilities)

    def begin(self) -> Emission:
        """Emit the token that reading the prompt has paid for."""
        if self._scores is None:
            raise RuntimeError("begin() follows a read() or turn()")
        verdict = self.rule.verify(TokenTree.empty(), self._scores, self.ending)
        self._scores, self.finish = None, verdict.finish
        self.ids += verdict.emitted
        for source in self.sources:
            source.extend(verdict.emitted)
        self._settled = True
        return Emission(self.number, verdict.emitted, (MODEL,), None, verdict.finish)

    def draft(self, asks: Sequence[Ask]) -> list[TokenTree]:
        """Ask every source; what breaks the contract counts as a failure, never as text."""
        self._settled = False
        started = perf_counter()
        by_source = tuple(s.step for s in self.sources)
        self.step = Step(self._index, len(self.ids), replayed=self.session.replay, by_source=by_source)
        self._index += 1
        vocab = self.capabilities.vocab_size
        trees = [source.draft(ask, vocab) for source, ask in zip(self.sources, asks, strict=True)]
        self.step.draft_s = perf_counter() - started
        return trees

    def commit(self, plan: Plan, scores: Scores) -> list[Feedback]:
        """Let the rule decide, keep what it accepted, tell the sources; returns the feedback per source."""
        step, tree = self.step, plan.tree
        started = perf_counter()
        verdict = self.rule.verify(tree, scores, self.ending)
        verified = perf_counter()
        self.session.keep(verdict.path[: len(verdict.emitted) - 1])
        self.ids += verdict.emitted
        self.finish = verdict.finish
        kept = perf_counter()
        feedback = self._feedback(plan, verdict, scores)
        for source, lesson in zip(self.sources, feedback, strict=True):
            source.learn(lesson)
        self._record(plan, verdict)
        self._settled = True
        step.verify_s, step.keep_s = verified - started, kept - verified
        step.learn_s = perf_counter() - kept
        if self.request.trace:  # in no timing
            step.trace = (step.trace or {}) | _trace(tree, verdict)
        return feedback

    def _feedback(self, plan: Plan, verdict: Verdict, scores: Scores) -> list[Feedback]:
        if not self.sources:
            return []
        tree = plan.tree
        top_k = scores.top_k(self._top_k) if self._top_k else None
        known = [-1] * (1 + len(tree)) if top_k is None else self._raw_choice(tree, *top_k).tolist()
        for node, token in zip((-1, *verdict.path), verdict.emitted, strict=False):  # the last node may be the end
            known[1 + node] = token
        choice = np.array(known, dtype=np.int32)
        hidden = {layer: scores.hidden(layer) for layer in self._hidden}
        return [
            Feedback(tree, s.proposal, rows, verdict.path, verdict.emitted, choice, top_k, hidden)
            for s, rows in zip(self.sources, plan.rows, strict=True)
        ]

    def _raw_choice(self, tree: TokenTree, ids: Ints, probabilities: Floats) -> Ints:
        """What the target would take off the path too, judged by the raw top-k and the noise alone."""
        noise, temperature = self.rule.noise, self.request.sampling.temperature
        if noise is None:
            return ids[:, 0]
        where = tree.positions(self.step.context)  # of what follows each row
        with np.errstate(divide="ignore"):
            scores = np.log(probabilities) / temperature
        for row, position in enumerate(where.tolist()):
            scores[row] += noise.gumbel(position, ids[row])
        return ids[np.arange(len(ids)), scores.argmax(axis=1)]

    def _record(self, plan: Plan, verdict: Verdict) -> None:
        step, tree = self.step, plan.tree
        step.emitted, step.finish = verdict.emitted, verdict.finish
        step.probed = tree.n_probes
        step.drafted, step.accepted = len(tree) - step.probed, len(verdict.path)
        step.depth = step.drafted if tree.is_chain else int(tree.depth[~tree.probe].max(initial=0))
        credit = tree.source[list(verdict.path)].tolist() if verdict.path else []
        step.sources = (*credit, *[MODEL] * (len(verdict.emitted) - len(credit)))
        for source in self.sources:
            source.step = SourceStep()

    def emission(self) -> Emission:
        """Return what the last step gave."""
        step = self.step
        return Emission(self.number, step.emitted, step.sources, step, step.finish)

    def turn(self, request: Request) -> int:
        """Go on with an edited or longer prompt (the next turn of a chat); reads only what is new.

        Returns how many tokens had to be read. `begin` comes next.
        """
        request.check(self.capabilities)
        started, prompt = perf_counter(), request.prompt
        common = common_prefix(self.ids, prompt)
        same_noise = (request.sampling, request.sequence) == (self.request.sampling, self.request.sequence)
        afresh = not (self._settled and same_noise)
        self._settled = False
        self.session.truncate(min(common, len(prompt) - 1, self.session.length))
        known = self.session.length
        again = self.session.replay
        self.ids = self.ids[:known]  # an interrupt while reading must not leave ids that the cache no longer holds
        self._seen = []
        watch = self.watch
        new_text = prompt[known:]
        self._scores = self.session.extend(new_text) if watch is None else self.session.extend(new_text, watch)
        self.prefill_s = perf_counter() - started
        self._start(request)
        new = self._engage(request.drafters) if request.drafters is not None else []
        if afresh:  # interrupted, a draft session may have learnt half a step; another noise needs another one
            self.open_sources()
        else:
            for source in self.sources:
                if source in new:
                    source.open(list(self.ids), self.rule.noise)
                else:
                    source.truncate(common)
                    source.extend(prompt[common:])
            self._show()
        return len(prompt) - known + again

    def open_sources(self) -> None:
        """Let every drafter read the text."""
        for source in self.sources:
            source.step = SourceStep()
            source.open(list(self.ids), self.rule.noise)  # a copy: it may be written to
        self._show()

    def close(self) -> None:
        """Close every session."""
        for source in self.sources:
            source.close()
        if self._session is not None:
            self._session.close()


@contextmanager
def open_rows(
    target: Target, drafters: Sequence[Drafter], requests: Sequence[Request], rule: Rule
) -> Iterator[list[Row]]:
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
    rows = [Row(i, request, target, drafters, rule) for i, request in enumerate(requests)]
    try:
        started = perf_counter()
        watches = [row.watch or _unseen for row in rows]
        kept = {"watch": watches} if any(row.watch for row in rows) else {}  # else a target need not know of it
        reserve = max((r.limit for r in requests), default=0)
        opened = target.open([r.prompt for r in requests], reserve=reserve, **kept)
        seconds = perf_counter() - started
        for row, (session, scores) in zip(rows, opened, strict=True):
            row.read(session, scores, seconds)
        for row in rows:  # only now: what they raise must find every session of the target in its row
            row.open_sources()
        yield rows
    finally:
        for row in rows:
            row.close()


def _unseen(first: int, scores: Scores) -> None:
    """Watch for a row whose drafters have not asked."""


def refuse_mismatch(capabilities: Capabilities, drafters: Sequence[Drafter]) -> None:
    """Raise `CapabilityError` where the set asks for what the target does not offer."""
    for drafter in drafters:
        needs = drafter.needs
        if capabilities.rollback == "none":
            raise CapabilityError(
                f"this target makes one token per pass and cannot take a rejected one back, so drafter "
                f"{drafter.name!r} cannot be used: decode with drafters='none'"
            )
        if needs.top_k and not capabilities.top_k:
            raise CapabilityError(f"drafter {drafter.name!r} needs top-k scores, which this target does not give")
        if missing := set(needs.hidden) - set(capabilities.hidden):
            raise CapabilityError(
                f"drafter {drafter.name!r} needs hidden states of layers {sorted(missing)}, "
                f"which this target does not give"
            )


def _trace(tree: TokenTree, verdict: Verdict) -> dict[str, Any]:
    found = {name: getattr(tree, name).tolist() for name in ("tokens", "parents", "source", "evidence", "probe")}
    return {**found, "belief": [round(b, 4) for b in tree.belief.tolist()], "path": list(verdict.path)}


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two texts share from their beginning on."""
    n = min(len(a), len(b))
    differs = np.flatnonzero(np.asarray(a[:n]) != np.asarray(b[:n]))
    return int(differs[0]) if len(differs) else n
