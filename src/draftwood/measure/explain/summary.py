"""What the steps of one arm amount to: how much was drafted, why not more, and whether the planner was right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from draftwood.measure.explain.account import Account, source
from draftwood.measure.explain.why import Reason, reason
from draftwood.rates import Rates


@dataclass(frozen=True, slots=True)
class Spread:
    """Middle and largest of some numbers."""

    median: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Of those that are known; None where none is."""
        known = [v for v in values if v is not None]
        return cls(median(known), max(known)) if known else None


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the planner expected of passes, and what came; only passes of one request each.

    Attributes
    ----------
    passes
        So many were forecast.
    tokens, came
        Expected tokens, emitted tokens.
    ms, took
        Median expected and measured milliseconds of a pass.
    speedup, made
        Tokens per second over those of plain passes, as forecast and as they came; both by the planner's estimate
        of a plain pass.
    """

    passes: int
    tokens: float
    came: int
    ms: float
    took: float
    speedup: float
    made: float


@dataclass(frozen=True, slots=True)
class Hold:
    """What a policy did: steps that it held, most nodes in them, what it last saw; 0 steps: only what it saw."""

    policy: str
    steps: int
    nodes: int
    why: str


@dataclass(frozen=True, slots=True)
class Share:
    """Steps and the tokens that they emitted."""

    steps: int
    tokens: int


@dataclass(frozen=True, slots=True)
class SourceShare:
    """What one source did in all steps; a failed one was disabled in so many answers."""

    name: str
    calls: int
    proposed: int
    kept: int
    accepted: int
    failed: int
    draft_ms: float


@dataclass(frozen=True, slots=True)
class Summary:
    """All of it.

    Attributes
    ----------
    steps, tokens
        Passes and the tokens that they emitted.
    planned
        Steps of which the planner's account was kept.
    off
        Steps without a draft.
    reasons, off_reasons
        Reason -> its steps: of all, and of those without a draft.
    likeliest, node_cost
        Of steps in which candidates did not pay: probability of the best one, cost of the first node as a share of
        a plain pass.
    nodes
        Draft nodes of steps that carried a draft.
    forecast
        None where the planner weighed nothing.
    notes
        What the planner said of sources at last.
    """

    steps: int
    tokens: int
    planned: int
    rates: Rates
    off: Share
    reasons: dict[str, Share]
    off_reasons: dict[str, Share]
    likeliest: Spread | None
    node_cost: Spread | None
    nodes: Spread | None
    forecast: Forecast | None
    policies: tuple[Hold, ...]
    sources: tuple[SourceShare, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, told: Sequence[Account], names: Sequence[str] = ()) -> Summary:
        """Sum up the steps of one arm; ``names`` are those of its sources."""
        why = [(reason(account), account) for account in told]
        unlikely = [account for found, account in why if found is Reason.UNLIKELY]
        drafted = [a for a in told if a.step.drafted]
        return cls(
            steps=len(told),
            tokens=sum(len(a.step.emitted) for a in told),
            planned=sum(bool(a.plan) for a in told),
            rates=Rates.of([a.step for a in told]),
            off=_share([a for a in told if not a.step.drafted]),
            reasons=_shares(why),
            off_reasons=_shares([(each, a) for each, a in why if not a.step.drafted]),
            likeliest=Spread.of(a.likeliest for a in unlikely),
            node_cost=Spread.of(a.node_cost for a in unlikely),
            nodes=Spread.of(a.step.drafted for a in drafted),
            forecast=_forecast(told),
            policies=tuple(_holds(told)),
            sources=tuple(_source(told, i, name) for i, name in enumerate(names)),
            notes=told[-1].notes if told else (),
        )

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return asdict(self)


def _share(some: Sequence[Account]) -> Share:
    return Share(len(some), sum(len(a.step.emitted) for a in some))


def _shares(why: Sequence[tuple[Reason, Account]]) -> dict[str, Share]:
    """Reason -> its steps, the most frequent first."""
    found = Counter(each for each, _ in why)
    return {each.value: _share([a for r, a in why if r is each]) for each, _ in found.most_common()}


def _forecast(told: Sequence[Account]) -> Forecast | None:
    pairs = [(a, e, p) for a in told if a.rows == 1 and (e := a.expected) and (p := a.alternative(0))]
    took = sum(a.ms for a, _, _ in pairs)
    if not pairs or not took:
        return None
    tokens, came = sum(e.tokens for _, e, _ in pairs), sum(len(a.step.emitted) for a, _, _ in pairs)
    plain = sum(p.ms for _, _, p in pairs) / len(pairs)
    return Forecast(
        passes=len(pairs),
        tokens=tokens,
        came=came,
        ms=median(e.ms for _, e, _ in pairs),
        took=median(a.ms for a, _, _ in pairs),
        speedup=tokens * plain / sum(e.ms for _, e, _ in pairs),
        made=came * plain / took,
    )


def _holds(told: Sequence[Account]) -> Iterable[Hold]:
    """Policies that held a step, the one with most first, then those that only watched."""
    last: dict[str, str] = {}
    for account in told:
        last.update(account.policies)
    counted = Counter(name for a in told for name in a.held)
    for name, steps in counted.most_common():
        held = [a for a in told if name in a.held]
        seen = next((a.policies[name] for a in reversed(held) if name in a.policies), "")
        yield Hold(name, steps, max(a.step.drafted for a in held), seen)
    yield from (Hold(name, 0, 0, why) for name, why in last.items() if name not in counted)


def _source(told: Sequence[Account], index: int, name: str) -> SourceShare:
    each = [source(a.step, index) for a in told]
    return SourceShare(
        name,
        calls=sum(s.calls for s in each),
        proposed=sum(s.proposed for s in each),
        kept=sum(s.kept for s in each),
        accepted=sum(s.accepted for s in each),
        failed=sum(s.failed for s in each),
        draft_ms=1000 * sum(s.draft_s for s in each),
    )
