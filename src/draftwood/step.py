"""Step: the record of one decoding step, which every instrument reads.

A step is one pass of the target over a root and its tree. The first token comes from reading the prompt and
belongs to no step. A step holds counts and seconds only; `draftwood.rates` computes rates from them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
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

    Attributes
    ----------
    index
        Number of the step within its request, from 0.
    context
        Committed tokens before the step, prompt included.
    emitted
        Tokens committed by this step.
    sources
        For each emitted token the index of the drafter that proposed it, `MODEL` for the target's own.
    drafted, lookahead_scored
        Draft nodes and lookahead nodes that were scored.
    depth
        Draft nodes on the longest branch that was scored.
    accepted
        Draft nodes accepted and emitted.
    replayed
        Committed tokens that the pass read again, if the target rolls back by restoring a snapshot.
    finish
        Why the text ended with this step, or None.
    by_source
        One entry per drafter of the set, in its order.
    plan_s, draft_s, score_s, verify_s, keep_s, learn_s
        Seconds of each part; ``score_s`` is the pass, which a batch shares.
    held
        Policies that made the draft shorter than the planner would.
    temperature, battery
        Degrees Celsius, and charge as a share in [0, 1]; None unless a policy reads them.
    trace
        Only if it was asked for: the scored tree's ``tokens``, ``parents``, ``source``, ``evidence``, ``belief``,
        ``lookahead`` and accepted ``path``, and in ``plan`` what the planner says about its choice.
    """

    index: int
    context: int
    emitted: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    drafted: int = 0
    lookahead_scored: int = 0
    depth: int = 0
    accepted: int = 0
    replayed: int = 0
    finish: str | None = None
    by_source: tuple[SourceStep, ...] = ()
    plan_s: float = 0.0
    draft_s: float = 0.0
    score_s: float = 0.0
    verify_s: float = 0.0
    keep_s: float = 0.0
    learn_s: float = 0.0
    held: tuple[str, ...] = ()
    temperature: float | None = None
    battery: float | None = None
    trace: dict[str, Any] | None = None

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
        row = _said(self, _STEP_DEFAULTS)
        if self.by_source:
            row["by_source"] = [_source_row(source) for source in self.by_source]
        return row

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Read a dictionary written by `to_json`, 0.1.0 included; unknown fields raise `UsageError`."""
        fields = _renamed(row)
        for name in ("emitted", "sources", "held"):
            fields[name] = tuple(fields.get(name, ()))
        fields["by_source"] = tuple(_source_step(source) for source in fields.get("by_source", ()))
        return cls(**_known(cls, fields))


_OLD_NAMES = {"probed": "lookahead_scored", "probes": "lookahead_nodes", "probe": "lookahead"}
"""Names of fields in files that 0.1.0 wrote."""


def _renamed(row: Mapping[str, Any]) -> dict[str, Any]:
    found = {_OLD_NAMES.get(name, name): value for name, value in row.items()}
    if "by_source" in found:
        found["by_source"] = [_renamed(source) for source in found["by_source"]]
    if isinstance(found.get("trace"), Mapping):
        found["trace"] = _renamed(found["trace"])
    return found


def _said(record: Step | SourceStep, defaults: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {name: value for name, default in defaults if (value := getattr(record, name)) != default}


def _source_row(source: SourceStep) -> dict[str, Any]:
    row = _said(source, _SOURCE_DEFAULTS)
    if source.stages:
        row["stages"] = [dataclasses.asdict(stage) for stage in source.stages]
    return row


def _source_step(row: Mapping[str, Any]) -> SourceStep:
    fields = dict(_known(SourceStep, row))
    if "stages" in fields:
        fields["stages"] = tuple(StageStep(**_known(StageStep, stage)) for stage in fields["stages"])
    return SourceStep(**fields)


def _defaults(kind: type[Step | SourceStep]) -> tuple[tuple[str, Any], ...]:
    return tuple((f.name, f.default) for f in dataclasses.fields(kind))


_STEP_DEFAULTS, _SOURCE_DEFAULTS = _defaults(Step), _defaults(SourceStep)


def _known(kind: type[Step | SourceStep | StageStep], row: Mapping[str, Any]) -> Mapping[str, Any]:
    if unknown := set(row) - {f.name for f in dataclasses.fields(kind)}:
        raise UsageError(f"a step row has unknown fields {sorted(unknown)}: written by another version?")
    return row
