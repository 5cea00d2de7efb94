"""Step: the record of one decoding step, which every instrument reads.

A step is one pass of the target over a root and its tree. The first token comes from reading the prompt and
belongs to no step. A step holds counts and seconds only; `draftwood.rates` computes rates from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from draftwood.errors import UsageError

MODEL = -1
"""Source index of tokens that no drafter proposed: the target's own."""


@dataclass(frozen=True)
class StageStep:
    """What one model of a cascade did in one step: it writes ahead with drafters of its own."""

    name: str
    passes: int = 0  # of this model, those that only read text included
    proposed: int = 0  # draft nodes of its own drafters that it scored
    accepted: int = 0  # of these, the ones that it accepted
    seconds: float = 0.0  # of its whole loop, the stages below it included

    def __add__(self, other: StageStep) -> StageStep:
        """Return the sums, under this name."""
        return StageStep(
            self.name, self.passes + other.passes, self.proposed + other.proposed, self.accepted + other.accepted,
            self.seconds + other.seconds,
        )  # fmt: skip


def stages_of(some: Iterable[Iterable[StageStep]]) -> tuple[StageStep, ...]:
    """Return the sums of stages by name, in the order in which the names come first."""
    found: dict[str, StageStep] = {}
    for stages in some:
        for stage in stages:
            found[stage.name] = found.get(stage.name, StageStep(stage.name)) + stage
    return tuple(found.values())


@dataclass(slots=True)
class SourceStep:
    """What one drafter did in one step; filled in while the step is under way."""

    calls: int = 0  # times it was asked to draft: 0 or 1
    open_s: float = 0.0  # seconds of opening its session; in the first step of a request
    draft_s: float = 0.0
    learn_s: float = 0.0
    asked: int = 0  # draft nodes it was asked for
    proposed: int = 0  # draft nodes it proposed
    kept: int = 0  # of these, the ones that were scored
    accepted: int = 0  # of these, the ones that were accepted
    lookahead_nodes: int = 0  # its lookahead nodes that were scored
    match_length: int = 0  # committed tokens that its match covered; 0 for drafters that do not match
    failed: bool = False  # True in the step in which it raised or broke the contract, and was disabled
    stages: tuple[StageStep, ...] = ()  # of a draft model with drafters of its own, and of those among them


@dataclass(slots=True)
class Step:
    """One pass and everything around it; fields that end in ``_s`` are seconds.

    The loop, drafters' sources, planner and policies fill it in; afterwards it is not to be changed.
    """

    index: int  # number of the step within its request, from 0
    context: int  # committed tokens before the step, prompt included
    emitted: tuple[int, ...] = ()  # tokens committed by this step
    sources: tuple[int, ...] = ()  # of each, the index of the drafter that proposed it; `MODEL`: the target's own
    drafted: int = 0  # draft nodes scored
    lookahead_scored: int = 0
    depth: int = 0  # draft nodes on the longest branch that was scored
    accepted: int = 0  # draft nodes accepted and emitted
    replayed: int = 0  # committed tokens that the pass read again because a snapshot was restored
    finish: str | None = None  # why the text ended with this step, or None
    by_source: tuple[SourceStep, ...] = ()  # per drafter of the set
    plan_s: float = 0.0
    draft_s: float = 0.0
    score_s: float = 0.0  # the pass, which a batch shares
    verify_s: float = 0.0
    keep_s: float = 0.0
    learn_s: float = 0.0
    held: tuple[str, ...] = ()  # policies that made the draft shorter than the planner would
    temperature: float | None = None  # degrees Celsius; None unless a policy reads it, like `battery`
    battery: float | None = None  # charge as a share in [0, 1]
    trace: dict[str, Any] | None = None
    """Only if it was asked for: the scored tree's ``tokens``, ``parents``, ``source``, ``evidence``, ``belief``,
    ``lookahead`` and accepted ``path``, and in ``plan`` what the planner says about its choice."""

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return self.score_s + self.overhead_s

    @property
    def overhead_s(self) -> float:
        """Seconds of everything but the target's pass."""
        return self.plan_s + self.draft_s + self.verify_s + self.keep_s + self.learn_s

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; fields at their defaults are left out."""
        row = _row(self)
        if self.by_source:
            row["by_source"] = [_row(source) for source in self.by_source]
        for source in row.get("by_source", ()):
            if "stages" in source:
                source["stages"] = [dataclasses.asdict(stage) for stage in source["stages"]]
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Read a dictionary written by `to_json`; unknown fields raise `UsageError`."""
        fields = dict(row)
        for name in ("emitted", "sources", "held"):
            fields[name] = tuple(fields.get(name, ()))
        sources = [dict(source) for source in fields.get("by_source", ())]
        for source in sources:
            source["stages"] = tuple(_made(StageStep, stage) for stage in source.get("stages", ()))
        fields["by_source"] = tuple(_made(SourceStep, source) for source in sources)
        made: Self = _made(cls, fields)
        return made


def _row(record: Step | SourceStep) -> dict[str, Any]:
    return {f.name: value for f in dataclasses.fields(record) if (value := getattr(record, f.name)) != f.default}


def _made(kind: type[Any], row: Mapping[str, Any]) -> Any:
    if unknown := set(row) - {f.name for f in dataclasses.fields(kind)}:
        raise UsageError(f"a step row has unknown fields {sorted(unknown)}: written by another version?")
    return kind(**row)
