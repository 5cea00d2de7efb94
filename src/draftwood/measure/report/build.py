"""Puts the page together and writes it whole or not at all."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from string import Template

from draftwood.errors import UsageError
from draftwood.measure.records.lines import whole_file
from draftwood.measure.report import answers, curves, figures, headline, notes
from draftwood.measure.report.markup import count, data, esc
from draftwood.measure.report.material import Material, gather
from draftwood.measure.report.standings import Standings
from draftwood.measure.report.steps import NO_STEPS


@dataclass(frozen=True, slots=True)
class Page:
    """A finished page.

    Attributes
    ----------
    html
        All of it; it refers to nothing outside.
    shown
        How many answers it shows as text.
    """

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
        If a file cannot be opened, or files do not belong together: other models, formats, machines, prompts.
    RecordError
        For a broken file, and for one without anything to show.
    """
    material = gather(paths)
    standings = Standings.of(material.rows)
    shown = answers.choose(material, standings, most)
    known = [*material.rows.answers, *material.lookahead_scored]
    texts, steps = answers.texts(shown, known, standings) if shown else (_untold(material), None)
    sections = [
        ("results", "Results", headline.results(standings) + _apart(material)),
        ("lookahead", "Probe", notes.lookahead_scored(material.lookahead_scored)),
        ("prompts", "Speedup per prompt", figures.dots(standings, material.rows)),
        ("texts", "Who wrote each token", texts),
        ("positions", "Acceptance by position", figures.positions(standings, material.rows)),
        ("time", "Where the time goes", figures.split(standings)),
        ("cost", "What a pass costs", curves.costs(material.profile)),
        ("pace", "Pace over minutes", curves.trends(material.rows.of_kind("sustained"))),
        ("differences", "Texts that differ", notes.differences(material, standings)),
        ("loops", "Looped tails", notes.looped(standings)),
        ("words", "Words", _read("words.html")),
        ("provenance", "Where these figures come from", notes.provenance(material)),
    ]
    there = [(name, heading, body) for name, heading, body in sections if body]
    packed = steps.packed() if steps is not None else NO_STEPS
    script = _read("page.js")
    page = Template(_read("page.html")).substitute(
        title=esc(title or headline.title(material)),
        lead=headline.sentence(material, standings),
        contents="".join(f'<a href="#{name}">{heading}</a>' for name, heading, _ in there),
        sections="".join(
            f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{heading}</h2>{body}</section>'
            for name, heading, body in there
        ),
        style=_read("page.css"),
        script=script,
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=data(packed),
        version=_version(),
    )
    return Page(page, len(shown))


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


def _read(name: str) -> str:
    return files("draftwood.measure.report").joinpath(name).read_text(encoding="utf-8")


def _version() -> str:
    try:
        return esc(version("draftwood"))
    except PackageNotFoundError:
        return ""


def _apart(material: Material) -> str:
    if material.runs < 2:
        return ""
    said = count(material.runs, "run")
    return f'<p class="note">These rows come from {said}, whose rounds were not interleaved.</p>'


def _untold(material: Material) -> str:
    if not (material.rows.answers or material.lookahead_scored):
        return ""
    return "<p>These files keep no text of drafted answers: rows of <code>draftwood bench</code> do.</p>"
