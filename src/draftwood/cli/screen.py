"""Shows what verbs found: consoles, progress, tables, one JSON document; imports rich when needed."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TextIO, TypeVar

import typer

from draftwood.engines.tokens.file_tokenizer import decoder
from draftwood.files.foreign import mended
from draftwood.files.paths import is_stream
from draftwood.local.machine import threads_given
from draftwood.measure.wording import clean, percent

if TYPE_CHECKING:
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

R = TypeVar("R")
_PIPE_WIDTH = 200
_WIDTH, _COLUMNS = 80, 6  # characters and columns of a table
MORE = "--json has more figures."

# Colours of the drafters, in their order: of equal, middle brightness, readable on black and on white.
PALETTE = ("#089c39", "#0c8ae5", "#e54b98", "#a06bea", "#d66705")


class CtrlC:
    """A block that Ctrl-C ends early; ``pressed`` says afterwards whether it did."""

    pressed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        self.pressed = kind is KeyboardInterrupt
        return self.pressed


def broken(text: str, width: int, hang: int = 0) -> str:
    """Break lines of more than ``width`` cells of a terminal at blanks; what has none, as a path, stays whole.

    The pieces of a line begin with ``hang`` blanks, but for the first.
    """
    from rich.cells import cell_len

    lines = [""]
    for word in re.findall(r"\n| *[^ \n]+", text):
        if word == "\n":
            lines.append("")
        elif lines[-1].strip() and cell_len(lines[-1] + word) > width:
            lines.append(" " * hang + word.lstrip())
        else:
            lines[-1] += word
    return "\n".join(lines)


def say(text: object = "", *, file: TextIO | None = None) -> None:
    """Print text without control characters; every verb prints by this function or by a `console`.

    Lines are not wrapped, since errors name commands and paths to be copied.
    """
    print(clean(str(text)), file=file or sys.stdout, flush=file is sys.stderr)


def beside(output: Path) -> TextIO:
    """Return where to say that a file was written: not on standard output if that may be the place itself."""
    return sys.stderr if is_stream(output) else sys.stdout


def finish(document: Any, show: Callable[[], None], *, as_json: bool, interrupted: bool = False) -> None:
    """Print a document as JSON, or show it to people; after Ctrl-C, leave with exit code 130."""
    if as_json:
        say(json.dumps(json.loads(mended(json.dumps(document, ensure_ascii=False)))))
    else:
        show()
    if interrupted:
        raise typer.Exit(130)


def console(stream: TextIO | None = None) -> Console:
    """Return a console, by default on standard output; it styles only on a terminal without NO_COLOR."""
    stream = stream or sys.stdout
    plain = bool(os.environ.get("NO_COLOR")) or not stream.isatty()
    return _clean_console()(
        file=stream, color_system=None if plain else "auto",
        width=None if stream.isatty() else shutil.get_terminal_size((_PIPE_WIDTH, 0)).columns,
        highlight=False, markup=False, emoji=False, soft_wrap=True,
    )  # fmt: skip


@cache
def _clean_console() -> type[Console]:
    """Return a console that removes control characters from tables and texts, but not its own codes for colours.

    Strings are prose, broken at blanks into lines of 80 characters, or the terminal's width. A `Text` stays whole:
    what a model wrote, commands, paths.
    """
    from rich.console import Console
    from rich.segment import Segment

    class CleanConsole(Console):
        def render(self, *given: Any, **options: Any) -> Iterable[Segment]:
            for text, style, control in super().render(*given, **options):
                yield Segment(text if control else clean(text), style, control)

        def print(self, *objects: Any, **how: Any) -> None:
            width = min(_WIDTH, self.width)
            super().print(*(broken(one, width) if isinstance(one, str) else one for one in objects), **how)

    return CleanConsole


def is_drawn_on(stream: TextIO) -> bool:
    """Whether lines can be drawn anew: on a terminal, where rich gets the thread that it needs for it."""
    return stream.isatty() and threads_given(2) > 1


class Status:
    """A line on a terminal's standard error that says what is going on, until the block ends."""

    def __init__(self, what: Any = "") -> None:
        self._shown = console(sys.stderr).status(what) if is_drawn_on(sys.stderr) else None

    def say(self, what: Any) -> None:
        """Show this from now on: text, or what rich draws anew for every frame."""
        if self._shown is not None:
            self._shown.update(what)
            self._shown.start()

    def __enter__(self) -> Self:
        if self._shown is not None:
            self._shown.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown is not None:
            self._shown.stop()


@contextmanager
def busy(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show on a terminal that something takes a while; yields (done, all) -> None, which shows the share."""
    with Status(f"{what} …") as shown:
        yield lambda done, total: shown.say(f"{what} … {percent(done / max(1, total))}")


@contextmanager
def progress(title: str = "") -> Iterator[Callable[[int, int, str], None]]:
    """Show a bar on a terminal; yields (done, all, what comes now) -> None."""
    if not is_drawn_on(sys.stderr):
        yield lambda _done, _total, _what: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    ends = TextColumn(title), TextColumn("{task.description}")
    columns = (ends[0], BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), ends[1])
    with Progress(*columns, console=console(sys.stderr), transient=True) as bar:
        line = bar.add_task("")
        yield lambda done, total, what: bar.update(line, completed=done, total=total, description=what)


def show_table(
    to: Console, columns: Mapping[str, Callable[[R], str | Text]], rows: Sequence[R], left: Sequence[str],
    marks: Mapping[str, str] | None = None,
) -> str:  # fmt: skip
    """Print the first six columns that are not empty, in 80 characters or what the terminal has.

    Those named in ``left`` hold text: the last of them is folded where a line would be too long. Others hold
    numbers, right-aligned; returns what ``marks`` say of marks that occur among these, each after a semicolon.
    """
    from rich.cells import cell_len

    cells = {name: [cell(row) for row in rows] for name, cell in columns.items()}
    shown = dict([(name, cell) for name, cell in cells.items() if any(cell)][:_COLUMNS])
    while (excess := _width(to, shown, left) - min(_WIDTH, to.width)) > 0:
        texts, numbers = ([name for name in shown if (name in left) is text] for text in (True, False))
        cells_of = [str(cell) for cell in shown[texts[-1]]] if texts else []
        width = max(map(cell_len, cells_of), default=0) - excess
        parts = (cell_len(part) for cell in cells_of for part in _parts(cell))
        if len(numbers) > 1 and width < max(parts, default=1):
            del shown[numbers[-1]]
            continue
        shown |= {name: [_folded(cell, width) for cell in cells_of] for name in texts[-1:]}
        break
    to.print(_table(shown, left), soft_wrap=False)
    every = "".join(str(cell) for name in shown.keys() - set(left) for cell in shown[name])
    return "".join(f"; {said}" for mark, said in (marks or {}).items() if mark in every)


def _width(to: Console, columns: Mapping[str, Sequence[str | Text]], left: Sequence[str]) -> int:
    return to.measure(_table(columns, left), options=to.options.update(max_width=10_000)).maximum


def _table(columns: Mapping[str, Sequence[str | Text]], left: Sequence[str]) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    heads = {name: name if name in left else "\n".join(name.rsplit(" ", 1)) for name in columns}
    tall = any("\n" in head for head in heads.values())
    for name, head in heads.items():
        header = f"\n{head}" if tall and "\n" not in head else head
        table.add_column(header, justify="left" if name in left else "right", no_wrap=True)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


def _parts(text: str) -> list[str]:
    return re.findall(r"[^+:/ ]*[+:/ ]*", text)


def _folded(text: str, width: int) -> str:
    """Break text after its signs + : / and blanks, so that lines have at most ``width`` if that can be."""
    from rich.cells import cell_len

    lines = [""]
    for part in _parts(text):
        if lines[-1] and cell_len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(line.rstrip() for line in lines)


def show_facts(facts: Mapping[str, Any]) -> None:
    """Print a name and its value per line; long values are wrapped only on a terminal."""
    from rich.text import Text

    to, width = console(), max(map(len, facts))
    for name, value in facts.items():
        said = f"{name:{width}}  {f'{value:,}' if isinstance(value, int) else value}"
        to.print(Text(broken(said, min(_WIDTH, to.width), width + 2) if to.is_terminal else said))


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


def styles(drafters: Sequence[str]) -> dict[str, Style]:
    """Return the style of each source; the model's own tokens keep the terminal's colour."""
    from rich.style import Style

    coloured = {name: Style.parse(PALETTE[i % len(PALETTE)]) for i, name in enumerate(dict.fromkeys(drafters))}
    return {"model": Style()} | coloured
