"""Makes the page of some files, and writes it whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from draftwood.errors import UsageError
from draftwood.measure.records.lines import whole_file
from draftwood.measure.records.records import Answer
from draftwood.measure.report import answers, curves, figures, notes, opening, results
from draftwood.measure.report.material import Material, gather
from draftwood.measure.report.render import render
from draftwood.measure.report.standings import PLAIN_ARMS, Standings
from draftwood.measure.report.steps import Pieces, StepData


@dataclass(frozen=True, slots=True)
class Page:
    """A finished page, which refers to nothing outside, and how many answers it shows as text."""

    html: str
    shown: int


def build(paths: Sequence[Path], title: str | None = None, most: int | None = None) -> Page:
    """Make the page of these files.

    Parameters
    ----------
    paths
        Rows of ``bench``, ``simulate``, ``probe`` and a ``profile``; at least one.
    title
        Of the page; by default the model.
    most
        Answers shown as text; None: one per task, at most six.

    Raises
    ------
    UsageError
        If a file cannot be opened, files do not belong together (other models, formats, machines, prompts), or
        jinja2 is not installed.
    RecordError
        For a broken file, and for one without anything to show.
    """
    material = gather(paths)
    standings = Standings.of(material.rows)
    figure = opening.figure(material, standings)
    shown = opening.first(answers.choose(material, standings, most), figure, standings)
    values = _values(material, standings, shown)
    values |= {"figure": figure, "title": title or opening.title(material)}
    return Page(render(values), len(shown))


def _values(material: Material, standings: Standings, shown: Sequence[Answer]) -> dict[str, Any]:
    """Return what the templates show, each part empty or None where nothing was measured."""
    known = [*material.rows.answers, *material.probed]
    look = answers.names(shown)
    steps = StepData(Pieces(known), look)
    for answer in shown:
        steps.add(answer)
    return {
        "lead": opening.lead(material, standings),
        "articles": [answers.article(answer, look, standings) for answer in shown],
        "legend": [(name, answers.style(look, name)) for name in look],
        "probed": bool(material.probed) and not material.rows.answers,
        "untold": bool(known) and not shown,
        "runs": material.runs,
        "results": results.results(standings),
        "probe": notes.probed(material.probed),
        "arms": sum(arm not in PLAIN_ARMS for arm in standings.arms),
        "most_arms": figures.MOST_ARMS,
        "prompts": figures.dots(standings, material.rows),
        "positions": figures.positions(standings, material.rows),
        "time": figures.split(standings, material.rows),
        "cost": curves.costs(material.profile),
        "pace": curves.trends(material.rows.of_kind("sustained")),
        "differences": notes.differences(material, standings),
        "loops": notes.looped(standings),
        "headers": material.headers,
        "data": steps.packed(),
        "version": _version(),
    }


def _version() -> str:
    try:
        return version("draftwood")
    except PackageNotFoundError:
        return ""


def write(path: Path, page: Page, sources: Sequence[Path] = ()) -> int:
    """Write a page whole or not at all; returns its bytes.

    Raises
    ------
    UsageError
        If the place is one of ``sources``.
    RecordError
        If it cannot be written; what stood there before is untouched.
    """
    if path.resolve() in {source.resolve() for source in sources}:
        raise UsageError(f"{path} is one of the files that the report is made from: choose another -o")
    content = page.html.encode()
    with whole_file(path) as beside:
        beside.write_bytes(content)
    return len(content)
