"""``draftwood fetch``: bring a model into the cache folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from draftwood.cli import options, screen
from draftwood.errors import UsageError
from draftwood.measure.wording import percent


def fetch(
    name: Annotated[
        str, Argument(help="A model of `draftwood info`, or a hub name: owner/name, owner/name:Q4_K_M.")
    ] = options.MODEL_DEFAULT,
    force: Annotated[
        bool, Option("--force", help="Fetch a model of `draftwood info` again, even if it is there already.")
    ] = False,
) -> None:
    """Download a model and prepare it; prints its folder or file."""
    from draftwood.local.catalogue import CATALOGUE
    from draftwood.local.memory_speed import measure_early
    from draftwood.local.neighbours import OLLAMA

    is_elsewhere = name not in CATALOGUE and ("/" in name or name.startswith(OLLAMA))
    screen.say(_pull(name, force) if is_elsewhere else _fetch(name, force))
    measure_early()


def _fetch(name: str, force: bool) -> Path:
    """Fetch a model of the catalogue; return its folder."""
    from draftwood.local.catalogue import CATALOGUE
    from draftwood.models.fetch import fetch as bring

    if name in CATALOGUE and CATALOGUE[name].terms:
        screen.say(CATALOGUE[name].terms, file=sys.stderr)
    stages: set[str] = set()
    with screen.Status() as status:

        def report(stage: str, done: int, total: int) -> None:
            if stage not in stages:
                stages.add(stage)
                size = f" ({total / 1e6:.0f} MB)" if stage == "downloading" else ""
                other = "for another process that fetches " * (stage == "waiting")
                screen.say(f"{stage} {other}{name}{size}", file=sys.stderr)
            status.say(f"{stage} {name} … {percent(done / total) if total else ''}")

        folder = bring(name, progress=report, force=force)
    if not stages & {"downloading", "converting"}:
        screen.say(f"{name} was here already", file=sys.stderr)
    if "downloading" in stages and "converting" not in stages:
        screen.say("only the GGUF file is kept, since transformers is not installed", file=sys.stderr)
    return folder


def _pull(name: str, force: bool) -> Path:
    """Download what a name of the hub means; return where it is."""
    from draftwood.local.find import find
    from draftwood.local.hub_names import HubName
    from draftwood.models.here import pull

    found, brought = find(name), False
    if force:
        raise UsageError("--force is for models of draftwood info: files of the hub are checked as they come")
    if isinstance(found, HubName):
        with screen.Status(f"asking for {name} …") as status:

            def report(done: int, total: int) -> None:
                nonlocal brought
                brought = True
                status.say(f"downloading {name} … {percent(done / max(1, total))}")

            found = pull(found, report)
    if not brought:
        screen.say(f"{name} was here already", file=sys.stderr)
    return found
