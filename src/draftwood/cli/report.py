"""``draftwood report``: records of measurements as one self-contained page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from draftwood.cli import early, screen


def report(
    rows: Annotated[
        list[Path], Argument(metavar="RECORDS...", help="Files that bench, generate or profile wrote with -o.")
    ],
    output: Annotated[Path, Option("--output", "-o", metavar="PAGE.html", help="Write the page here.")],
    title: Annotated[str | None, Option(metavar="TEXT", help="Title of the page. [default: the model]")] = None,
    answers: Annotated[
        int | None, Option(min=0, metavar="N", help="Answers shown as text. [default: one per task]")
    ] = None,
    force: early.Force = False,
) -> None:
    """Show what was measured as one self-contained HTML page."""
    from draftwood.measure.report.page import build, write
    from draftwood.measure.wording import count

    early.check_place(output, force or output in rows)  # `write` refuses to replace a file of records
    page, shown = build(rows, title, answers)
    size = write(output, page, rows)
    screen.say(
        f"{output}: {size / 1000:,.0f} kB, {count(shown, 'answer')} shown as text", file=screen.beside(output)
    )
