"""Says a summary in sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from draftwood.measure.explain.summary import Forecast, Hold, Summary
from draftwood.measure.explain.why import Reason, count, share


def sentences(summary: Summary) -> Iterator[str]:
    """Yield the sentences, the most important first."""
    if not summary.steps:
        yield "Nothing was decoded: no pass beyond reading the prompt."
        return
    rates = summary.rates
    pace = f", {rates.tokens_per_second:.1f} tokens/s" if rates.tokens_per_second else ""
    yield (
        f"{count(summary.tokens, 'token')} in {count(summary.steps, 'pass', 'passes')}: "
        f"mean acceptance length {rates.mean_acceptance_length:.2f}{pace}."
    )
    yield from _off(summary)
    yield from _drafted(summary)
    if summary.forecast is not None:
        yield _forecast(summary.forecast)
    for hold in summary.policies:
        yield _hold(hold, summary.steps)
    for note in summary.notes:
        yield f"At the end: {note}."
    for source in summary.sources:
        if source.failed:
            yield f"{source.name} failed and was disabled in {count(source.failed, 'answer')}."
    for stage in summary.stages:
        yield (
            f"The draft model {stage.name} ran {count(stage.passes, 'pass', 'passes')} in "
            f"{1000 * stage.seconds:.0f} ms and accepted {stage.accepted} of {stage.proposed} drafted nodes."
        )
    if not summary.planned:
        yield "The planner's own account was not kept: only counts are known."
    elif summary.planned < summary.steps:
        kept = f"{summary.planned} of {summary.steps} steps"
        yield f"The planner's own account was kept of {kept}; of the others only counts are known."


_UNDRAFTED: Mapping[str, Callable[[Summary], str]] = {
    Reason.OFF: lambda _: "nothing may draft",
    Reason.HELD: lambda _: "a policy held it",
    Reason.EXPLORED: lambda _: "a plain pass was tried, to see what it costs",
    Reason.END: lambda _: "one token was left to write",
    Reason.RESTED: lambda _: "sources were not asked, as nothing of theirs had paid",
    Reason.NOTHING: lambda _: "no source had a candidate",
    Reason.UNLIKELY: lambda summary: _unlikely(summary),
    Reason.COUNTS: lambda _: "no reason was recorded",
}


def _off(summary: Summary) -> Iterator[str]:
    off = summary.off
    if not off.steps:
        return
    unknown = _UNDRAFTED[Reason.COUNTS]
    causes = [(some, _UNDRAFTED.get(name, unknown)(summary)) for name, some in summary.off_reasons.items()]
    several = len(causes) > 1
    listed = "; ".join(several * f"in {count(some.steps, 'step')} " + cause for some, cause in causes)
    yield f"Drafting was off for {share(off.tokens / max(1, summary.tokens))} of the text: {listed}."


def _unlikely(summary: Summary) -> str:
    likeliest, cost = summary.likeliest, summary.node_cost
    if likeliest is None or cost is None:
        return "no candidate was likely enough"
    price = f"a node costs {share(max(0.0, cost.median))} of a pass"
    if likeliest.most < cost.median:
        return f"no candidate was likelier than {share(likeliest.most)} and {price}"
    best = f"{share(likeliest.median)} (median; {share(likeliest.most)} at most)"
    return f"the best candidate had {best} and {price}"


def _drafted(summary: Summary) -> Iterator[str]:
    rates, size = summary.rates, summary.nodes
    if size is None:
        return
    carried = summary.steps - summary.off.steps
    yield (
        f"{count(carried, 'step')} drafted, {size.median:.0f} nodes in the middle ({size.most:.0f} at most); "
        f"{share(rates.acceptance_rate)} of all nodes were accepted, {rates.accepted_per_cycle:.2f} per draft."
    )
    causes = {
        Reason.ALL: "every candidate paid",
        Reason.PART: "more candidates would not have paid",
        Reason.MOST: "as many were scored as may be",
        Reason.LIKELY: "what was likely enough was scored",
    }
    found = [(summary.reasons[r].steps, said) for r, said in causes.items() if r in summary.reasons]
    if found:
        yield "; ".join(f"In {count(n, 'step')} {said}" for n, said in found).replace("; In", "; in") + "."
    if tried := summary.reasons.get(Reason.EXPLORED):
        part = share(tried.steps / summary.steps)
        yield f"{count(tried.steps, 'step')} ({part}) tried another width, to see what passes cost now."


def _forecast(forecast: Forecast) -> str:
    return (
        f"The planner expected {forecast.tokens / forecast.passes:.2f} tokens in {forecast.ms:.1f} ms of a pass, "
        f"{forecast.came / forecast.passes:.2f} came in {forecast.took:.1f} ms. By its estimate of a plain pass "
        f"it forecast {forecast.speedup:.2f} times the pace of plain decoding; {forecast.made:.2f} times came."
    )


def _hold(hold: Hold, steps: int) -> str:
    if not hold.steps:
        return f"{hold.policy} held no draft back{': ' if hold.why else ''}{hold.why}."
    why = f" ({hold.why})" if hold.why else ""
    did = f"held the draft to {count(hold.nodes, 'node')}" if hold.nodes else "stopped drafting"
    return f"{hold.policy} {did} for {share(hold.steps / steps)} of the steps{why}."
