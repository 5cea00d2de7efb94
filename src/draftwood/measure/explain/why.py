"""The reason why a step drafted as much as it did: as a word to count, and as a phrase to read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum

from draftwood.measure.explain.account import Account


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


def reason(account: Account) -> Reason:
    """Return the reason that decided; a policy's limit takes precedence over all others."""
    plan = account.plan
    if account.held:
        return Reason.HELD
    if plan.get("explored") and (account.chosen or not account.pooled):  # else other requests had these nodes
        return Reason.EXPLORED
    if not account.chosen:
        return _undrafted(account)
    candidates = plan.get("candidates")
    if account.alternatives and candidates is not None:
        if account.chosen >= candidates:
            return Reason.ALL
        return Reason.MOST if account.chosen >= plan.get("most", candidates) else Reason.PART
    return _by_rule(account) if plan.get("planner") in _RULES else Reason.COUNTS


_RULES = ("fixed", "threshold")  # planners that compare no draft sizes


def _by_rule(account: Account) -> Reason:
    plan = account.plan
    if account.chosen >= plan.get("nodes", 1 + account.chosen):
        return Reason.FIXED if plan["planner"] == "fixed" else Reason.MOST
    return Reason.LIKELY if plan.get("floor") or plan["planner"] == "threshold" else Reason.FIXED


def _undrafted(account: Account) -> Reason:
    step, plan = account.step, account.plan
    if not step.by_source or plan.get("planner") == "off":
        return Reason.OFF
    if account.asked == 0:
        if step.finish == "length" or plan.get("nodes"):  # it might draft but asked for nothing
            return Reason.END
        return Reason.OFF if plan.get("planner") in _RULES or plan.get("most") == 0 else Reason.RESTED
    return Reason.UNLIKELY if plan.get("candidates", account.proposed) else Reason.NOTHING


def words(account: Account) -> str:
    """Return the reason in a few words, with its numbers."""
    return _WORDS[reason(account)](account)


def _held(account: Account) -> str:
    seen = [account.policies.get(name, "") for name in account.held]
    named = (f"{n} ({why})" if why else n for n, why in zip(account.held, seen, strict=True))
    did = f"held it to {count(account.chosen, 'node')}" if account.chosen else "stopped drafting"
    return f"{' and '.join(named)} {did}"


def _explored(account: Account) -> str:
    best = account.plan.get("best")
    instead = f", not {best}," if best is not None and best != account.pooled else ""
    shared = f" for {account.rows} requests" if account.rows > 1 else ""
    return f"tried {count(account.pooled, 'node')}{shared}{instead} to see the cost"


def _unlikely(account: Account) -> str:
    likeliest, cost, floor = account.likeliest, account.node_cost, account.plan.get("floor")
    if floor:
        return f"no candidate was as likely as {share(floor)}"
    if likeliest is None or cost is None:
        return "no candidate was likely enough"
    return f"best candidate {share(likeliest)}, a node costs {share(max(0.0, cost))} of a pass"


def _all(account: Account) -> str:
    return f"{_each(account)} pay{'s' * (account.chosen == 1)}"


def _likely(account: Account) -> str:
    known, floor = account.plan.get("candidates"), account.plan.get("floor")
    least = f" ({share(floor)} at least)" if floor is not None else ""
    if known is not None and account.chosen < known:
        return f"of {known} candidates {account.chosen} likely enough{least}"
    return f"{_each(account)} likely enough{least}"


def _fixed(account: Account) -> str:
    known, most = account.plan.get("candidates"), account.plan.get("nodes")
    if known == account.chosen and most is not None and known < most:
        return f"{_each(account)} scored, {most} at most"
    return f"{_counts(account)}, a fixed number"


def _each(account: Account) -> str:
    return "the one candidate" if account.chosen == 1 else f"all {account.chosen} candidates"


def _counts(account: Account) -> str:
    known = account.plan.get("candidates")
    some = f"{known} candidates" if known is not None else f"{account.proposed} proposed"
    return f"{account.chosen} of {some} scored"


_WORDS: Mapping[Reason, Callable[[Account], str]] = {
    Reason.OFF: lambda _: "drafting is off",
    Reason.HELD: _held,
    Reason.EXPLORED: _explored,
    Reason.END: lambda _: "one token was left to write",
    Reason.RESTED: lambda _: "sources were not asked",
    Reason.NOTHING: lambda _: "no source had a candidate",
    Reason.UNLIKELY: _unlikely,
    Reason.ALL: _all,
    Reason.PART: lambda a: f"of {a.plan['candidates']} candidates {a.chosen} pay best",
    Reason.MOST: lambda a: f"{_counts(a)}, no more may be",
    Reason.LIKELY: _likely,
    Reason.FIXED: _fixed,
    Reason.COUNTS: _counts,
}


def count(n: int, one: str, many: str = "") -> str:
    """Return ``1 node`` or ``2 nodes``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def share(value: float) -> str:
    """Return a share as ``62 %`` or ``3.4 %``, with two significant digits."""
    return f"{100 * value:{'.2g' if value < 0.0995 else '.0f'}} %"
