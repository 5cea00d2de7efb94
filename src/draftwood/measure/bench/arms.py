"""The arms of a bench: drafters through our loop, and peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from draftwood.api.learned import fresh, planner_of
from draftwood.api.setup import Setup
from draftwood.api.user_texts import UserTexts, detached
from draftwood.contracts import Planner
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.engines.peer import Peer
from draftwood.measure.records.records import Answer


class Arm(Protocol):
    """A way to write answers."""

    @property
    def label(self) -> str:
        """What rows call it."""
        ...

    @property
    def engine(self) -> str:
        """Whose loop writes."""
        ...

    def begin_round(self) -> None:
        """Forget tokens (memories, pools), keep beliefs."""
        ...

    def remember(self, ids: Sequence[int]) -> None:
        """Take in an answer of this round that was written before an interrupt."""
        ...

    def run(self, request: Request, answer: Answer) -> None:
        """Write one answer into ``answer``: ids, steps or arrivals, seconds."""
        ...

    def close(self) -> None: ...


@dataclass
class OurArm:
    """Drafters through our loop; ``none`` is plain decoding.

    Parameters
    ----------
    label
        The drafters as typed, those that ``sources`` add included.
    setup
        Model, tokenizer and target that all arms share.
    planner
        As typed; plain decoding has none to pay for. What it learns is this arm's alone.
    sources
        What the drafters draft from beside the prompts. A memory is this arm's alone, begins every round as its
        file stands or empty, and is never saved, so that no answer is copied from another arm or round.
    drafters
        The drafters as typed, where that is not the label.
    """

    label: str
    setup: Setup
    planner: str
    sources: UserTexts = field(default_factory=UserTexts)
    drafters: str | None = None
    engine = "draftwood"
    _spec: str = field(init=False)
    _chosen: Planner = field(init=False)
    _round: Setup = field(init=False)

    def __post_init__(self) -> None:
        plain = (self.drafters or self.label) == "none" and not self.sources.given
        self._spec = "off" if plain else self.planner
        self._chosen = planner_of(self._spec, fresh(self.setup.model), self.setup.tokenizer)
        self.begin_round()

    def begin_round(self) -> None:
        # Drafters made anew hold no memory of the round before; the planner, and with it the beliefs, stays.
        drafters, sources = self.drafters or self.label, self.sources
        self._round = Setup(self.setup.model, self.setup.tokenizer, drafters, self._chosen, sources)
        bound = self._round.predicting(sources.prediction) or self._round.drafters
        self._round.drafters = detached(bound)

    def remember(self, ids: Sequence[int]) -> None:
        for drafter in self._round.drafters:
            if remember := getattr(drafter, "remember", None):
                remember(ids)

    def run(self, request: Request, answer: Answer) -> None:
        answer.drafters, answer.planner = self._round.names, self._spec
        started = perf_counter()
        with self._round.open([request]) as rows:
            emissions = decode_sequences(self._round.target, self._chosen, rows)
            answer.take(next(emissions))
            first = last = perf_counter()
            answer.prefill_s = first - started
            for emission in emissions:
                last = perf_counter()
                answer.take(emission)
        answer.decode_s = last - first

    def close(self) -> None:
        """Nothing is held between answers."""


@dataclass
class PeerArm:
    """Somebody else's way, on the same weights."""

    peer: Peer

    @property
    def label(self) -> str:
        return self.peer.name

    @property
    def engine(self) -> str:
        return self.peer.engine

    def begin_round(self) -> None:
        """Nothing to forget: peers hold no token from one answer to the next."""

    def remember(self, ids: Sequence[int]) -> None:
        """As little as there is to forget."""

    def run(self, request: Request, answer: Answer) -> None:
        given = self.peer.answer(
            list(request.prompt), request.limit, end_ids=request.end_ids, sampling=request.sampling
        )
        answer.output_ids = given.ids
        answer.finish_reason = "eos" if given.ids and given.ids[-1] in request.end_ids else "length"
        start = given.arrivals[0][1] if given.arrivals else 0.0
        answer.arrivals = [[n, t - start] for n, t in given.arrivals]
        answer.prefill_s, answer.decode_s = given.prefill_s, given.decode_s
        answer.drafted, answer.accepted, answer.passes = given.drafted, given.accepted, given.passes

    def close(self) -> None:
        self.peer.close()
