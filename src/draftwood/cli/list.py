"""``draftwood list``: the models on this disk, by the names that ``--model`` takes."""

from __future__ import annotations

import json

from draftwood.cli import options, screen


def list(as_json: options.Json = False) -> None:
    """List the models on this disk: draftwood's, the hub's, LM Studio's and Ollama's."""
    from draftwood.local.find import installed
    from draftwood.local.neighbours import OnDisk, on_disk

    own = [OnDisk(one["name"], "draftwood", one["size"]) for one in installed() if one["state"] == "installed"]
    found = [*own, *on_disk()]
    if as_json:
        screen.say(json.dumps([one._asdict() for one in found], indent=2))
        return
    if not found:
        screen.say(
            "no models are here: draftwood fetch brings a small one, draftwood pull owner/name one of the hub"
        )
        return
    width = max(len(one.name) for one in found)
    for one in found:
        screen.say(f"{one.name:{width}}  {one.size / 1e6:>9,.0f} MB  {one.place}")
