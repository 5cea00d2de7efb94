"""Makes a report page of some files, and writes it completely or not at all."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.bench.table import ACCEPTED_PER_CYCLE, SPEEDUP, sameness
from draftwood.measure.records.lines import whole_file
from draftwood.measure.records.provenance import package_version
from draftwood.measure.report import answers, figures
from draftwood.measure.report.material import Material, gather
from draftwood.measure.report.standings import (
    OURS,
    PLAIN_ARMS,
    Row,
    Standings,
    interval,
    is_plain,
    length,
    speedup,
)
from draftwood.measure.wording import clean, count, number, percent

_ODD = 1.05  # speedups above so many times the tokens per pass cannot be: the plain arm was slow
_BEFORE = 12  # tokens shown before the place where texts differ


@dataclass(frozen=True, slots=True)
class Page:
    """A finished page."""

    html: str  # without references to anything outside
    shown: int  # answers shown as text


def build(paths: Sequence[Path], title: str | None = None, most: int | None = None) -> Page:
    """Make the page of records of ``bench`` and ``simulate`` and of a profile; ``most`` as in `answers.choose`.

    Raises `UsageError` if a file cannot be opened, if files differ in model, format, machine or prompts, or if
    jinja2 or matplotlib is missing, and `RecordError` for a broken file and one without anything to show.
    """
    material = gather(paths)
    records, standings = material.records, Standings.of(material.records)
    figure = headline(standings)
    of = (figure["arm"], figure["value"]) if figure and figure["kind"] == "speedup" else ("", None)
    shown = answers.choose(records, standings, most, *of)
    look, pieces = answers.names(shown), answers.Pieces(records.answers)
    facts = material.facts
    name = " ".join(str(facts[n]) for n in ("model", "dtype") if n in facts)
    values = {
        "title": title or (f"draftwood on {name}" if name else "draftwood"),
        "lead": lead(material, standings),
        "figure": figure,
        "articles": [answers.article(answer, look, standings) for answer in shown],
        "legend": [(name, f"c{number_ % answers.STYLES}") for name, number_ in look.items()],
        "untold": bool(records.answers) and not shown,
        "runs": material.runs,
        "results": results(standings),
        "arms": sum(arm not in PLAIN_ARMS for arm in standings.arms),
        "most_arms": figures.MOST_ARMS,
        "prompts": figures.prompts(standings, records),
        "positions": figures.positions(standings, records),
        "time": figures.split(standings, records),
        "parts": figures.PARTS,
        "cost": figures.costs(material.profile),
        "pace": figures.trends(records.of_kind("sustained")),
        "differences": differences(material, standings, pieces),
        "loops": looped(standings),
        "headers": material.headers,
        "data": answers.packed(shown, look, pieces),
        "version": package_version("draftwood") or "",
    }
    return Page(render(values), len(shown))


def render(values: dict[str, Any]) -> str:
    """Return the page as HTML; all values are escaped. Raises `UsageError` if jinja2 is not installed."""
    try:
        from jinja2 import Environment, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise UsageError('a report needs jinja2: run pip install "draftwood[measure]"') from error

    def shown(value: Any) -> Any:
        return "" if value is None else value if isinstance(value, Markup) else clean(str(value))

    def read(name: str) -> str:
        return files("draftwood.measure.report").joinpath(name).read_text(encoding="utf-8")

    environment = Environment(
        autoescape=True, finalize=shown, lstrip_blocks=True, trim_blocks=True, undefined=StrictUndefined
    )
    environment.filters.update(count=count, number=number, percent=percent)
    environment.policies["json.dumps_kwargs"] = {"ensure_ascii": False, "separators": (",", ":")}
    script = read("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    own = {"style": Markup(read("page.css")), "script": Markup(script), "hash": digest}
    return environment.from_string(read("page.html.j2")).render(own | values)


def write(path: Path, page: Page, sources: Sequence[Path] = ()) -> int:
    """Write a page completely or not at all, and return its size in bytes.

    Raises `UsageError` if ``path`` is one of ``sources``, `RecordError` if it cannot be written.
    """
    if path.resolve() in {source.resolve() for source in sources}:
        raise UsageError(f"{path} is one of the files that the report is made from: choose another -o")
    content = page.html.encode()
    with whole_file(path) as beside:
        beside.write_bytes(content)
    return len(content)


def lead(material: Material, standings: Standings) -> dict[str, Any]:
    """Return the facts of the first sentence: what was measured and, of several arms of ours, the worst result."""
    drafted = {arm: engine for arm, engine in standings.arms.items() if arm not in PLAIN_ARMS}
    others = [engine for engine in drafted.values() if engine not in OURS]
    means = [mean for mean in standings.means() if standings.arms[mean.arm] in OURS]
    loads = [header.get("provenance", {}).get("load_average") for _, header in material.headers]
    return {
        "facts": material.facts,
        "load": max((load[0] for load in loads if load), default=None),
        "replayed": set(standings.arms.values()) == {"replay"},
        "answers": len(material.records.answers),
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


def headline(standings: Standings) -> dict[str, Any] | None:
    """Return the headline figure and its small table, the worst task first; None if nothing was measured.

    It is the speedup if plain decoding was timed, else tokens per pass.
    """
    for kind, measure in (("speedup", speedup), ("length", length)):
        means = standings.means(measure)
        if known := [m for m in means if standings.arms[m.arm] in OURS] or means:
            best = max(known, key=lambda mean: mean.value)
            rows = [r for r in standings.drafted if r["drafter"] == best.arm and measure(r)]
            lines = [{"task": r["task"], "value": measure(r), **_beside(r, kind)} for r in rows]
            return {
                "kind": kind,
                "arm": best.arm,
                "of": len(known),
                "slower": sum(p["speedup"] < 1 for r in rows for p in r["per_prompt"]),
                "prompts": sum(len(r["per_prompt"]) for r in rows),
                "value": best.value,
                "lines": sorted(lines, key=lambda line: line["value"]),
            }
    return None


def _beside(row: Row, kind: str) -> dict[str, Any]:
    value, passes = speedup(row), length(row)
    return {
        "odd": bool(kind == "speedup" and value and passes and value > _ODD * passes),
        "interval": interval(row) if kind == "speedup" else None,
        "length": passes,
        "pace": row["tokens_per_second"],
        "identical": sameness(row),
    }


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "Speedup": lambda r: number(speedup(r)),
    "Accepted per cycle": lambda r: number(r["accepted_per_cycle_unlooped"] or None),
    "Tokens per pass": lambda r: number(length(r)),
    "Tokens per second": lambda r: number(r["tokens_per_second"], 1),
    "Acceptance rate": lambda r: percent(r["acceptance_rate"] or None),
    "Draft coverage": lambda r: percent(r["draft_coverage"]),
    "Identical text": sameness,
    "Speedup with looped tails": lambda r: number(r["speedup"]),
    "Speedup end to end": lambda r: number(r.get("end_to_end_speedup")),
    "TTFT, ms": lambda r: number(r["ttft"], 0, 1000),
    "ITL p95, ms": lambda r: number(r["p95_itl"], 1, 1000),
    "CPUs": lambda r: number(r["cpu_share"], 1),
    "Joules per token": lambda r: number(r["joules_per_token"]),
    "Draft weights, MB": lambda r: number(r.get("draft_weight_bytes") or None, 1, 1e-6),
    "Draft cache, MB": lambda r: number(r.get("draft_cache_bytes") or None, 1, 1e-6),
    "°C": lambda r: number(r.get("celsius"), 0),
    "Tokens": lambda r: str(r["generated"]),
    "Prompts": lambda r: str(r["prompts"]),
}

_TARGETS: dict[str, Callable[[Row], bool]] = {
    "Speedup": lambda r: (speedup(r) or 0.0) > SPEEDUP,
    "Accepted per cycle": lambda r: (r["accepted_per_cycle_unlooped"] or 0.0) > ACCEPTED_PER_CYCLE,
}


def results(standings: Standings) -> dict[str, Any] | None:
    """Return the table; a column without any figure is left out."""
    if not standings.rows:
        return None
    columns = [name for name, cell in _COLUMNS.items() if any(cell(r) for r in standings.rows)]
    if all(number(r["speedup"]) == number(speedup(r)) for r in standings.rows):
        columns = [name for name in columns if name != "Speedup with looped tails"]
    rows = [*standings.drafted, *standings.plain]
    engines = dict.fromkeys(standings.arms.values())
    means = standings.means() if len(standings.tasks) > 1 else []
    return {
        "columns": columns,
        "groups": [(e, [_line(r, columns) for r in rows if r["engine"] == e]) for e in engines],
        "means": [(m.arm, number(m.value), m.value > SPEEDUP, number(speedup(m.worst))) for m in means],
        "cycles": any(r["accepted_per_cycle"] for r in standings.rows),
        "targets": (f"{ACCEPTED_PER_CYCLE:g}", f"{SPEEDUP:g}"),
    }


def _line(row: Row, columns: list[str]) -> dict[str, Any]:
    found = interval(row)
    return {
        "task": row["task"],
        "arm": "none (plain)" if row["drafter"] == "none" else row["drafter"],
        "plain": is_plain(row),
        "cells": {name: _COLUMNS[name](row) for name in columns},
        "met": [name for name, met in _TARGETS.items() if met(row)],
        "interval": found if found and found[0] < found[1] else None,  # plain against itself has none
    }


def differences(material: Material, standings: Standings, pieces: answers.Pieces) -> dict[str, Any] | None:
    """Return the texts that differ from plain decoding's, with their margins; None if all were replayed."""
    if all(engine == "replay" for engine in standings.arms.values()):
        return None
    by_id = {answer.id: answer for answer in material.records.answers}
    lossy = [r for r in standings.drafted if r["rule"] is not None]
    compared = [r for r in standings.drafted if r["identical"] is not None and r["rule"] is None]

    def one(row: dict[str, Any]) -> dict[str, Any]:
        answer, plain, i = by_id[row["answer"]], by_id[row["against"]], row["index"]
        theirs, ours = (pieces.text(a.output_ids[i] if i < len(a.output_ids) else None) for a in (plain, answer))
        known = {name: row.get(name) for name in ("index", "margin", "near_tie", "rounding", "cause")}
        before = pieces.joined(answer.output_ids[max(0, i - _BEFORE) : i])
        return {"answer": answer, "before": before, "ours": ours, "theirs": theirs, **known}

    return {
        "found": [one(row) for row in material.records.of_kind("difference")],
        "compared": bool(compared),
        "lossy": [
            f"{r['drafter']} on {r['task']}, by the lossy rule {r['rule']}: {sameness(r) or 'nothing to compare'}"
            for r in lossy
        ],
        "unmeasured": [f"{r['drafter']} on {r['task']}" for r in compared if r["identical"] is False],
    }


def looped(standings: Standings) -> dict[str, Any] | None:
    """Return how many tokens of each task are looped tails."""
    rows = standings.plain or standings.rows
    if not rows:
        return None
    first = {r["task"]: r for r in reversed(rows)}
    looping = [r for task in standings.tasks if (r := first.get(task)) is not None and r["looped_tokens"]]
    return {"rows": looping, "plain": is_plain(rows[0])}
