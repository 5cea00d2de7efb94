"""Sums up an arm's steps: how much was drafted, why not more, and whether the planner's forecast was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from draftwood.measure.explain.account import Account
from draftwood.measure.explain.why import Reason, reason
from draftwood.rates import Rates
from draftwood.step import StageStep, stages_of


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and maximum of some numbers."""

    median: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values that are not None; None if there are none."""
        known = [v for v in values if v is not None]
        return cls(median(known), max(known)) if known else None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the planner expected and what happened, over passes of one request each."""

    passes: int
    tokens: float  # expected
    came: int  # emitted
    ms: float  # median expected milliseconds of a pass
    took: float  # median measured milliseconds
    speedup: float  # expected tokens per second / those of plain passes by the planner's estimate
    made: float  # the same with the tokens and milliseconds that were measured


@dataclass(frozen=True, slots=True)
class Hold:
    """The effect of a policy; with 0 steps it only measured."""

    policy: str
    steps: int  # that it limited
    nodes: int  # most draft nodes in one of them
    why: str  # its last measurement


@dataclass(frozen=True, slots=True)
class Share:
    """Steps and the tokens that they emitted."""

    steps: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SourceShare:
    """The counts of one source over all steps."""

    name: str
    calls: int
    proposed: int
    kept: int
    accepted: int
    failed: int  # answers in which it failed and was disabled
    draft_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The summary of an arm."""

    steps: int
    tokens: int
    planned: int  # steps whose plan was recorded
    rates: Rates
    off: Share  # steps without a draft
    reasons: dict[str, Share]  # reason -> its steps
    off_reasons: dict[str, Share]  # the same for steps without a draft
    likeliest: Spread | None  # where candidates did not pay: predicted acceptance of the best one
    node_cost: Spread | None  # and there the cost of the first node as a share of a plain pass
    nodes: Spread | None  # draft nodes of steps that carried a draft
    forecast: Forecast | None  # None if the planner compared no draft sizes
    policies: tuple[Hold, ...]
    sources: tuple[SourceShare, ...]
    stages: tuple[StageStep, ...]  # of cascades: what their models did in all steps, by name
    notes: tuple[str, ...]  # the planner's last remarks about sources

    @classmethod
    def of(cls, accounts: Sequence[Account], names: Sequence[str] = ()) -> Summary:
        """Sum up the steps of an arm whose sources have these names."""
        why = [(reason(account), account) for account in accounts]
        unlikely = [account for found, account in why if found is Reason.UNLIKELY]
        drafted = [a for a in accounts if a.step.drafted]
        return cls(
            steps=len(accounts),
            tokens=sum(len(a.step.emitted) for a in accounts),
            planned=sum(bool(a.plan) for a in accounts),
            rates=Rates.of([a.step for a in accounts]),
            off=_share([a for a in accounts if not a.step.drafted]),
            reasons=_shares(why),
            off_reasons=_shares([(each, a) for each, a in why if not a.step.drafted]),
            likeliest=Spread.of(a.likeliest for a in unlikely),
            node_cost=Spread.of(a.node_cost for a in unlikely),
            nodes=Spread.of(a.step.drafted for a in drafted),
            forecast=_forecast(accounts),
            policies=tuple(_holds(accounts)),
            sources=tuple(_source(accounts, i, name) for i, name in enumerate(names)),
            stages=stages_of(own.stages for a in accounts for own in a.step.by_source),
            notes=accounts[-1].notes if accounts else (),
        )


def _share(some: Sequence[Account]) -> Share:
    return Share(len(some), sum(len(a.step.emitted) for a in some))


def _shares(why: Sequence[tuple[Reason, Account]]) -> dict[str, Share]:
    """Reason -> its steps, the most frequent first."""
    found = Counter(each for each, _ in why)
    return {each.value: _share([a for r, a in why if r is each]) for each, _ in found.most_common()}


def _forecast(accounts: Sequence[Account]) -> Forecast | None:
    pairs = [(a, e, p) for a in accounts if a.rows == 1 and (e := a.expected) and (p := a.alternative(0))]
    took = sum(a.ms for a, _, _ in pairs)
    if not pairs or not took:
        return None
    tokens, came = sum(e.tokens for _, e, _ in pairs), sum(len(a.step.emitted) for a, _, _ in pairs)
    plain = sum(p.ms for _, _, p in pairs) / len(pairs)
    return Forecast(
        passes=len(pairs), tokens=tokens, came=came,
        ms=median(e.ms for _, e, _ in pairs), took=median(a.ms for a, _, _ in pairs),
        speedup=tokens * plain / sum(e.ms for _, e, _ in pairs), made=came * plain / took,
    )  # fmt: skip


def _holds(accounts: Sequence[Account]) -> Iterable[Hold]:
    """Yield the policies that limited a step, the most frequent first, then those that only measured."""
    last: dict[str, str] = {}
    for account in accounts:
        last.update(account.policies)
    counted = Counter(name for a in accounts for name in a.held)
    for name, steps in counted.most_common():
        held = [a for a in accounts if name in a.held]
        seen = next((a.policies[name] for a in reversed(held) if name in a.policies), "")
        yield Hold(name, steps, max(a.step.drafted for a in held), seen)
    yield from (Hold(name, 0, 0, why) for name, why in last.items() if name not in counted)


def _source(accounts: Sequence[Account], index: int, name: str) -> SourceShare:
    each = [a.step.by_source[index] for a in accounts if index < len(a.step.by_source)]
    counts = {k: sum(getattr(s, k) for s in each) for k in ("calls", "proposed", "kept", "accepted", "failed")}
    return SourceShare(name, **counts, draft_ms=1000 * sum(s.draft_s for s in each))
