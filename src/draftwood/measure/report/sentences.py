"""What the answers of one arm amount to, in figures and in sentences; JSON-ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from statistics import fmean, median

from draftwood.measure.records.records import TRACED, Answer, Row, grouped_by
from draftwood.measure.report.reasons import REASONS, Rows, odds
from draftwood.measure.report.steps import steps_of
from draftwood.measure.wording import count, share
from draftwood.rates import Rates
from draftwood.step import stages_of


def arms(answers: Sequence[Answer]) -> Rows:
    """Return for each arm (drafters and planner) what its answers amount to."""
    found = []
    for (arm, planner), some in grouped_by(answers, lambda a: (a.arm, a.planner)).items():
        named = [{"answer": a.id, "task": a.task, "name": a.name} for a in some]
        rows = [row for answer in some for row in steps_of(answer)]
        figures = summary(some, rows)
        if all(a.round == TRACED for a in some):
            figures["rates"]["tokens_per_second"] = None  # writing the trace has taken time, too
        told = {"words": list(sentences(rows, figures)), "summary": figures}
        found.append({"drafters": arm, "planner": planner, "answers": named} | told)
    return found


def summary(answers: Sequence[Answer], rows: Rows) -> Row:
    """Return the figures of one arm's answers; ``rows`` are their steps, as `steps_of` gives them."""
    steps = [step for answer in answers for step in answer.steps]
    counts = ("calls", "proposed", "kept", "accepted", "failed")
    sources = []
    for index, name in enumerate(answers[0].drafters):
        own = [s.by_source[index] for s in steps if index < len(s.by_source)]
        sums = {k: sum(getattr(s, k) for s in own) for k in counts}
        sources.append({"name": name, **sums, "draft_ms": 1000 * sum(s.draft_s for s in own)})
    return {
        "steps": len(steps),
        "tokens": sum(len(s.emitted) for s in steps),
        "planned": sum(bool(row["plan"]) for row in rows),  # steps whose plan was recorded
        "rates": asdict(Rates.of(steps)),
        "reasons": _shares(rows),  # reason -> its steps and their tokens, the most frequent first
        "off_reasons": _shares([row for row in rows if not row["drafted"]]),  # of steps without a draft
        "forecast": _forecast(rows),  # None if the planner compared no numbers of guesses
        "sources": sources,
        "stages": [asdict(s) for s in stages_of(own.stages for step in steps for own in step.by_source)],
    }


def _shares(rows: Rows) -> dict[str, dict[str, int]]:
    groups = sorted(grouped_by(rows, lambda row: row["reason"]).items(), key=lambda item: -len(item[1]))
    return {why: {"steps": len(some), "tokens": sum(len(r["emitted"]) for r in some)} for why, some in groups}


def _forecast(rows: Rows) -> dict[str, float] | None:
    """Return what the planner expected and what came.

    ``speedup``: expected tokens per second over those of plain passes by the planner's estimate. What was measured
    is not compared with an estimate.
    """
    known = [row for row in rows if row["expected_ms"] and row["alternatives"][0]["nodes"] == 0]
    if not known:
        return None
    tokens, came = sum(row["expected_tokens"] for row in known), sum(len(row["emitted"]) for row in known)
    plain = fmean(row["alternatives"][0]["ms"] for row in known)
    return {
        "passes": len(known), "tokens": tokens, "came": came,
        "ms": median(row["expected_ms"] for row in known), "took": median(row["ms"] for row in known),
        "speedup": tokens * plain / sum(row["expected_ms"] for row in known),
    }  # fmt: skip


def sentences(rows: Rows, found: Row) -> Iterator[str]:
    """Yield what these steps and their figures say, the most important first."""
    if not rows:
        yield "Nothing was decoded: no pass beyond reading the prompt."
        return
    rates, steps = found["rates"], found["steps"]
    pace = f", {rates['tokens_per_second']:.1f} tokens per second" if rates["tokens_per_second"] else ""
    written = f"{count(found['tokens'], 'token')} in {count(steps, 'pass', 'passes')}"
    yield f"{written}: {rates['mean_acceptance_length']:.2f} tokens per pass{pace}."
    if off := found["off_reasons"]:
        part = share(sum(of["tokens"] for of in off.values()) / max(1, found["tokens"]))
        said = [f"in {count(of['steps'], 'step')} {_off(rows, why)}" for why, of in off.items()]
        yield f"No guess was checked for {part} of the text: {'; '.join(said)}."
    if sizes := [row["drafted"] for row in rows if row["drafted"]]:
        yield (
            f"Guesses were checked in {count(len(sizes), 'step')}, a median of {median(sizes):.0f} at a time "
            f"({max(sizes)} at most); {share(rates['acceptance_rate'])} of them were right, "
            f"{rates['accepted_per_cycle']:.2f} per step."
        )
        why = Counter(row["reason"] for row in rows if row["drafted"] and row["reason"] != "counts")
        if said := [f"in {count(n, 'step')} {REASONS[reason]}" for reason, n in why.most_common()]:
            yield f"I{'; '.join(said)[1:]}."
    if forecast := found["forecast"]:
        expected, came = (forecast[name] / forecast["passes"] for name in ("tokens", "came"))
        yield (
            f"The planner expected {expected:.2f} tokens per pass in {forecast['ms']:.1f} ms, and got {came:.2f} "
            f"in {forecast['took']:.1f} ms, where "
            f"it expected {forecast['speedup']:.2f} times the pace of plain decoding."
        )
    yield from _policies(rows)
    yield from (f"At the end: {note}." for note in rows[-1]["notes"])
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


def _off(rows: Rows, reason: str) -> str:
    """Say why there was no draft where this was the reason."""
    known = [found for row in rows if row["reason"] == "unlikely" and (found := odds(row["alternatives"]))]
    if reason == "unlikely" and known:
        likely, cost = [one for one, _ in known], median(one for _, one in known)
        said = f"a median chance of {share(median(likely))} ({share(max(likely))} at most)"
        pays = f"checking one pays from {share(cost)} on" if cost < 1 else "even a sure one costs too much"
        return f"the likeliest guess had {said}, and {pays}"
    return "a plain pass was made to time it" if reason == "explored" else REASONS[reason]


def _policies(rows: Rows) -> Iterator[str]:
    """Yield what each policy did, the most frequent first, then those that only measured."""
    said = [(row, policy) for row in rows for policy in row["policies"]]
    last = {policy["policy"]: policy["why"] for _, policy in said}
    for name in sorted(last, key=lambda name: -sum(p["held"] for _, p in said if p["policy"] == name)):
        held = [(row, p) for row, p in said if p["policy"] == name and p["held"]]
        nodes = max((row["drafted"] for row, _ in held), default=0)
        seen = next((p["why"] for _, p in reversed(held) if p["why"]), last[name])
        allowed = f"no more than {count(nodes, 'guess', 'guesses')}" if nodes else "no guess"
        did = f"allowed {allowed} in {share(len(held) / len(rows))} of the steps" if held else "limited nothing"
        yield f"{name} {did}{f' ({seen})' if seen else ''}."
