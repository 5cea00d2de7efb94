"""Why a step checked as many guesses as it did, from its counts and from what its planner recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from draftwood.measure.wording import count, share
from draftwood.step import Step

NUMBERS = (int, float)
_PLAN: Mapping[str, tuple[type, ...]] = {
    "planner": (str,), "explored": (bool,), "floor": NUMBERS, "overhead_ms": NUMBERS,
    **dict.fromkeys(("nodes", "most", "asked", "candidates", "chosen", "best", "context"), (int,)),
}  # fmt: skip
_MOST, _LEAST_MS = 1e15, 1e-6  # bounds of what a real pass can have
_RULES = ("fixed", "threshold")  # planners that compare no numbers of guesses


class Reason(StrEnum):
    """Why a step checked as many guesses as it did."""

    OFF = "off"  # drafting was switched off
    HELD = "held"  # a policy limited the draft
    EXPLORED = "explored"  # another number than the best was tried, to measure its cost
    END = "end"  # the text had room for one token only
    RESTED = "rested"  # drafters were not asked, because none of their drafts had paid for a while
    NOTHING = "nothing"  # no drafter had a guess
    UNLIKELY = "unlikely"  # no guess was worth its cost
    ALL = "all"  # every guess was worth its cost
    PART = "part"  # more guesses would not have been worth their cost
    MOST = "most"  # as many as the planner may check; more might have been worth their cost
    LIKELY = "likely"  # every guess above the planner's threshold
    FIXED = "fixed"  # the planner checks a fixed number
    COUNTS = "counts"  # no reason was recorded, only counts


class Alternative(NamedTuple):
    """A number of guesses that the planner considered; tokens and milliseconds that it expected of the pass."""

    nodes: int
    tokens: float
    ms: float

    @property
    def rate(self) -> float:
        """Goodput: expected tokens per second."""
        return 1000 * self.tokens / self.ms


class StepAccount:
    """A step, its ``number`` in the answer from 1, its recorded plan without what is unknown or malformed (single
    values in ``plan``, the numbers of guesses that were compared in ``alternatives``, smallest first), and its
    ``reason``, in ``words`` too; a policy's limit takes precedence over all other reasons."""

    def __init__(self, number: int, step: Step) -> None:
        self.number, self.step, self.ms = number, step, 1000 * step.seconds
        trace = step.trace if isinstance(step.trace, Mapping) else {}
        given = found if isinstance(found := trace.get("plan"), Mapping) else {}
        self.plan: dict[str, Any] = {
            name: value
            for name, kinds in _PLAN.items()
            if type(value := given.get(name)) in kinds and (isinstance(value, str) or 0 <= value < _MOST)  # type: ignore[operator]
        }
        self.alternatives = _alternatives(given.get("alternatives"))
        policies = [listed(each) for each in listed(given.get("policies"))]
        self.policies = {str(each[0]): str(each[1]) for each in policies if len(each) >= 2}
        self.notes = [str(note) for note in listed(given.get("sources"))]
        # Most guesses that a drafter was asked for; guesses of all drafters, before equal ones were merged.
        self.asked = self.plan.get("asked", max((s.asked for s in step.by_source), default=None))
        self.proposed = sum(s.proposed for s in step.by_source)
        self.chosen = int(self.plan.get("chosen", step.drafted))
        # Policies that limited this draft: those with a limit, if all guesses within it were checked.
        cut = self.chosen >= self.plan.get("candidates", 0) and self.proposed >= (self.asked or 0)
        self.held = step.held if cut else ()
        self.expected = self.alternative(self.chosen)
        self.reason, self.words = self._told()

    def alternative(self, nodes: int) -> Alternative | None:
        """Return what the planner expected of a pass with this many guesses."""
        return next((a for a in self.alternatives if a.nodes == nodes), None)

    @property
    def odds(self) -> tuple[float, float] | None:
        """Chance of the likeliest guess, and the extra time of checking one as a share of a plain pass, which is
        the chance from which it pays; None where they are not known."""
        none, one = self.alternative(0), self.alternative(1)
        if none is None or one is None:
            return None
        return max(0.0, min(1.0, one.tokens - none.tokens)), max(0.0, one.ms / none.ms - 1)

    def _told(self) -> tuple[Reason, str]:
        plan, chosen, known = self.plan, self.chosen, self.plan.get("candidates")
        some = f"{chosen} of {count(self.proposed if known is None else known, 'guess', 'guesses')}"
        if self.held:
            named = [f"{name} ({said})" if (said := self.policies.get(name)) else name for name in self.held]
            allowed = f"no more than {count(chosen, 'guess', 'guesses')}" if chosen else "no guess"
            return Reason.HELD, f"{' and '.join(named)} allowed {allowed}"
        if plan.get("explored"):
            instead = f" instead of {plan['best']}" if plan.get("best", chosen) != chosen else ""
            return Reason.EXPLORED, f"checked {count(chosen, 'guess', 'guesses')}{instead}, to time such a pass"
        if not chosen:
            return self._unchecked()
        if self.alternatives and known is not None:
            if chosen >= known:
                each = "the one guess pays" if chosen == 1 else f"all {chosen} guesses pay"
                return Reason.ALL, each
            if chosen >= plan.get("most", known):
                return Reason.MOST, f"{some} checked, no more may be"
            return Reason.PART, f"{some} pay{'s' * (chosen == 1)}"
        return self._by_rule(some)

    def _by_rule(self, some: str) -> tuple[Reason, str]:
        """Tell a choice by a rule that compares no numbers, or one of which only counts are known."""
        planner, most, floor = (self.plan.get(name) for name in ("planner", "nodes", "floor"))
        if planner not in _RULES:
            return Reason.COUNTS, f"{some} checked"
        if most is not None and self.chosen >= most and planner != "fixed":
            return Reason.MOST, f"{some} checked, no more may be"
        if planner == "threshold" or (floor and (most is None or self.chosen < most)):
            return Reason.LIKELY, f"{some} likely enough" + (f" ({share(floor)} at least)" if floor else "")
        few = most is not None and self.chosen < most
        return Reason.FIXED, f"{some} checked, " + (f"{most} may be" if few else "a fixed number")

    def _unchecked(self) -> tuple[Reason, str]:
        plan, floor = self.plan, self.plan.get("floor")
        if not self.step.by_source or plan.get("planner") == "off":
            return Reason.OFF, "drafting is off"
        if self.asked == 0:
            if self.step.finish == "length" or plan.get("nodes"):  # it might draft but asked for nothing
                return Reason.END, "one token was left to write"
            if plan.get("planner") in _RULES or plan.get("most") == 0:
                return Reason.OFF, "drafting is off"
            return Reason.RESTED, "drafters paused: their guesses had not paid"
        if not plan.get("candidates", self.proposed):
            return Reason.NOTHING, "no drafter had a guess"
        if floor:
            return Reason.UNLIKELY, f"no guess was as likely as {share(floor)}"
        if self.odds:
            said = f"likeliest guess {share(self.odds[0])}, pays from {share(self.odds[1])}"
            return Reason.UNLIKELY, said
        return Reason.UNLIKELY, "no guess was likely enough"


def accounts(steps: Sequence[Step]) -> list[StepAccount]:
    """Return an account per step of one answer."""
    return [StepAccount(number, step) for number, step in enumerate(steps, start=1)]


def listed(given: Any) -> Sequence[Any]:
    """Return a list as it is, and none for anything else."""
    return given if isinstance(given, (list, tuple)) else ()


def _alternatives(given: Any) -> list[Alternative]:
    rows = [row for each in listed(given) if len(row := listed(each)[:3]) == 3]
    whole = [row for row in rows if {type(value) for value in row} <= set(NUMBERS)]
    valid = [r for r in whole if 0 <= r[0] < _MOST and 0 <= r[1] < _MOST and _LEAST_MS <= r[2] < _MOST]
    return sorted({Alternative(int(nodes), float(tokens), float(ms)) for nodes, tokens, ms in valid})
