"""Makes a report page of some files, and writes it completely or not at all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.bench.table import ACCEPTED_PER_CYCLE, SPEEDUP, sameness
from draftwood.measure.records.lines import whole_file
from draftwood.measure.records.provenance import package_version
from draftwood.measure.records.records import Answer
from draftwood.measure.report import answers, figures, notes, opening
from draftwood.measure.report.markup import number, percent
from draftwood.measure.report.material import Material, gather
from draftwood.measure.report.render import render
from draftwood.measure.report.standings import PLAIN_ARMS, Row, Standings, interval, length, speedup
from draftwood.measure.report.steps import Pieces, StepData


@dataclass(frozen=True, slots=True)
class Page:
    """A finished page."""

    html: str  # without references to anything outside
    shown: int  # answers shown as text


def build(paths: Sequence[Path], title: str | None = None, most: int | None = None) -> Page:
    """Make the page of records of ``bench``, ``simulate`` and ``probe`` and of a profile; ``most`` as in `choose`.
    Raises `UsageError` if a file cannot be opened, if files differ in model, format, machine or prompts, or if
    jinja2 is missing, and `RecordError` for a broken file and one without anything to show."""
    material = gather(paths)
    standings = Standings.of(material.records)
    figure = opening.figure(material, standings)
    shown = opening.first(answers.choose(material, standings, most), figure, standings)
    values = _values(material, standings, shown)
    values |= {"figure": figure, "title": title or opening.title(material)}
    return Page(render(values), len(shown))


def _values(material: Material, standings: Standings, shown: Sequence[Answer]) -> dict[str, Any]:
    """Return the values that the templates show, empty or None where nothing was measured."""
    known = [*material.records.answers, *material.probed]
    look = answers.names(shown)
    steps = StepData(Pieces(known), look)
    for answer in shown:
        steps.add(answer)
    return {
        "lead": opening.lead(material, standings),
        "articles": [answers.article(answer, look, standings) for answer in shown],
        "legend": [(name, answers.style(look, name)) for name in look],
        "probed": bool(material.probed) and not material.records.answers,
        "untold": bool(known) and not shown,
        "runs": material.runs,
        "results": results(standings),
        "probe": notes.probed(material.probed),
        "arms": sum(arm not in PLAIN_ARMS for arm in standings.arms),
        "most_arms": figures.MOST_ARMS,
        "prompts": figures.dots(standings, material.records),
        "positions": figures.positions(standings, material.records),
        "time": figures.split(standings, material.records),
        "cost": figures.costs(material.profile),
        "pace": figures.trends(material.records.of_kind("sustained")),
        "differences": notes.differences(material, standings),
        "loops": notes.looped(standings),
        "headers": material.headers,
        "data": steps.packed(),
        "version": package_version("draftwood") or "",
    }


def write(path: Path, page: Page, sources: Sequence[Path] = ()) -> int:
    """Write a page completely or not at all, and return its size in bytes. Raises `UsageError` if ``path`` is one
    of ``sources``, `RecordError` if it cannot be written."""
    if path.resolve() in {source.resolve() for source in sources}:
        raise UsageError(f"{path} is one of the files that the report is made from: choose another -o")
    content = page.html.encode()
    with whole_file(path) as beside:
        beside.write_bytes(content)
    return len(content)


_COLUMNS: dict[str, Callable[[Row], str]] = {
    "Speedup": lambda r: number(speedup(r)),
    "Accepted per cycle": lambda r: number(r["accepted_per_cycle_unlooped"] or None),
    "Mean acceptance length": lambda r: number(length(r)),
    "Acceptance rate": lambda r: percent(r["acceptance_rate"] or None),
    "Draft coverage": lambda r: percent(r["draft_coverage"]),
    "Identical text": sameness,
    "Three or more accepted": lambda r: percent(r["three_accepted"] or None),
    "Speedup with looped tails": lambda r: number(r["speedup"]),
    "Speedup end to end": lambda r: number(r.get("end_to_end_speedup")),
    "Tokens per second": lambda r: number(r["tokens_per_second"], 1),
    "TTFT, ms": lambda r: number(r["ttft"], 0, 1000),
    "TPOT, ms": lambda r: number(r["tpot"], 1, 1000),
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
        "plain": row["drafter"] in PLAIN_ARMS,
        "cells": {name: _COLUMNS[name](row) for name in columns},
        "met": [name for name, met in _TARGETS.items() if met(row)],
        "interval": found if found and found[0] < found[1] else None,  # plain against itself has none
    }
