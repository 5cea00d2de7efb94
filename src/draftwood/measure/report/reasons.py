"""Why a step checked as many guesses as it did, from its counts and from what its planner recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from draftwood.measure.wording import count, share
from draftwood.step import Step

REASONS = {
    "off": "drafting was off",
    "held": "a policy allowed no more",
    "explored": "another number than the best was checked, to time such a pass",
    "end": "one token was left to write",
    "rested": "drafters paused, because their guesses had not paid",
    "nothing": "no drafter had a guess",
    "unlikely": "no guess was likely enough",
    "all": "every guess paid",
    "part": "more guesses would have cost more time than they save",
    "most": "as many were checked as may be",
    "likely": "what was likely enough was checked",
    "fixed": "a fixed number was checked",
    "counts": "no reason was recorded",
}
"""Why a step checked as many guesses as it did, and no more."""

NUMBERS = (int, float)
_PLAN: Mapping[str, tuple[type, ...]] = {
    "planner": (str,), "explored": (bool,), "floor": NUMBERS, "overhead_ms": NUMBERS,
    **dict.fromkeys(("nodes", "most", "asked", "candidates", "chosen", "best", "context"), (int,)),
}  # fmt: skip
_MOST, _LEAST_MS = 1e15, 1e-6  # bounds of what a real pass can have
_RULES = ("fixed", "threshold")  # planners that compare no numbers of guesses

Rows = list[dict[str, Any]]


def choice(step: Step) -> dict[str, Any]:
    """Return what is known of a step's choice, JSON-ready: its recorded ``plan`` without what is unknown or
    malformed, the numbers of guesses that were compared in ``alternatives``, smallest first, its ``reason``, a key
    of `REASONS`, and ``why`` in a few words; a policy's limit takes precedence over all other reasons."""
    trace = step.trace if isinstance(step.trace, Mapping) else {}
    given = found if isinstance(found := trace.get("plan"), Mapping) else {}
    plan: dict[str, Any] = {name: value for name in _PLAN if _sound(name, value := given.get(name))}
    alternatives = _alternatives(given.get("alternatives"))
    policies = {str(one[0]): str(one[1]) for one in map(listed, listed(given.get("policies"))) if len(one) >= 2}
    # Most guesses that a drafter was asked for; guesses of all drafters, before equal ones were merged.
    asked = plan.get("asked", max((s.asked for s in step.by_source), default=None))
    proposed = sum(s.proposed for s in step.by_source)
    chosen = plan.get("chosen", step.drafted)
    # Policies that limited this draft: those with a limit, if all guesses within it were checked.
    held = step.held if chosen >= plan.get("candidates", 0) and proposed >= (asked or 0) else ()
    expected = next((a for a in alternatives if a["nodes"] == chosen), {})
    if held:
        named = " and ".join(f"{name} ({policies[name]})" if policies.get(name) else name for name in held)
        allowed = f"no more than {count(chosen, 'guess', 'guesses')}" if chosen else "no guess"
        reason, why = "held", f"{named} allowed {allowed}"
    elif chosen or plan.get("explored"):
        reason, why = _checked(plan, chosen, proposed, compared=bool(alternatives))
    else:
        reason, why = _unchecked(step, plan, asked, odds(alternatives))
    return {
        "asked": asked,
        "candidates": plan.get("candidates"),
        "expected_tokens": expected.get("expected_tokens"),
        "expected_ms": expected.get("ms"),
        "reason": reason,
        "why": why,
        "plan": plan,
        "alternatives": alternatives,
        "policies": [
            {"policy": name, "held": name in held, "why": policies.get(name, "")}
            for name in dict.fromkeys((*policies, *held))
        ],
        "notes": [str(note) for note in listed(given.get("sources"))],
    }


def odds(alternatives: Rows) -> tuple[float, float] | None:
    """Return the chance of the likeliest guess, and the extra time of checking one as a share of a plain pass,
    which is the chance from which it pays; None where they are not known."""
    none, one = (next((a for a in alternatives if a["nodes"] == nodes), None) for nodes in (0, 1))
    if none is None or one is None:
        return None
    chance = one["expected_tokens"] - none["expected_tokens"]
    return max(0.0, min(1.0, chance)), max(0.0, one["ms"] / none["ms"] - 1)


def _checked(plan: dict[str, Any], chosen: int, proposed: int, *, compared: bool) -> tuple[str, str]:
    known, planner, most, floor = (plan.get(name) for name in ("candidates", "planner", "nodes", "floor"))
    some = f"{chosen} of {count(proposed if known is None else known, 'guess', 'guesses')}"
    if plan.get("explored"):
        instead = f" instead of {plan['best']}" if plan.get("best", chosen) != chosen else ""
        return "explored", f"checked {count(chosen, 'guess', 'guesses')}{instead}, to time such a pass"
    if compared and known is not None:
        if chosen >= known:
            return "all", "the one guess pays" if chosen == 1 else f"all {chosen} guesses pay"
        if chosen >= plan.get("most", known):
            return "most", f"{some} checked, no more may be"
        return "part", f"{some} pay{'s' * (chosen == 1)}"
    if planner not in _RULES:
        return "counts", f"{some} checked"
    few = most is not None and chosen < most
    if most is not None and not few and planner != "fixed":
        return "most", f"{some} checked, no more may be"
    if planner == "threshold" or (floor and (most is None or few)):
        return "likely", f"{some} likely enough" + (f" ({share(floor)} at least)" if floor else "")
    return "fixed", f"{some} checked, " + (f"{most} may be" if few else "a fixed number")


def _unchecked(
    step: Step, plan: dict[str, Any], asked: int | None, chances: tuple[float, float] | None
) -> tuple[str, str]:
    proposed, planner, floor = sum(s.proposed for s in step.by_source), plan.get("planner"), plan.get("floor")
    if not step.by_source or planner == "off":
        return "off", "drafting is off"
    if asked == 0:
        if step.finish == "length" or plan.get("nodes"):  # it might draft but asked for nothing
            return "end", REASONS["end"]
        if planner in _RULES or plan.get("most") == 0:
            return "off", "drafting is off"
        return "rested", "drafters paused: their guesses had not paid"
    if not plan.get("candidates", proposed):
        return "nothing", REASONS["nothing"]
    if floor:
        return "unlikely", f"no guess was as likely as {share(floor)}"
    if chances:
        pays = f"pays from {share(chances[1])}" if chances[1] < 1 else "and even a sure one costs too much"
        return "unlikely", f"likeliest guess {share(chances[0])}, {pays}"
    return "unlikely", REASONS["unlikely"]


def listed(given: Any) -> Sequence[Any]:
    """Return a list as it is, and none for anything else."""
    return given if isinstance(given, (list, tuple)) else ()


def _sound(name: str, value: Any) -> bool:
    return type(value) in _PLAN[name] and (isinstance(value, str) or 0 <= value < _MOST)


def _alternatives(given: Any) -> Rows:
    rows = [row for each in listed(given) if len(row := tuple(listed(each)[:3])) == 3]
    whole = [row for row in rows if {type(value) for value in row} <= set(NUMBERS)]
    valid = {r for r in whole if 0 <= r[0] < _MOST and 0 <= r[1] < _MOST and _LEAST_MS <= r[2] < _MOST}
    return [
        {"nodes": int(nodes), "expected_tokens": tokens, "ms": ms, "tokens_per_second": 1000 * tokens / ms}
        for nodes, tokens, ms in sorted(valid)
    ]
