"""``draftwood fetch``: bring a model into the cache folder."""

from __future__ import annotations

import sys
from typing import Annotated

from typer import Argument, Option

from draftwood.cli import options, screen
from draftwood.measure.wording import percent


def fetch(
    name: Annotated[str, Argument(help="A model of `draftwood info`.")] = options.MODEL_DEFAULT,
    force: Annotated[bool, Option("--force", help="Fetch again, even if the model is there already.")] = False,
) -> None:
    """Download a model and prepare it; prints its folder."""
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
    screen.say(folder)
