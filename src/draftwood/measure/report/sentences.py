"""What the answers of one arm amount to, in figures and in sentences; JSON-ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from draftwood.measure.records.records import Answer, grouped_by
from draftwood.measure.report.reasons import Reason, StepAccount, accounts
from draftwood.measure.wording import count, share
from draftwood.rates import Rates
from draftwood.step import stages_of


def arms(answers: Sequence[Answer]) -> list[dict[str, Any]]:
    """Return for each arm (drafters and planner) what its answers amount to."""
    found = []
    for (arm, planner), some in grouped_by(answers, lambda a: (a.arm, a.planner)).items():
        every = [account for answer in some for account in accounts(answer.steps)]
        figures = summary(every, some[0].drafters)
        named = [{"answer": a.id, "task": a.task, "name": a.name} for a in some]
        told = {"words": list(sentences(every, figures)), "summary": figures}
        found.append({"drafters": arm, "planner": planner, "answers": named} | told)
    return found


def summary(every: Sequence[StepAccount], names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the figures of some steps; their drafters have these names."""
    counts = ("calls", "proposed", "kept", "accepted", "failed")
    sources = []
    for index, name in enumerate(names):
        own = [a.step.by_source[index] for a in every if index < len(a.step.by_source)]
        sums = {k: sum(getattr(s, k) for s in own) for k in counts}
        sources.append({"name": name, **sums, "draft_ms": 1000 * sum(s.draft_s for s in own)})
    return {
        "steps": len(every),
        "tokens": sum(len(a.step.emitted) for a in every),
        "planned": sum(bool(a.plan) for a in every),  # steps whose plan was recorded
        "rates": asdict(Rates.of([a.step for a in every])),
        "reasons": _shares(every),  # reason -> its steps and their tokens, the most frequent first
        "off_reasons": _shares([a for a in every if not a.step.drafted]),  # the same for steps without a draft
        "forecast": _forecast(every),  # None if the planner compared no numbers of guesses
        "sources": sources,
        "stages": [asdict(s) for s in stages_of(own.stages for a in every for own in a.step.by_source)],
    }


def _shares(every: Sequence[StepAccount]) -> dict[str, dict[str, int]]:
    groups = sorted(grouped_by(every, lambda a: a.reason).items(), key=lambda item: -len(item[1]))
    return {
        why.value: {"steps": len(some), "tokens": sum(len(a.step.emitted) for a in some)} for why, some in groups
    }


def _forecast(every: Sequence[StepAccount]) -> dict[str, float] | None:
    """Return what the planner expected and what came.

    ``speedup``: expected tokens per second over those of plain passes by the planner's estimate; ``made``: the
    same with the tokens and milliseconds that were measured.
    """
    known = [(a, e, p) for a in every if (e := a.expected) and (p := a.alternative(0))]
    took = sum(a.ms for a, _, _ in known)
    if not took:
        return None
    tokens, came = sum(e.tokens for _, e, _ in known), sum(len(a.step.emitted) for a, _, _ in known)
    plain = fmean(p.ms for _, _, p in known)
    return {
        "passes": len(known), "tokens": tokens, "came": came,
        "ms": median(e.ms for _, e, _ in known), "took": median(a.ms for a, _, _ in known),
        "speedup": tokens * plain / sum(e.ms for _, e, _ in known), "made": came * plain / took,
    }  # fmt: skip


def sentences(every: Sequence[StepAccount], found: dict[str, Any]) -> Iterator[str]:
    """Yield what the figures of these steps say, the most important first."""
    if not every:
        yield "Nothing was decoded: no pass beyond reading the prompt."
        return
    rates, tokens, steps = found["rates"], found["tokens"], found["steps"]
    pace = f", {rates['tokens_per_second']:.1f} tokens per second" if rates["tokens_per_second"] else ""
    passes = count(steps, "pass", "passes")
    yield f"{count(tokens, 'token')} in {passes}: {rates['mean_acceptance_length']:.2f} tokens per pass{pace}."
    yield from _unchecked(every, found)
    yield from _checked(every, found)
    if forecast := found["forecast"]:
        expected, came = (forecast[name] / forecast["passes"] for name in ("tokens", "came"))
        yield (
            f"The planner expected {expected:.2f} tokens per pass in {forecast['ms']:.1f} ms, and got {came:.2f} "
            f"in {forecast['took']:.1f} ms: {forecast['made']:.2f} times the pace of plain decoding, where it "
            f"expected {forecast['speedup']:.2f} (by its own estimate of a pass without guesses)."
        )
    yield from _policies(every)
    yield from (f"At the end: {note}." for note in every[-1].notes)
    for source in found["sources"]:
        if source["failed"]:
            yield f"{source['name']} failed and was switched off in {count(source['failed'], 'answer')}."
    for stage in found["stages"]:
        own = f"; of {stage['proposed']} guesses of its own drafters {stage['accepted']} were right"
        made = f"{count(stage['passes'], 'pass', 'passes')} in {1000 * stage['seconds']:.0f} ms"
        yield f"The draft model {stage['name']} made {made}{own if stage['proposed'] else ''}."
    if found["planned"] < steps:
        told = f"for {found['planned']} of {steps} steps" if found["planned"] else "for no step"
        yield f"The planner's reasons were recorded {told}; of the others only counts are known."


_WITHOUT = {
    Reason.OFF: "drafting was off",
    Reason.HELD: "a policy allowed none",
    Reason.EXPLORED: "a plain pass was made to time it",
    Reason.END: "one token was left to write",
    Reason.RESTED: "drafters paused, because their guesses had not paid",
    Reason.NOTHING: "no drafter had a guess",
}
_WITH = {
    Reason.ALL: "every guess was worth checking",
    Reason.PART: "more guesses would have cost more time than they save",
    Reason.MOST: "as many were checked as may be",
    Reason.LIKELY: "what was likely enough was checked",
    Reason.EXPLORED: "another number than the best was checked, to time such a pass",
}


def _unchecked(every: Sequence[StepAccount], found: dict[str, Any]) -> Iterator[str]:
    """Say why there were steps without a draft."""
    off = found["off_reasons"]
    if not off:
        return
    said = []
    for why, of in off.items():
        text = _WITHOUT.get(Reason(why), "no reason was recorded")
        if why == Reason.UNLIKELY:
            odds = [a.odds for a in every if a.reason is Reason.UNLIKELY and a.odds is not None]
            text = "no guess was likely enough"
            if odds:
                likely, cost = [one for one, _ in odds], median(node for _, node in odds)
                text = f"the likeliest guess had a chance of {share(median(likely))} in the middle "
                text += f"({share(max(likely))} at most), and checking one pays from {share(cost)} on"
        said.append(f"in {count(of['steps'], 'step')} {text}")
    part = share(sum(of["tokens"] for of in off.values()) / max(1, found["tokens"]))
    yield f"No guess was checked for {part} of the text: {'; '.join(said)}."


def _checked(every: Sequence[StepAccount], found: dict[str, Any]) -> Iterator[str]:
    sizes, rates = [a.step.drafted for a in every if a.step.drafted], found["rates"]
    if not sizes:
        return
    yield (
        f"Guesses were checked in {count(len(sizes), 'step')}, {median(sizes):.0f} at a time in the middle "
        f"({max(sizes)} at most); {share(rates['acceptance_rate'])} of them were right, "
        f"{rates['accepted_per_cycle']:.2f} per step."
    )
    drafted = Counter(a.reason for a in every if a.step.drafted)
    if said := [f"in {count(drafted[why], 'step')} {text}" for why, text in _WITH.items() if drafted[why]]:
        yield f"I{'; '.join(said)[1:]}."


def _policies(every: Sequence[StepAccount]) -> Iterator[str]:
    """Yield what each policy did, the most frequent first, then those that only measured."""
    last = {name: why for account in every for name, why in account.policies.items()}
    counted = Counter(name for a in every for name in a.held)
    for name, n in counted.most_common():
        held = [a for a in every if name in a.held]
        seen = next((a.policies[name] for a in reversed(held) if name in a.policies), "")
        nodes = max(a.step.drafted for a in held)
        allowed = f"no more than {count(nodes, 'guess', 'guesses')}" if nodes else "no guess"
        yield f"{name} allowed {allowed} in {share(n / len(every))} of the steps{f' ({seen})' if seen else ''}."
    for name, why in last.items():
        if name not in counted:
            yield f"{name} limited nothing{': ' if why else ''}{why}."
