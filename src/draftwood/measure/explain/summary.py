"""The explanation of an arm's answers, in figures and sentences, and of single steps; all JSON-ready."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.explain.account import Reason, StepAccount, Tree, accounts
from draftwood.measure.records.lines import read_lines
from draftwood.measure.records.records import Answer, grouped_by, read_records
from draftwood.measure.wording import count, share
from draftwood.rates import Rates
from draftwood.step import stages_of

_OTHERS = {
    "trace": "is a trace, which has no steps: replay it with draftwood simulate -o and explain those records",
    "profile": "is a profile, which has no steps: explain records of draftwood generate -o or bench -o",
}


def explainable(path: Path) -> list[Answer]:
    """Return the answers of a records file that have steps of drafters, in its order.

    Raises `UsageError` if it cannot be opened or has no such answer, and `RecordError` for a broken line.
    """
    number, first = next(read_lines(path), (0, {}))
    if not number:
        raise UsageError(f"{path} is empty: give records that draftwood generate, bench or simulate wrote with -o")
    if first.get("row") != "header":
        raise UsageError(f"{path} is no records file: its first line is no header (a trace is read by simulate)")
    if why := _OTHERS.get(str(first.get("verb"))):
        raise UsageError(f"{path} {why}")
    answers = [a for a in read_records(path).answers if a.steps]
    if not answers:
        raise UsageError(f"{path} holds no steps: give records that draftwood generate, bench or simulate wrote")
    if drafted := [a for a in answers if a.drafters]:
        return drafted
    raise UsageError(f"{path} holds plain decoding only, which drafts nothing: give records with drafters")


def by_arm(answers: Iterable[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """Group answers by (drafters, planner)."""
    return grouped_by(answers, lambda a: (a.arm, a.planner or ""))


def arm(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return what one arm's answers amount to, in figures and sentences."""
    every = [account for answer in answers for account in accounts(answer.steps)]
    found = summary(every, answers[0].drafters)
    return {
        "drafters": answers[0].arm,
        "planner": answers[0].planner,
        "answers": [{"answer": a.id, "task": a.task, "name": a.name} for a in answers],
        "words": list(sentences(every, found)),
        "summary": found,
    }


def summary(every: Sequence[StepAccount], names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the figures of some steps, JSON-ready; their sources have these names."""
    return {
        "steps": len(every),
        "tokens": sum(len(a.step.emitted) for a in every),
        "planned": sum(bool(a.plan) for a in every),  # steps whose plan was recorded
        "rates": asdict(Rates.of([a.step for a in every])),
        "reasons": _shares(every),  # reason -> its steps and their tokens, the most frequent first
        "off_reasons": _shares([a for a in every if not a.step.drafted]),  # the same for steps without a draft
        "forecast": _forecast(every),  # None if the planner compared no draft sizes
        "sources": [_source(every, i, name) for i, name in enumerate(names)],
        "stages": [asdict(s) for s in stages_of(own.stages for a in every for own in a.step.by_source)],
    }


def _shares(every: Sequence[StepAccount]) -> dict[str, dict[str, int]]:
    groups = sorted(grouped_by(every, lambda a: a.reason).items(), key=lambda item: -len(item[1]))
    return {
        why.value: {"steps": len(some), "tokens": sum(len(a.step.emitted) for a in some)} for why, some in groups
    }


def _forecast(every: Sequence[StepAccount]) -> dict[str, float] | None:
    """Return what the planner expected and what came, over passes of one request each.

    ``speedup``: expected tokens per second over those of plain passes by the planner's estimate; ``made``: the
    same with the tokens and milliseconds that were measured.
    """
    pairs = [(a, e, p) for a in every if (e := a.expected) and (p := a.alternative(0))]
    took = sum(a.ms for a, _, _ in pairs)
    if not pairs or not took:
        return None
    tokens, came = sum(e.tokens for _, e, _ in pairs), sum(len(a.step.emitted) for a, _, _ in pairs)
    plain = sum(p.ms for _, _, p in pairs) / len(pairs)
    return {
        "passes": len(pairs), "tokens": tokens, "came": came,
        "ms": median(e.ms for _, e, _ in pairs), "took": median(a.ms for a, _, _ in pairs),
        "speedup": tokens * plain / sum(e.ms for _, e, _ in pairs), "made": came * plain / took,
    }  # fmt: skip


def _source(every: Sequence[StepAccount], index: int, name: str) -> dict[str, Any]:
    each = [a.step.by_source[index] for a in every if index < len(a.step.by_source)]
    counts = {k: sum(getattr(s, k) for s in each) for k in ("calls", "proposed", "kept", "accepted", "failed")}
    return {"name": name, **counts, "draft_ms": 1000 * sum(s.draft_s for s in each)}


def sentences(every: Sequence[StepAccount], found: dict[str, Any]) -> Iterator[str]:
    """Yield what the figures of these steps say, the most important first."""
    if not every:
        yield "Nothing was decoded: no pass beyond reading the prompt."
        return
    rates, tokens, steps = found["rates"], found["tokens"], found["steps"]
    pace = f", {rates['tokens_per_second']:.1f} tokens/s" if rates["tokens_per_second"] else ""
    passes = f"{count(tokens, 'token')} in {count(steps, 'pass', 'passes')}"
    yield f"{passes}: mean acceptance length {rates['mean_acceptance_length']:.2f}{pace}."
    if off := found["off_reasons"]:
        several = "in {} " if len(off) > 1 else ""
        listed = "; ".join(
            several.format(count(of["steps"], "step")) + _off(every, why) for why, of in off.items()
        )
        part = share(sum(of["tokens"] for of in off.values()) / max(1, tokens))
        yield f"Drafting was off for {part} of the text: {listed}."
    yield from _drafted(every, found)
    if forecast := found["forecast"]:
        expected, came = (forecast[name] / forecast["passes"] for name in ("tokens", "came"))
        yield (
            f"The planner expected {expected:.2f} tokens in {forecast['ms']:.1f} ms of a pass, {came:.2f} came in "
            f"{forecast['took']:.1f} ms. By its estimate of a plain pass it forecast {forecast['speedup']:.2f} "
            f"times the pace of plain decoding; {forecast['made']:.2f} times came."
        )
    yield from _policies(every)
    yield from (f"At the end: {note}." for note in every[-1].notes)
    for source in found["sources"]:
        if source["failed"]:
            yield f"{source['name']} failed and was disabled in {count(source['failed'], 'answer')}."
    for stage in found["stages"]:
        yield (
            f"The draft model {stage['name']} ran {count(stage['passes'], 'pass', 'passes')} in "
            f"{1000 * stage['seconds']:.0f} ms and accepted {stage['accepted']} of {stage['proposed']} drafted "
            "nodes."
        )
    if not found["planned"]:
        yield "The planner's own account was not kept: only counts are known."
    elif found["planned"] < steps:
        kept = f"{found['planned']} of {steps} steps"
        yield f"The planner's own account was kept of {kept}; of the others only counts are known."


_UNDRAFTED = {
    Reason.OFF: "nothing may draft",
    Reason.HELD: "a policy held it",
    Reason.EXPLORED: "a plain pass was tried, to see what it costs",
    Reason.END: "one token was left to write",
    Reason.RESTED: "sources were not asked, as nothing of theirs had paid",
    Reason.NOTHING: "no source had a candidate",
}
_DRAFTED = {
    Reason.ALL: "every candidate paid",
    Reason.PART: "more candidates would not have paid",
    Reason.MOST: "as many were scored as may be",
    Reason.LIKELY: "what was likely enough was scored",
}


def _off(every: Sequence[StepAccount], name: str) -> str:
    """Say why there was no draft where this was the reason."""
    if name != Reason.UNLIKELY:
        return _UNDRAFTED.get(Reason(name), "no reason was recorded")
    odds = [a.odds for a in every if a.reason is Reason.UNLIKELY and a.odds is not None]
    if not odds:
        return "no candidate was likely enough"
    likely, cost = [one for one, _ in odds], median(node for _, node in odds)
    price = f"a node costs {share(cost)} of a pass"
    if max(likely) < cost:
        return f"no candidate was likelier than {share(max(likely))} and {price}"
    return f"the best candidate had {share(median(likely))} (median; {share(max(likely))} at most) and {price}"


def _drafted(every: Sequence[StepAccount], found: dict[str, Any]) -> Iterator[str]:
    sizes, rates, reasons = [a.step.drafted for a in every if a.step.drafted], found["rates"], found["reasons"]
    if not sizes:
        return
    yield (
        f"{count(len(sizes), 'step')} drafted, {median(sizes):.0f} nodes in the middle ({max(sizes)} at most); "
        f"{share(rates['acceptance_rate'])} of all nodes were accepted, "
        f"{rates['accepted_per_cycle']:.2f} per draft."
    )
    if said := [f"in {count(reasons[r]['steps'], 'step')} {text}" for r, text in _DRAFTED.items() if r in reasons]:
        yield f"I{'; '.join(said)[1:]}."
    if tried := reasons.get(Reason.EXPLORED):
        part = share(tried["steps"] / found["steps"])
        yield f"{count(tried['steps'], 'step')} ({part}) tried another width, to see what passes cost now."


def _policies(every: Sequence[StepAccount]) -> Iterator[str]:
    """Yield what each policy did, the most frequent first, then those that only measured."""
    last = {name: why for account in every for name, why in account.policies.items()}
    counted = Counter(name for a in every for name in a.held)
    for name, n in counted.most_common():
        held = [a for a in every if name in a.held]
        seen = next((a.policies[name] for a in reversed(held) if name in a.policies), "")
        nodes = max(a.step.drafted for a in held)
        did = f"held the draft to {count(nodes, 'node')}" if nodes else "stopped drafting"
        yield f"{name} {did} for {share(n / len(every))} of the steps{f' ({seen})' if seen else ''}."
    for name, why in last.items():
        if name not in counted:
            yield f"{name} held no draft back{': ' if why else ''}{why}."


def steps_of(answer: Answer) -> Iterator[dict[str, Any]]:
    """Yield a dictionary per step of an answer, with its text if known."""
    at = len(answer.output_ids) - sum(len(s.emitted) for s in answer.steps)
    for account in accounts(answer.steps):
        step, expected = account.step, account.expected
        end = at + len(step.emitted)
        yield {
            "step": account.number,
            "context": step.context,
            "emitted": list(step.emitted),
            "text": "".join(answer.pieces[at:end]) if answer.pieces else None,
            "asked": account.asked,
            "candidates": account.plan.get("candidates"),
            **{name: getattr(step, name) for name in ("drafted", "lookahead_scored", "accepted")},
            "expected_tokens": expected.tokens if expected else None,
            "expected_ms": expected.ms if expected else None,
            "ms": account.ms,
            "reason": account.reason.value,
            "why": account.words,
        }
        at = end


def detail(answer: Answer, account: StepAccount) -> dict[str, Any]:
    """Return everything that is known about one step."""
    step, tree, sources = account.step, Tree.of(account.step), []
    counts = ("asked", "proposed", "kept", "accepted", "match_length", "failed")
    for index, own in enumerate(step.by_source):
        name = answer.drafters[index] if index < len(answer.drafters) else f"source {index}"
        stages = {"stages": [asdict(stage) for stage in own.stages]} if own.stages else {}
        sources.append(
            {"source": name, **{k: getattr(own, k) for k in counts}, "draft_ms": 1000 * own.draft_s, **stages}
        )
    return next(each for each in steps_of(answer) if each["step"] == account.number) | {
        "ms_of": {
            n: 1000 * getattr(step, f"{n}_s") for n in ("plan", "draft", "score", "verify", "keep", "learn")
        },
        "plan": account.plan,
        "alternatives": [
            {"nodes": a.nodes, "expected_tokens": a.tokens, "ms": a.ms, "tokens_per_second": a.rate}
            for a in account.alternatives
        ],
        "policies": [{"policy": n, "held": n in account.held, "why": why} for n, why in account.policies.items()],
        "notes": account.notes,
        "sources": sources,
        "tree": tree.to_json() if tree is not None else None,
    }
