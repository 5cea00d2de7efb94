"""``draftwood fetch``: bring a model into the cache folder."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any

from typer import Argument, Option

from draftwood.cli import options, screen

Name = Annotated[str, Argument(help="A model of `draftwood info`.")]
Force = Annotated[bool, Option("--force", help="Fetch again even though it is there and whole.")]


def fetch(name: Name = options.MODEL_DEFAULT, force: Force = False) -> None:
    """Download a model and make it ready; prints its folder."""
    from draftwood.models.catalogue import CATALOGUE
    from draftwood.models.fetch import fetch as bring

    if name in CATALOGUE and CATALOGUE[name].terms:
        screen.say(CATALOGUE[name].terms, file=sys.stderr)
    stages: dict[str, Any] = {}  # each with its bar
    with _bars() as bars:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                said = _sentence(stage, name, total)
                stages[stage] = bars.add_task(said, total=total or None) if bars else None
                if not bars:
                    screen.say(said, file=sys.stderr)
            if bars:
                bars.update(stages[stage], completed=done)

        folder = bring(name, progress=report, force=force)
    if not stages.keys() & {"downloading", "converting"}:
        screen.say(f"{name} was here already", file=sys.stderr)
    if "downloading" in stages and "converting" not in stages:
        screen.say(
            "only the GGUF file is kept, for llama.cpp, since transformers is not installed", file=sys.stderr
        )
    screen.say(folder)


def _bars() -> AbstractContextManager[Any]:
    """Return a bar per stage on a terminal, None elsewhere, where a stage is a line; both on standard error."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    return Progress(*columns, console=screen.console(sys.stderr))


def _sentence(stage: str, name: str, total: int) -> str:
    if stage == "waiting":
        return f"waiting for another process that fetches {name}"
    size = f" ({total / 1e6:.0f} MB)" if stage == "downloading" else ""
    return f"{stage} {name}{size}"
