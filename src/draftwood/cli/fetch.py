"""``draftwood fetch``: bring a model into the cache folder."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from draftwood.cli import options, screen

Name = Annotated[str, typer.Argument(help="A name of `draftwood models`.")]
Force = Annotated[bool, typer.Option("--force", help="Fetch again even though it is there and whole.")]

Report = Callable[[str, int, int], None]


def fetch(name: Name = options.MODEL_DEFAULT, force: Force = False) -> None:
    """Download a model and make it ready; prints its folder."""
    from draftwood.models import CATALOGUE
    from draftwood.models import fetch as bring

    if name in CATALOGUE and CATALOGUE[name].terms:
        print(CATALOGUE[name].terms, file=sys.stderr)
    stages: list[str] = []
    with _progress(name) as show:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages.append(stage)
            show(stage, done, total)

        folder = bring(name, progress=report, force=force)
    if "downloading" not in stages:
        print(f"{name} was here already", file=sys.stderr)
    print(folder)


@contextmanager
def _progress(name: str) -> Iterator[Report]:
    """A bar per stage on a terminal, a line per stage elsewhere; both on standard error."""
    if not sys.stderr.isatty():
        yield _Lines(name).report
        return
    from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen.console(sys.stderr)) as progress:
        tasks: dict[str, TaskID] = {}

        def report(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = progress.add_task(_sentence(stage, name, total), total=total or None)
            progress.update(tasks[stage], completed=done)

        yield report


class _Lines:
    """One line per stage, for logs."""

    def __init__(self, name: str) -> None:
        self._name, self._last = name, ""

    def report(self, stage: str, _done: int, total: int) -> None:
        if stage != self._last:
            print(_sentence(stage, self._name, total), file=sys.stderr, flush=True)
            self._last = stage


def _sentence(stage: str, name: str, total: int) -> str:
    if stage == "waiting":
        return f"waiting for another process that fetches {name}"
    size = f" ({total / 1e6:.0f} MB)" if stage == "downloading" else ""
    return f"{stage} {name}{size}"
