"""The reason why a step drafted as much as it did: as a word to count, and as a phrase to read."""

from __future__ import annotations

from enum import StrEnum

from draftwood.measure.explain.account import Account
from draftwood.measure.wording import count, share


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
    if plan.get("planner") not in _RULES:
        return Reason.COUNTS
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


_PLAIN = {
    Reason.OFF: "drafting is off",
    Reason.END: "one token was left to write",
    Reason.RESTED: "sources were not asked",
    Reason.NOTHING: "no source had a candidate",
}


def words(account: Account) -> str:
    """Return the reason in a few words, with its numbers."""
    why, plan, chosen = reason(account), account.plan, account.chosen
    known, floor, best, most = (plan.get(name) for name in ("candidates", "floor", "best", "nodes"))
    each = "the one candidate" if chosen == 1 else f"all {chosen} candidates"
    some = f"{account.proposed} proposed" if known is None else f"{known} candidates"
    scored = f"{chosen} of {some} scored"
    match why:
        case Reason.HELD:
            named = (f"{name} ({said})" if (said := account.policies.get(name)) else name for name in account.held)
            did = f"held it to {count(chosen, 'node')}" if chosen else "stopped drafting"
            return f"{' and '.join(named)} {did}"
        case Reason.EXPLORED:
            instead = f", not {best}," if best is not None and best != account.pooled else ""
            shared = f" for {account.rows} requests" if account.rows > 1 else ""
            return f"tried {count(account.pooled, 'node')}{shared}{instead} to see the cost"
        case Reason.UNLIKELY if floor:
            return f"no candidate was as likely as {share(floor)}"
        case Reason.UNLIKELY if account.odds:
            return f"best candidate {share(account.odds[0])}, a node costs {share(account.odds[1])} of a pass"
        case Reason.UNLIKELY:
            return "no candidate was likely enough"
        case Reason.ALL:
            return f"{each} pay{'s' * (chosen == 1)}"
        case Reason.PART:
            return f"of {known} candidates {chosen} pay best"
        case Reason.MOST:
            return f"{scored}, no more may be"
        case Reason.LIKELY:
            least = f" ({share(floor)} at least)" if floor is not None else ""
            these = f"of {known} candidates {chosen}" if known is not None and chosen < known else each
            return f"{these} likely enough{least}"
        case Reason.FIXED if known == chosen and most is not None and known < most:
            return f"{each} scored, {most} at most"
        case Reason.FIXED:
            return f"{scored}, a fixed number"
    return _PLAIN.get(why, scored)
