"""The arms of a bench: sets of drafters in our loop, and peers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter

from draftwood.api.learned import fresh
from draftwood.api.setup import Setup
from draftwood.api.user_texts import UserTexts, detached
from draftwood.contracts import Drafter, Planner, Rule
from draftwood.decoding.loop import decode_sequences
from draftwood.decoding.request import Request
from draftwood.decoding.sequence import ActiveSequence
from draftwood.engines.peer import Peer
from draftwood.measure.records.records import Answer
from draftwood.planning.load import load as load_planner
from draftwood.verify.load import label
from draftwood.verify.load import load as load_rule


class Arm:
    """A way to write answers."""

    label: str  # its name in records
    engine: str  # whose loop writes
    drafts = False  # whether it has steps that are worth a trace

    def begin_round(self) -> None:
        """Forget the tokens of earlier answers (memories, pools), keep what the planner learned."""

    def remember(self, ids: Sequence[int]) -> None:
        """Learn from an answer of this round that was written before an interrupt."""

    def run(self, request: Request, answer: Answer) -> None:
        """Write one answer into ``answer``: ids, steps or arrivals, seconds."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what is held between answers."""


@dataclass
class OurArm(Arm):
    """Drafters in our loop; ``none`` is plain decoding. What its planner and memory learn is not shared with other
    arms; the memory begins every round as its file or empty, so that no answer is copied, and is never saved."""

    label: str  # the drafters as typed, and those that ``sources`` add
    setup: Setup  # model, tokenizer and target that all arms share
    planner: str  # as typed; plain decoding uses none
    sources: UserTexts = field(default_factory=UserTexts)  # texts of the user that drafters draft from
    drafters: str | None = None  # as typed, if different from the label
    rule: str = "exact"  # as typed; plain decoding is always exact
    engine = "draftwood"
    _chosen: Planner = field(init=False)
    _rule: Rule = field(init=False)
    _round: Setup = field(init=False)

    def __post_init__(self) -> None:
        self.drafts = (self.drafters or self.label) != "none" or bool(self.sources.given)
        self.planner, rule = (self.planner, self.rule) if self.drafts else ("off", "exact")
        self._rule, self._chosen = load_rule(rule), load_planner(self.planner, fresh(self.setup.model))
        self.begin_round()

    def begin_round(self) -> None:
        # New drafters remember nothing of the round before; the planner and what it learned stay.
        drafters, sources = self.drafters or self.label, self.sources
        self._round = Setup(self.setup.model, self.setup.tokenizer, drafters, self._chosen, sources, self._rule)
        self._round.drafters = detached(self._round.predicting(sources.prediction) or self._round.drafters)

    def remember(self, ids: Sequence[int]) -> None:
        for drafter in self._round.drafters:
            drafter.remember(ids)

    def run(self, request: Request, answer: Answer) -> None:
        answer.drafters, answer.planner = self._round.names, self.planner
        answer.rule = label(self._rule) if self._rule.lossy else None
        started = perf_counter()
        with self._round.open([request]) as sequences:
            emissions = decode_sequences(self._round.target, self._chosen, sequences)
            answer.take(next(emissions))
            first = last = perf_counter()
            answer.prefill_s = first - started
            for emission in emissions:
                last = perf_counter()
                answer.take(emission)
            answer.draft_weight_bytes, answer.draft_cache_bytes = memory_of(self._round.drafters, sequences)
        answer.decode_s = last - first


class PeerArm(Arm):
    """Another engine on the same weights; peers keep nothing from one answer to the next."""

    def __init__(self, peer: Peer) -> None:
        self.peer, self.label, self.engine = peer, peer.name, peer.engine

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


def memory_of(drafters: Sequence[Drafter], sequences: Sequence[ActiveSequence]) -> tuple[int | None, int | None]:
    """Return bytes of weights, a model that several drafters share counted once, and bytes of the caches of these
    texts; None where no drafter has a model, or one does not tell."""
    weights = {id(model.target): model.weight_bytes for drafter in drafters for model in drafter.models}
    caches = [cache for sequence in sequences for cache in sequence.draft_caches()]
    parts = list(weights.values()), caches
    sums = [None if None in part or not part else sum(each or 0 for each in part) for part in parts]
    return sums[0], sums[1]
