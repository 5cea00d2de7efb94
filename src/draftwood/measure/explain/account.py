"""A step with what its planner recorded about its choice, and the reason that can be read from it; records of
older versions hold less."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from draftwood.measure.wording import count, share
from draftwood.step import Step

_NUMBERS = (int, float)
_KNOWN: Mapping[str, tuple[type, ...]] = {
    "planner": (str,), "explored": (bool,), "floor": _NUMBERS, "overhead_ms": _NUMBERS,
    **dict.fromkeys(
        ("nodes", "most", "asked", "candidates", "chosen", "pooled", "best", "context", "rows"), (int,)
    ),
}  # fmt: skip
_MOST, _LEAST_MS = 1e15, 1e-6  # bounds of what a real pass can have


class Reason(StrEnum):
    """Why a step drafted as much as it did."""

    OFF = "off"  # drafting was switched off
    HELD = "held"  # a policy limited the draft
    EXPLORED = "explored"  # another size than the best was tried, to measure its cost
    END = "end"  # the text had room for one token only
    RESTED = "rested"  # sources were not asked, because none of their drafts had paid for a while
    NOTHING = "nothing"  # no source had a candidate
    UNLIKELY = "unlikely"  # no candidate was worth its cost
    ALL = "all"  # every candidate was worth its cost
    PART = "part"  # more candidates would not have been worth their cost
    MOST = "most"  # as many as the planner may score; more might have been worth their cost
    LIKELY = "likely"  # every candidate above the planner's threshold
    FIXED = "fixed"  # the planner scores a fixed number
    COUNTS = "counts"  # no reason was recorded, only counts


_RULES = ("fixed", "threshold")  # planners that compare no draft sizes
_PLAIN = {
    Reason.OFF: "drafting is off",
    Reason.END: "one token was left to write",
    Reason.RESTED: "sources were not asked",
    Reason.NOTHING: "no source had a candidate",
}


class Alternative(NamedTuple):
    """A draft size that the planner considered: nodes, and the tokens and milliseconds it expected of the pass."""

    nodes: int
    tokens: float
    ms: float

    @property
    def rate(self) -> float:
        """Goodput: expected tokens per second."""
        return 1000 * self.tokens / self.ms


class StepAccount:
    """A step, its ``number`` in the answer from 1, and its recorded plan without what is unknown or malformed:
    single values in ``plan``, the draft sizes that the planner compared in ``alternatives``, smallest first."""

    def __init__(self, number: int, step: Step) -> None:
        self.number, self.step, self.ms = number, step, 1000 * step.seconds
        trace = step.trace if isinstance(step.trace, Mapping) else {}
        given = found if isinstance(found := trace.get("plan"), Mapping) else {}
        self.plan: dict[str, Any] = {
            name: value
            for name, kinds in _KNOWN.items()
            if type(value := given.get(name)) in kinds and (isinstance(value, str) or 0 <= value < _MOST)  # type: ignore[operator]
        }
        self.alternatives = _alternatives(given.get("alternatives"))
        policies = [_listed(each) for each in _listed(given.get("policies"))]
        self.policies = {str(each[0]): str(each[1]) for each in policies if len(each) >= 2}
        self.notes = [str(note) for note in _listed(given.get("sources"))]
        # Most draft nodes that a source was asked for; nodes of all sources, before equal ones were merged;
        # requests that shared the pass; this request's scored nodes, and those of all requests.
        self.asked = self.plan.get("asked", max((s.asked for s in step.by_source), default=None))
        self.proposed = sum(s.proposed for s in step.by_source)
        self.rows = int(self.plan.get("rows", 1))
        self.chosen = int(self.plan.get("chosen", step.drafted))
        self.pooled = int(self.plan.get("pooled", self.chosen))
        # Policies that limited this draft: those with a limit, if all candidates within it were scored.
        cut = self.chosen >= self.plan.get("candidates", 0) and self.proposed >= (self.asked or 0)
        self.held = step.held if cut else ()

    def alternative(self, nodes: int) -> Alternative | None:
        """Return what the planner expected of a pass over this many draft nodes."""
        return next((a for a in self.alternatives if a.nodes == nodes), None)

    @property
    def expected(self) -> Alternative | None:
        """What the planner expected of the pass that was made; None where several requests shared it."""
        return self.alternative(self.pooled) if self.rows == 1 else None

    @property
    def odds(self) -> tuple[float, float] | None:
        """Predicted acceptance of the best candidate, and the extra time for the first draft node as a share of
        a plain pass; None where they are not known, or may belong to another request."""
        none, one = self.alternative(0), self.alternative(1)
        if none is None or one is None or self.rows > 1:
            return None
        return max(0.0, min(1.0, one.tokens - none.tokens)), max(0.0, one.ms / none.ms - 1)

    @cached_property
    def reason(self) -> Reason:
        """The reason that decided; a policy's limit takes precedence over all others."""
        plan, chosen, candidates = self.plan, self.chosen, self.plan.get("candidates")
        if self.held:
            return Reason.HELD
        if plan.get("explored") and (chosen or not self.pooled):  # else other requests had these nodes
            return Reason.EXPLORED
        if not chosen:
            return self._undrafted()
        if self.alternatives and candidates is not None:
            if chosen >= candidates:
                return Reason.ALL
            return Reason.MOST if chosen >= plan.get("most", candidates) else Reason.PART
        if plan.get("planner") not in _RULES:
            return Reason.COUNTS
        if chosen >= plan.get("nodes", 1 + chosen):
            return Reason.FIXED if plan["planner"] == "fixed" else Reason.MOST
        return Reason.LIKELY if plan.get("floor") or plan["planner"] == "threshold" else Reason.FIXED

    def _undrafted(self) -> Reason:
        plan = self.plan
        if not self.step.by_source or plan.get("planner") == "off":
            return Reason.OFF
        if self.asked == 0:
            if self.step.finish == "length" or plan.get("nodes"):  # it might draft but asked for nothing
                return Reason.END
            return Reason.OFF if plan.get("planner") in _RULES or plan.get("most") == 0 else Reason.RESTED
        return Reason.UNLIKELY if plan.get("candidates", self.proposed) else Reason.NOTHING

    @property
    def words(self) -> str:
        """The reason in a few words, with its numbers."""
        plan, chosen = self.plan, self.chosen
        known, floor, best, most = (plan.get(name) for name in ("candidates", "floor", "best", "nodes"))
        each = "the one candidate" if chosen == 1 else f"all {chosen} candidates"
        some = f"{self.proposed} proposed" if known is None else f"{known} candidates"
        match self.reason:
            case Reason.HELD:
                named = [f"{name} ({said})" if (said := self.policies.get(name)) else name for name in self.held]
                did = f"held it to {count(chosen, 'node')}" if chosen else "stopped drafting"
                return f"{' and '.join(named)} {did}"
            case Reason.EXPLORED:
                instead = f", not {best}," if best is not None and best != self.pooled else ""
                shared = f" for {self.rows} requests" if self.rows > 1 else ""
                return f"tried {count(self.pooled, 'node')}{shared}{instead} to see the cost"
            case Reason.UNLIKELY if floor:
                return f"no candidate was as likely as {share(floor)}"
            case Reason.UNLIKELY if self.odds:
                return f"best candidate {share(self.odds[0])}, a node costs {share(self.odds[1])} of a pass"
            case Reason.UNLIKELY:
                return "no candidate was likely enough"
            case Reason.ALL:
                return f"{each} pay{'s' * (chosen == 1)}"
            case Reason.PART:
                return f"of {known} candidates {chosen} pay best"
            case Reason.MOST:
                return f"{chosen} of {some} scored, no more may be"
            case Reason.LIKELY:
                least = f" ({share(floor)} at least)" if floor is not None else ""
                these = f"of {known} candidates {chosen}" if known is not None and chosen < known else each
                return f"{these} likely enough{least}"
            case Reason.FIXED if known == chosen and most is not None and known < most:
                return f"{each} scored, {most} at most"
            case Reason.FIXED:
                return f"{chosen} of {some} scored, a fixed number"
        return _PLAIN.get(self.reason, f"{chosen} of {some} scored")


def accounts(steps: Sequence[Step]) -> list[StepAccount]:
    """Return an account per step of one answer."""
    return [StepAccount(number, step) for number, step in enumerate(steps, start=1)]


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, (list, tuple)) else ()


def _alternatives(given: Any) -> list[Alternative]:
    rows = [row for each in _listed(given) if len(row := _listed(each)[:3]) == 3]
    whole = [row for row in rows if {type(value) for value in row} <= set(_NUMBERS)]
    valid = [r for r in whole if 0 <= r[0] < _MOST and 0 <= r[1] < _MOST and _LEAST_MS <= r[2] < _MOST]
    return sorted({Alternative(int(nodes), float(tokens), float(ms)) for nodes, tokens, ms in valid})


_TOKENS = 1 << 31  # token ids lie below it
_COLUMNS: Mapping[str, tuple[type, ...]] = {
    "source": (int,), "evidence": (int,), "belief": _NUMBERS, "lookahead": (bool,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Tree:
    """Nodes as `Step.trace` lists them; parents come before their children, -1 is the root."""

    tokens: Sequence[int]
    parents: Sequence[int]
    path: Sequence[int]  # the accepted nodes, from the root on
    columns: Mapping[str, Sequence[Any]]  # source, evidence, belief, lookahead: each only if every node has one

    @classmethod
    def of(cls, step: Step) -> Tree | None:
        """Return the tree that the pass scored; None if there is none or the trace is malformed."""
        trace = step.trace if isinstance(step.trace, Mapping) else {}
        tokens, parents, path = (_column(trace.get(name), None, (int,)) for name in ("tokens", "parents", "path"))
        if not tokens or min(tokens) < 0 or parents is None or path is None or len(parents) != len(tokens):
            return None
        if not all(-1 <= parent < node for node, parent in enumerate(parents)):
            return None
        if not all(0 <= n < len(parents) and parents[n] == before for before, n in pairwise((-1, *path))):
            return None
        known = {name: _column(trace.get(name), len(tokens), kinds) for name, kinds in _COLUMNS.items()}
        return cls(tokens, parents, path, {name: column for name, column in known.items() if column is not None})

    def to_json(self) -> dict[str, Any]:
        own = {"tokens": self.tokens, "parents": self.parents, **self.columns, "path": self.path}
        return {name: list(column) for name, column in own.items()}


def _column(given: Any, length: int | None, kinds: tuple[type, ...]) -> list[Any] | None:
    """Return the list if its values are finite and of these kinds, and its length is right; None otherwise."""
    if not isinstance(given, (list, tuple)) or length not in (None, len(given)):
        return None
    return list(given) if all(type(v) in kinds and -_TOKENS <= v < _TOKENS for v in given) else None
