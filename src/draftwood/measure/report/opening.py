"""The top of the page: title, first sentence, the headline figure with its small table, and one answer."""

from __future__ import annotations

from typing import Any

from draftwood.measure.bench.table import sameness
from draftwood.measure.probe import ProbeCounts
from draftwood.measure.records.records import Answer
from draftwood.measure.report.material import Material
from draftwood.measure.report.notes import by_task
from draftwood.measure.report.standings import OURS, PLAIN_ARMS, Row, Standings, interval, length, speedup


def title(material: Material) -> str:
    """Return the page's default title."""
    facts = material.facts
    name = " ".join(str(facts[n]) for n in ("model", "dtype") if n in facts)
    return f"draftwood on {name}" if name else "draftwood"


def lead(material: Material, standings: Standings) -> dict[str, Any]:
    """Return the facts of the first sentence: what was measured and, of several arms of ours, the worst result."""
    facts = material.facts
    drafted = {arm: engine for arm, engine in standings.arms.items() if arm not in PLAIN_ARMS}
    others = [engine for engine in drafted.values() if engine not in OURS]
    means = [mean for mean in standings.means() if standings.arms[mean.arm] in OURS]
    return {
        "facts": facts,
        "replayed": set(standings.arms.values()) == {"replay"},
        "answers": len(material.records.answers),
        "probed": len(material.probed),
        "profiled": bool(material.profile),
        "prompts": len({(a.task, a.name) for a in material.records.answers}),
        "tasks": len(standings.tasks),
        "rounds": len({a.round for a in material.records.answers}),
        "plainly": len(drafted) < len(standings.arms),
        "ours": [arm for arm, engine in drafted.items() if engine in OURS],
        "others": len(others),
        "engines": list(dict.fromkeys(others)),
        "worst": min((m.worst for m in means), key=lambda row: speedup(row) or 0.0) if len(means) > 1 else None,
    }


def figure(material: Material, standings: Standings) -> dict[str, Any] | None:
    """Return the headline figure and its small table, the worst task first: the speedup if plain decoding was
    timed, else tokens per pass, of a probe the accepted share; None if nothing was measured."""
    for kind, measure in (("speedup", speedup), ("length", length)):
        means = standings.means(measure)
        if known := [m for m in means if standings.arms[m.arm] in OURS] or means:
            best = max(known, key=lambda mean: mean.value)
            rows = [r for r in standings.drafted if r["drafter"] == best.arm and measure(r)]
            lines = [_line(r, measure(r) or 0.0, interval(r) if kind == "speedup" else None) for r in rows]
            return {
                "kind": kind,
                "arm": best.arm,
                "of": len(known),
                "slower": sum(p["speedup"] < 1 for r in rows for p in r["per_prompt"]),
                "prompts": sum(len(r["per_prompt"]) for r in rows),
                **_lines(best.value, lines),
            }
    if not material.probed:
        return None
    tasks, whole = by_task(material.probed), ProbeCounts.of(material.probed)
    lines = [{"task": task, "value": counts.accepted_per_target} for task, counts in tasks.items()]
    return {"kind": "probe"} | _lines(whole.accepted_per_target, lines)


def _line(row: Row, value: float, between: list[float] | None) -> dict[str, Any]:
    return {
        "task": row["task"],
        "value": value,
        "interval": between,
        "length": length(row),
        "identical": sameness(row),
    }


def _lines(value: float, lines: list[dict[str, Any]]) -> dict[str, Any]:
    lines = sorted(lines, key=lambda line: line["value"])
    return {"value": value, "lines": lines, "top": max(1.0, *(line["value"] for line in lines), 0.0)}


def first(shown: list[Answer], figure: dict[str, Any] | None, standings: Standings) -> list[Answer]:
    """Move the answer whose own speedup is nearest to the headline figure to the front."""
    if figure is None or figure["kind"] != "speedup":
        return shown
    speedups = {id(a): standings.prompt_speedups(a.task, a.arm).get(a.name) for a in shown}
    timed = [a for a in shown if speedups[id(a)] is not None and a.arm == figure["arm"]]
    if not timed:
        return shown
    nearest = min(timed, key=lambda a: abs((speedups[id(a)] or 0.0) - figure["value"]))
    return [nearest, *(a for a in shown if a is not nearest)]
