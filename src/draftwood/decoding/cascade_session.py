"""One text of a cascade: what its draft model has written ahead of it, and whether to write more."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Protocol, Self

import numpy as np

from draftwood.contracts import Drafter, Floats, Noise, Planner, PlannerSession, Prices, Target
from draftwood.decoding.ahead import Ahead
from draftwood.decoding.stage_counts import StageCounts
from draftwood.drafters.draft_model.candidates import Candidate
from draftwood.drafters.draft_model.evidence import evidence_class
from draftwood.drafters.draft_model.readable import ReadableText
from draftwood.step import RunningStep, StageStep
from draftwood.tree import TokenTree

_HOPE, _MOST_HOPE = 0.7, 0.999  # belief in the next token: at first, and the most that is counted on
_KEEP = 0.95  # weight of earlier tokens and passes in the averages


class Writer(Protocol):
    """What a session knows of its cascade (`draftwood.decoding.cascade.CascadeDrafter`)."""

    @property
    def model(self) -> str: ...

    @property
    def drafters(self) -> tuple[Drafter, ...]: ...

    @property
    def target(self) -> Target: ...

    @property
    def planner(self) -> Planner: ...

    def draft_many(
        self, sessions: Sequence[Any], nodes: Sequence[int], lookahead_nodes: Sequence[int], accept_rates: Floats
    ) -> Sequence[TokenTree]: ...


class CascadeSession(ReadableText):
    """One text, and the text that the draft model writes ahead of it; a `draftwood.contracts.DraftSession`.

    Attributes
    ----------
    prices
        What a token is worth; set before each draft.
    stages
        What the model, and the models among its drafters, did for the last draft.
    """

    def __init__(
        self, prompt: Sequence[int], noise: Noise | None, cascade: Writer, *, depth: int, p_min: float, room: int,
        vocab_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(prompt)
        self.prices, self.ends = Prices(), frozenset[int]()
        self.stages: tuple[StageStep, ...] = ()
        self._cascade, self._noise = cascade, noise
        self._depth, self._p_min, self._room, self._vocab_size = depth, p_min, room, vocab_size
        self._planner = cascade.planner.open()
        self._ahead: Ahead | None = None
        self._hope, self._pace = _HOPE, 1.0  # pace: tokens that a pass of the model writes
        self._most = 0  # tokens of the draft under way
        self._counts = StageCounts(cascade.model)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        return self._cascade.draft_many([self], [nodes], [lookahead_nodes], accept_rates)[0]

    def truncate(self, length: int) -> None:
        super().truncate(length)
        if self._ahead is not None:
            self._ahead.cut(self._length)
        if not self._length:
            self.drop()

    def fork(self) -> Self:
        twin = super().fork()
        twin._planner, twin._counts = self._cascade.planner.open(), StageCounts(self._cascade.model)
        if self._ahead is not None:
            twin._ahead = self._ahead.fork()
        return twin

    def close(self) -> None:
        super().close()
        self.drop()

    def drop(self) -> None:
        """Free the model's cache; the next draft reads the text again."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.close()

    # What `CascadeDrafter.draft_many` does with it.

    def begin(self, nodes: int) -> bool:
        """Begin a draft; returns whether there is anything to write, which there is not behind unknown tokens."""
        self._counts = StageCounts(self._cascade.model)
        readable = self._length and self.can_read(self._cascade.target)
        self._most = max(0, min(nodes, self._depth, self._room - self._length)) if readable else 0
        return self._most > 0

    @property
    def is_new(self) -> bool:
        """Whether the model has read nothing of the text."""
        return self._ahead is None

    def unread(self) -> list[int]:
        """Follow the committed text; returns what of it the model must read before its next pass."""
        if self._ahead is None:
            text = self.text.tolist()
            self._ahead = Ahead(text, self._noise, self._cascade.target, self._cascade.drafters)
            return text
        return self._ahead.follow(self.text)

    @property
    def cache_bytes(self) -> int | None:
        """Bytes that the cached tokens take in the caches of its model and of its drafters; None: not known."""
        if self._ahead is None or not self._ahead.is_open:
            return 0
        every = [getattr(self._ahead.session, "cache_bytes", None), *self._ahead.draft_caches()]
        known = [each for each in every if each is not None]
        return sum(known) if len(known) == len(every) else None

    @property
    def ahead(self) -> Ahead:
        """The text that the model writes."""
        assert self._ahead is not None, "unread() makes it"
        return self._ahead

    @property
    def planner(self) -> PlannerSession:
        """The planner session that decides how much of the inner drafts the model scores."""
        return self._planner

    @property
    def is_short(self) -> bool:
        """Whether the draft may have more tokens."""
        written = self._written()
        if len(written) >= self._most or self.ahead.finish == "error" or not all(map(self._proposes, written)):
            return False
        return not (written and written[-1].token in self.ends)

    def pays(self, accept_rates: Floats, seconds: float) -> bool:
        """Whether another pass of the model, which takes so many seconds, is worth its time."""
        if not self.is_short:
            return False
        prices = self.prices
        if not prices.pass_s:
            return True
        reach, hope = 1.0, min(self._hope, _MOST_HOPE)
        for _, belief in self._believed(self._written(), accept_rates):
            reach *= belief
        accepted = reach * hope * (1 - hope**self._pace) / (1 - hope)  # of what the pass writes, by the target
        return prices.pass_s * (accepted * prices.token - self._pace * prices.node) > seconds

    def wants_more(self) -> None:
        """Let the model write the tokens that are still missing."""
        self.ahead.wants(self._most - len(self._written()))

    def count(self, accept_rates: Floats, tokens: int, seconds: float, step: RunningStep | None = None) -> None:
        """Record a pass that wrote so many tokens; ``step`` is None where it only read text."""
        self._counts.add(seconds, step)
        if step is not None:
            self._pace = _KEEP * self._pace + (1 - _KEEP) * max(1, tokens)
        believed = self._believed(self._written(), accept_rates)
        for _, belief in believed[len(believed) - tokens :] if tokens else ():
            self._hope = _KEEP * self._hope + (1 - _KEEP) * belief

    def tree(self, accept_rates: Floats) -> TokenTree:
        """Return the draft."""
        self.stages = self._counts.finished()
        written = self._written() if self._most else []
        written = list(takewhile(self._proposes, written))
        if not written:
            return TokenTree.empty()
        believed = self._believed(written, accept_rates)
        return TokenTree.build(
            [one.token for one in written],
            belief=np.array([belief for _, belief in believed], dtype=np.float32),
            evidence=[evidence for evidence, _ in believed],
            draft_prob=np.array([one.probability for one in written], dtype=np.float32),
        )

    def _written(self) -> list[Candidate]:
        return self.ahead.ahead_of(self._length)[: self._most]

    def _proposes(self, one: Candidate) -> bool:
        """Whether the draft takes this token in; it ends before the first that it does not."""
        known = self._vocab_size is None or one.token < self._vocab_size
        return known and one.confidence >= self._p_min

    @staticmethod
    def _believed(written: Sequence[Candidate], accept_rates: Floats) -> list[tuple[int, float]]:
        """Return evidence class and acceptance rate of each token that was written ahead."""
        classes = [evidence_class(one.confidence, depth, copied=False) for depth, one in enumerate(written, 1)]
        return [(evidence, float(accept_rates[evidence])) for evidence in classes]
