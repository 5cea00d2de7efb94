"""Cascades: a draft model that is itself a target, with drafters and a planner of its own.

Sources: Chen and others, "Cascade Speculative Drafting for Even Faster LLM Inference", arXiv 2312.11462; Spector
and Re, "Accelerating LLM Inference with Staged Speculative Decoding", arXiv 2308.04623.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, ClassVar

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Drafter, Floats, Needs, Noise, Planner, Target
from draftwood.contracts.declaring import refuse_mismatch
from draftwood.decoding.arrivals import read_whole
from draftwood.decoding.loop import one_pass
from draftwood.decoding.prompt_scores import watched_by
from draftwood.drafters.cascade.session import CascadeSession
from draftwood.drafters.draft_model.drafter import DraftTarget, ModelBackedDrafter
from draftwood.errors import CapabilityError, UsageError
from draftwood.planning.goodput import GoodputPlanner
from draftwood.tree import TokenTree

_FEW = 16
"""With more unread tokens, read them without asking whether it pays, and leave that time out of the average."""

_KEEP = 0.9  # weight of earlier steps in the average time of one
_CAP = 3.0  # a step counts as at most this many times what it usually takes
_FIRST = 4  # the fastest of the first steps counts: the very first ones prepare what later ones use
_DOUBT = 0.9
"""Factor on the estimate after each draft that it prevented: a too high one would never be measured again."""


class StageTime:
    """Average ``seconds`` of a step of the model, 0 at first; sessions in any thread share it."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._count, self._lock = 0, ChildSafeLock()

    def learn(self, seconds: float) -> None:
        with self._lock:
            self._count += 1
            if self._count <= _FIRST:
                self.seconds = min(self.seconds or seconds, seconds)
            else:
                self.seconds = _KEEP * self.seconds + (1 - _KEEP) * min(seconds, _CAP * self.seconds)

    def doubt(self) -> None:
        """Expect steps to take less."""
        with self._lock:
            self.seconds *= _DOUBT


@dataclass(frozen=True)
class CascadeDrafter(ModelBackedDrafter):
    """Proposes what a smaller model would write that has drafters of its own; these may be cascades, too.

    The ``target`` is the smaller model, on a cache of its own; records call it ``model``. A ``planner`` decides
    how much of what its ``drafters`` propose it scores. Raises `CapabilityError` where a drafter needs what the
    model lacks, or the model cannot take tokens back.
    """

    name: ClassVar[str] = "draft-model"

    model: str = "draft-model"
    drafters: tuple[Drafter, ...] = ()
    planner: Planner = field(default_factory=GoodputPlanner, repr=False)
    stage_time: StageTime = field(default_factory=StageTime, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target is None:
            raise UsageError("a cascade needs its model: give a target")
        self.refuse_states(self.own)
        can = self.own.capabilities
        refuse_mismatch(can, self.drafters)
        limited = (d.limited(can.vocab_size) if isinstance(d, ModelBackedDrafter) else d for d in self.drafters)
        object.__setattr__(self, "drafters", tuple(limited))

    @property
    def own(self) -> Target:
        """The smaller model."""
        assert self.found is not None
        return self.found.target

    @property
    def needs(self) -> Needs:
        return Needs(prices=True)

    @property
    def models(self) -> tuple[DraftTarget, ...]:
        """Its model, and those by which its drafters draft."""
        inner = [model for d in self.drafters if isinstance(d, ModelBackedDrafter) for model in d.models]
        return (*super().models, *inner)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> CascadeSession:  # type: ignore[override]
        room = self.own.capabilities.max_positions
        if len(prompt) >= room:
            raise CapabilityError(
                f"the prompt has {len(prompt)} tokens and the draft model {self.model!r} takes at most {room}: it "
                "drafts nothing here"
            )
        return CascadeSession(prompt, noise, self)

    def draft_many(
        self, sessions: Sequence[Any], nodes: Sequence[int],
        lookahead_nodes: Sequence[int], accept_rates: Floats,
        base_trees: Sequence[TokenTree] | None = None,
    ) -> Sequence[TokenTree]:  # fmt: skip
        """Return a chain per session, each written as long as another pass of the model pays, in shared passes.

        Whatever interrupts this, no session is left with a cache that does not fit its text.
        """
        going = [session for session, some in zip(sessions, nodes, strict=True) if session.begin(some)]
        try:
            if going:
                self._write(self._read(going, accept_rates), accept_rates)
        except BaseException:
            for session in sessions:
                session.drop()
            raise
        trees = [session.tree(accept_rates) for session in sessions]
        if any(session.is_short for session in going) and not any(session.stages for session in going):
            self.stage_time.doubt()
        return trees

    def _read(self, sessions: Sequence[CascadeSession], accept_rates: Floats) -> list[CascadeSession]:
        """Bring the model's cache in step with the committed texts; returns the texts that it can go on with.

        Few tokens are left unread where writing after them would not pay.
        """
        seconds = self.stage_time.seconds / len(sessions)
        new, ready = [session for session in sessions if session.is_new], list[CascadeSession]()
        behind: list[tuple[CascadeSession, list[int]]] = []
        for session in sessions:
            is_new, ids = session.is_new, session.unread()
            if not ids:
                ready.append(session)
            elif not is_new and (len(ids) > _FEW or session.pays(accept_rates, seconds)):
                behind.append((session, ids))
        known = [session for session, _ in behind]
        for session in (*new, *known):
            session.wants_more()
        if new:
            read_whole(self.own, [session.ahead for session in new])
            for session in new:
                session.ahead.open_sources()
                session.ahead.begin()
        if behind:
            self._read_on(behind, accept_rates)
        return [*ready, *new, *known]

    def _read_on(self, behind: Sequence[tuple[CascadeSession, list[int]]], accept_rates: Floats) -> None:
        """Read the rest of texts that are known but for their ends, in one pass."""
        started = perf_counter()
        asked = watched_by([session.ahead.watch_rest() for session, _ in behind])
        every = self.own.extend([(session.ahead.session, ids) for session, ids in behind], **asked)
        for (session, _), scores in zip(behind, every, strict=True):
            session.ahead.read_on(scores)
        seconds = perf_counter() - started
        if all(len(ids) <= _FEW for _, ids in behind):
            self.stage_time.learn(seconds)
        for session, _ in behind:
            session.count(accept_rates, 1, seconds / len(behind))

    def _write(self, ready: Sequence[CascadeSession], accept_rates: Floats) -> None:
        """Write on, in passes that all texts share, until no further pass pays.

        How much of the inner drafts a shared pass scores is one decision for all its texts, so one planner session
        makes it: that of the first text.
        """
        while ready:
            seconds = self.stage_time.seconds / len(ready)
            ready = [session for session in ready if session.pays(accept_rates, seconds)]
            if not ready:
                return
            for session in ready:
                session.wants_more()
            started = perf_counter()
            one_pass(self.own, ready[0].planner, [session.ahead for session in ready], perf_counter)
            seconds = perf_counter() - started
            self.stage_time.learn(seconds)
            for session in ready:
                step = session.ahead.step
                session.count(accept_rates, len(step.emitted), seconds / len(ready), step)
