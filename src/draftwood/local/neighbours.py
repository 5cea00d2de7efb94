"""Models that other programs keep on this disk: the hub's cache, LM Studio and Ollama."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from draftwood.errors import ModelError, ModelNotFoundError
from draftwood.local.hub_names import HubName, Variant, best, meant, variants
from draftwood.local.machine import free_memory

OLLAMA = "ollama:"
"""How names of Ollama's models begin here."""

_SERVICE = Path("/usr/share/ollama/.ollama/models")  # of Ollama as a service on Linux
_DEFAULTS = ("registry.ollama.ai", "library")
_SEGMENT = re.compile(r"\w[\w.-]*", re.ASCII)
_MODEL, _ADAPTER = "application/vnd.ollama.image.model", "application/vnd.ollama.image.adapter"
WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
"""Weights for transformers in a folder."""


class OnDisk(NamedTuple):
    """A model on this disk: the name by which it is taken here, who keeps it, and its bytes."""

    name: str
    place: str
    size: int


def hub_cache() -> Path:
    """Return the folder of the hub's own package, which need not exist."""
    if cache := os.environ.get("HF_HUB_CACHE"):
        return _expanded(cache)
    home = os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    return _expanded(home) / "hub"


def hub_folder(repository: str) -> Path:
    """Return where the hub's package keeps a repository, which need not exist."""
    return hub_cache() / f"models--{repository.replace('/', '--')}"


def _repository(folder: Path) -> str:
    """Return whose folder this is in the hub's cache, as `hub_folder` names it."""
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def name_of(place: Path) -> str:
    """Return a file's or folder's name; of those that the hub's cache names by checksums, the repository's."""
    place = place if place.name.strip(".") else place.resolve()
    kept = place.parent.parent
    return _repository(kept) if kept.name.startswith("models--") else place.name


def snapshots(repository: str) -> Iterator[Path]:
    """Yield the folders of the hub's cache that hold files of a repository, the newest first."""
    kept, now = hub_folder(repository), ""
    with suppress(OSError, ValueError):
        now = (kept / "refs" / "main").read_text(encoding="ascii").strip()
    with suppress(OSError):
        folders = [folder for folder in (kept / "snapshots").iterdir() if folder.is_dir()]
        yield from sorted(folders, key=lambda one: (one.name != now, -one.stat().st_mtime))


def gguf_copy(name: HubName) -> Path | None:
    """Return the GGUF file on this disk, with all its parts beside it, that a name of the hub means."""
    studio = (root / name.repository for root in _lm_studio())
    for folder in (*studio, *snapshots(name.repository)):
        if found := meant(name, _variants(folder)):
            chosen = best(found, free_memory()) or found[0]
            return folder / chosen.files[0]
    return None


def any_copy(name: HubName) -> Path | None:
    """Return what of a name of the hub is on this disk: the folder of transformers, or the GGUF file."""
    is_open = not (name.file or name.quantisation)
    return (weights_copy(name.repository) if is_open else None) or gguf_copy(name)


def weights_copy(repository: str) -> Path | None:
    """Return the folder of the hub's cache with weights of a repository for transformers."""
    return next(filter(_has_weights, snapshots(repository)), None)


def _has_weights(folder: Path) -> bool:
    return any(path.is_file() for pattern in WEIGHTS for path in folder.glob(pattern))


def _variants(folder: Path) -> list[Variant]:
    found = (path for path in folder.rglob("*.gguf") if path.is_file())
    return variants({path.relative_to(folder).as_posix(): path.stat().st_size for path in found})


def ollama_file(name: str) -> Path:
    """Return the GGUF file of a model that Ollama has downloaded, named as there: ``"qwen2.5-coder:1.5b"``.

    Raises `ModelNotFoundError` where Ollama keeps none of that name, `ModelError` where its record of it is
    broken, or has no GGUF file or an adapter, which is not applied here.
    """
    path, _, tag = name.partition(":")
    parts = [*path.split("/"), tag or "latest"]
    parts = [*_DEFAULTS[: max(0, 4 - len(parts))], *parts]
    if all(map(_SEGMENT.fullmatch, parts)):
        for root in _ollama():
            manifest = root.joinpath("manifests", *parts)
            if _is_file(manifest):
                return _blob(root, manifest, name)
    listed = ", ".join(sorted(one.name for one in _kept_by_ollama())[:8])
    here = f"it has {listed}" if listed else "it has none on this disk (OLLAMA_MODELS names another folder)"
    raise ModelNotFoundError(f"Ollama has no {name} here: {here}, and ollama pull {name} brings it")


def _blob(root: Path, manifest: Path, name: str) -> Path:
    layers = dict(_layers(manifest))
    digest = str(layers.get(_MODEL, ""))
    if not re.fullmatch("sha256:[0-9a-f]{64}", digest):
        raise ModelError(f"Ollama's {name} has no GGUF file: name another model")
    if _ADAPTER in layers:
        raise ModelError(f"Ollama's {name} is a model with an adapter, which is not applied here: name another")
    file = root / "blobs" / digest.replace(":", "-")
    if not _is_file(file):
        raise ModelNotFoundError(f"Ollama's file of {name} is gone: run ollama pull {name}")
    return file


def _layers(manifest: Path) -> Iterator[tuple[str, Any]]:
    """Yield kind and digest of each part of one of Ollama's models."""
    try:
        for layer in json.loads(manifest.read_bytes())["layers"]:
            yield layer["mediaType"], layer["digest"]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelError(f"Ollama's record {manifest} cannot be read: pull the model again") from error


def _is_file(path: Path) -> bool:
    """Return whether a file is there, which another user's folder may hide: Ollama's service has one."""
    try:
        return path.is_file()
    except OSError:
        return False


def on_disk() -> list[OnDisk]:
    """Return the models of these programs on this disk that may be read, by name."""
    found = dict[str, OnDisk]()
    for folder, repository, place in _folders():
        with suppress(OSError):
            for one in _kept_in(folder, repository, place):
                found.setdefault(one.name, one)
    return [*sorted(found.values()), *sorted(_kept_by_ollama())]


def _folders() -> Iterator[tuple[Path, str, str]]:
    """Yield folders with models, the names of their repositories, and whose they are."""
    for root in _lm_studio():
        with suppress(OSError):
            for folder in root.glob("*/*"):
                yield folder, folder.relative_to(root).as_posix(), "LM Studio"
    with suppress(OSError):
        for folder in hub_cache().glob("models--*--*"):
            for snapshot in snapshots(repository := _repository(folder)):
                yield snapshot, repository, "hub"


def _kept_in(folder: Path, repository: str, place: str) -> Iterator[OnDisk]:
    models = _variants(folder)
    labels = [one.label for one in models]
    for one in models:
        is_alone = one.label and labels.count(one.label) == 1
        name = HubName(repository, one.label) if is_alone else HubName(repository, "", one.files[0])
        yield OnDisk(str(name), place, one.size)
    if not models and _has_weights(folder):
        yield OnDisk(repository, place, sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()))


def _kept_by_ollama() -> Iterator[OnDisk]:
    for root in _ollama():
        with suppress(OSError):
            for manifest in (root / "manifests").glob("*/*/*/*"):
                *path, tag = manifest.relative_to(root / "manifests").parts
                name = "/".join(path).removeprefix(f"{_DEFAULTS[0]}/").removeprefix(f"{_DEFAULTS[1]}/") + f":{tag}"
                with suppress(ModelError):
                    yield OnDisk(OLLAMA + name, "Ollama", _blob(root, manifest, name).stat().st_size)


def _lm_studio() -> list[Path]:
    return [_expanded("~/.lmstudio/models"), _expanded("~/.cache/lm-studio/models")]


def _ollama() -> list[Path]:
    chosen = os.environ.get("OLLAMA_MODELS")
    return [_expanded(chosen)] if chosen else [_expanded("~/.ollama/models"), _SERVICE]


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(os.path.expandvars(path)))  # noqa: PTH111 - pathlib's fails without a home
