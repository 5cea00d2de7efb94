"""``draftwood models``: which models there are."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from draftwood.cli import options, screen
from draftwood.models import Installed, cache_folder, installed


def models(as_json: options.Json = False) -> None:
    """List the models that can be fetched, and whether they are here."""
    found = installed()
    if as_json:
        screen.say(json.dumps([as_dict(model) for model in found], indent=2))
        return
    from rich.table import Table

    table = Table("model", "state", "size", "licence", "what it is", box=None, pad_edge=False)
    for model in found:
        here = model.state != "missing"
        size = f"{model.size / 1e6:.0f} MB" if here else f"{model.download_size / 1e6:.0f} MB to download"
        table.add_row(model.name, model.state, size, model.licence, model.description)
    to = screen.console()
    to.print(table, soft_wrap=False)
    to.print(f"folder: {cache_folder() / 'models'}")
    for model in found:
        if model.state == "missing":
            to.print(f"draftwood fetch {model.name} brings {model.name}")
        elif model.state == "broken":
            to.print(f"draftwood fetch {model.name} --force mends {model.name}")
    to.print("any GGUF file, any folder of transformers, or a hub name where there is a network, is a model, too")


def as_dict(model: Installed) -> dict[str, Any]:
    """Return a JSON-ready dictionary of one model."""
    found = asdict(model)
    return found | {"folder": str(found.pop("path"))}
