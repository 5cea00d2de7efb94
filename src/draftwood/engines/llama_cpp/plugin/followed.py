"""A text that another program writes: we draft, and learn what it took from how the text has grown."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Declaration, Drafter, Plan, PlannerSession, Sampling, Verdict
from draftwood.decoding.draft_source import DraftSource
from draftwood.decoding.feedback import feedback, record
from draftwood.decoding.propose import propose
from draftwood.engines.replay import ReplayScores
from draftwood.step import RunningSourceStep, RunningStep, Step

Tokens = NDArray[np.intc]


class FollowedText:
    """One request; fulfils `contracts.State`, which is all that a planner sees of it.

    Each draft is followed by the tokens of it that were accepted and one more, or by another text. The time until
    then is taken for that of the pass: it holds the other program's work on the tokens, too.

    Attributes
    ----------
    ids
        The text so far.
    steps
        One record per draft whose outcome is known.
    """

    greedy = False  # unknown; acceptance rates are learnt anyway
    traced = False

    def __init__(
        self, ids: Tokens, drafters: Sequence[Drafter], planner: PlannerSession, capabilities: Capabilities
    ) -> None:
        """Begin with a prompt and the first token of its answer."""
        self.ids = array("i", ids.tobytes())
        self.capabilities, self._planner = capabilities, planner
        self.steps: list[Step] = []
        self.step = RunningStep(0, len(self.ids))
        self._plan: Plan | None = None
        self._drafted: list[int] = []
        self._since = 0.0
        self._sources = [DraftSource(drafter) for drafter in drafters]
        for source in self._sources:
            source.open(ids[:-1].tolist(), None)
            source.begin_answer(ids[-1:].tolist())

    @property
    def drafters(self) -> list[Declaration | None]:
        return [source.declared if source.session is not None else None for source in self._sources]

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def remaining(self) -> int:
        return max(1, self.capabilities.max_positions - len(self.ids))

    def new_tokens(self, ids: Tokens) -> list[int] | None:
        """Return what ``ids`` adds to this text, or None where they are not what may follow the last draft."""
        known = len(self.ids)
        new: list[int] = ids[known : known + len(self._drafted) + 2].tolist()
        if not new or new[:-1] != self._drafted[: len(new) - 1]:
            return None
        return new if np.array_equal(np.frombuffer(self.ids, dtype=np.intc), ids[:known]) else None

    def draft(self) -> Tokens:
        """Return what may come next, possibly nothing."""
        started = perf_counter()
        (asks,) = self._planner.ask([self])
        asked = perf_counter()
        by_source = tuple(source.step for source in self._sources)
        self.step = RunningStep(len(self.steps), len(self.ids), by_source=by_source)
        proposals = propose(self._sources, asks, self.capabilities.vocab_size)
        drafted = perf_counter()
        (self._plan,) = self._planner.plan([self], [proposals])
        tokens = self._plan.tree.tokens.astype(np.intc)
        self._drafted = tokens.tolist()
        self._since = perf_counter()
        self.step.draft_s, self.step.plan_s = drafted - asked, asked - started + self._since - drafted
        return tokens

    def learn(self, new: Sequence[int]) -> None:
        """Take in the tokens that followed the last draft."""
        seen = perf_counter()
        step, plan = self.step, self._plan
        if plan is None:
            raise RuntimeError("learn() follows a draft()")
        step.score_s = seen - self._since
        verdict = Verdict(tuple(range(len(new) - 1)), tuple(new))
        lessons = feedback(
            self._sources, plan, verdict, ReplayScores(new, 0, plan.tree),
            context=step.context, sampling=Sampling(), noise=None,
        )  # fmt: skip
        for source, lesson in zip(self._sources, lessons, strict=True):
            source.learn(lesson)
        self.ids.extend(new)
        record(step, plan.tree, verdict)
        for source in self._sources:
            source.step = RunningSourceStep()
        step.learn_s = perf_counter() - seen
        taught = perf_counter()
        self._planner.learn([self], [lessons])
        step.plan_s += perf_counter() - taught
        self.steps.append(step.finished())

    def close(self) -> None:
        """Close the drafters' sessions."""
        for source in self._sources:
            source.close()
