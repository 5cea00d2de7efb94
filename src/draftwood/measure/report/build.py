"""Makes a report page of some files, and writes it completely or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.records.lines import whole_file
from draftwood.measure.records.provenance import package_version
from draftwood.measure.records.records import Answer
from draftwood.measure.report import answers, figures, notes, opening, results
from draftwood.measure.report.material import Material, gather
from draftwood.measure.report.render import render
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
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
        "results": results.results(standings),
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
