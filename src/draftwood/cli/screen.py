"""Shows what verbs found: consoles, progress, tables, one JSON document; imports rich when needed."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TextIO

import typer

from draftwood.api.prompts import decoder
from draftwood.measure.wording import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_PIPE_WIDTH = 200
_SECOND, _MINUTE = 1.0, 60.0
_BAR_WIDTH = 40


class CtrlC:
    """A block that Ctrl-C ends early; ``pressed`` says afterwards whether it did."""

    pressed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.pressed = kind is KeyboardInterrupt
        return self.pressed


def say(text: object = "", *, file: TextIO | None = None, end: str = "\n", flush: bool = False) -> None:
    """Print text, without characters that a terminal would obey: every verb does it so, or by a `console`."""
    print(clean(str(text)), file=file or sys.stdout, end=end, flush=flush)


def finish(document: Any, show: Callable[[], None], *, as_json: bool, interrupted: bool = False) -> None:
    """Print a document as JSON, or show it to people; after Ctrl-C, leave with exit code 130."""
    if as_json:
        say(json.dumps(document))
    else:
        show()
    if interrupted:
        raise typer.Exit(130)


def console(stream: TextIO | None = None) -> Console:
    """Return a console, by default on standard output; it styles only on a terminal without NO_COLOR."""
    stream = stream or sys.stdout
    plain = bool(os.environ.get("NO_COLOR")) or not stream.isatty()
    return _clean_console()(
        file=stream, color_system=None if plain else "auto", width=None if stream.isatty() else _PIPE_WIDTH,
        highlight=False, markup=False, emoji=False, soft_wrap=True,
    )  # fmt: skip


@cache
def _clean_console() -> type[Console]:
    """Return a console that cleans what tables and texts are made of; its own colours and movements stay."""
    from rich.console import Console
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
            for text, style, control in super().render(*given, **options):
                yield Segment(text if control else clean(text), style, control)

    return CleanConsole


@contextmanager
def busy(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal that something takes a while.

    Yields (done, all) -> None: where it is called, and it takes longer than a second, a bar is shown.
    """
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    begun = monotonic()
    with console(sys.stderr).status(f"{what} …") as shown:

        def report(done: int, total: int) -> None:
            if monotonic() - begun > _SECOND:
                from rich.progress_bar import ProgressBar
                from rich.table import Table

                line = Table.grid(padding=(0, 1))
                line.add_row(what, ProgressBar(total, done, width=_BAR_WIDTH), percent(done / max(1, total)))
                shown.update(line)

        yield report


@contextmanager
def progress(title: str = "") -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal; yields (done, all, what comes now) -> None.

    Elsewhere, a bar without ``title`` is a line a minute, and one with a title says nothing.
    """
    if not sys.stderr.isatty():
        yield _line_a_minute() if not title else lambda _done, _total, _what: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    titles = [TextColumn(title)] if title else []
    columns = (*titles, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        line = bar.add_task("")
        yield lambda done, total, what: bar.update(line, completed=done, total=total, description=what)


def _line_a_minute() -> Callable[[int, int, str], None]:
    said = monotonic()

    def note(done: int, total: int, what: str) -> None:
        nonlocal said
        if monotonic() - said > _MINUTE:
            said = monotonic()
            say(f"{done} of {total}, {what}", file=sys.stderr, flush=True)

    return note


def table(first: str, *columns: str, last: str | None = None, rows: Iterable[Sequence[str]] = ()) -> Table:
    """Return a table without lines: the first and ``last`` column to the left, numbers to the right."""
    from rich.table import Table

    table = Table(first, box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right")
    if last is not None:
        table.add_column(last)
    for row in rows:
        table.add_row(*row)
    return table


def percent(value: float | None) -> str:
    """Format a share for a cell; nothing for None."""
    return "" if value is None else f"{100 * value:.0f} %"


def visible(text: str) -> str:
    """Return text on one line, without characters that a terminal would obey."""
    return clean(text).replace("\n", "↵").replace("\t", "⇥")


def edged(text: str) -> str:
    """As `visible`, with blanks at the ends as dots."""
    return re.sub("^ | $", "·", visible(text))


def shower(tokenizer: Any, *, special: bool = False) -> Callable[[int], str]:
    """Return a function that gives a token's text, ``special`` ones' too if asked, else ``#`` and its id."""
    decode = decoder(tokenizer, special=special)
    return lambda token: decode([token]) or f"#{token}"


def say_skipped(skipped: dict[str, int]) -> None:
    """Say on standard error how many files were left out, and why, the most frequent reason first."""
    if skipped:
        reasons = sorted(skipped.items(), key=lambda item: -item[1])
        say("left out: " + ", ".join(f"{count:,} {reason}" for reason, count in reasons), file=sys.stderr)
