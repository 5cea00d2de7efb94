"""Find models on this machine, and list which are installed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from draftwood.errors import ModelError, ModelNotFoundError, UnknownNameError, UsageError
from draftwood.files.paths import opened, without_home
from draftwood.local.catalogue import CATALOGUE, fault
from draftwood.local.hub_names import HubName, hub_name, is_model
from draftwood.local.neighbours import OLLAMA, ollama_file

_MAGIC = b"GGUF"  # how a GGUF file begins


def cache_folder() -> Path:
    """Return draftwood's cache folder, which need not exist; ``DRAFTWOOD_CACHE`` in the environment moves it."""
    if chosen := os.environ.get("DRAFTWOOD_CACHE"):
        return Path(os.path.expanduser(chosen)).absolute()  # noqa: PTH111 - pathlib's fails without a home
    import platformdirs

    try:
        found = Path(platformdirs.user_cache_dir("draftwood", appauthor=False))
    except RuntimeError:  # no home
        return without_home()
    return found if found.is_absolute() else without_home()


def model_folder(name: str) -> Path:
    """Return where the catalogue model ``name`` belongs, whether or not it is there."""
    return cache_folder() / "models" / name


def find(name: str | os.PathLike[str]) -> Path | HubName:
    """Return the folder of a model or its GGUF file, or what a name means on the hub if nothing is called so here.

    ``name``: of the catalogue (``"smollm2"``), a folder, a GGUF file, a model of Ollama's (``"ollama:qwen3:4b"``),
    or a hub name (``"owner/name"``, ``"owner/name:Q4_K_M"``, ``"owner/name/file.gguf"``). Raises
    `ModelNotFoundError` for a model that was not fetched yet, and a folder or file that is not there; `ModelError`
    for one that is broken or holds no model; `UnknownNameError` for a single word that is neither in the catalogue
    nor a folder.
    """
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"a model's name is text or a path, not {type(name).__name__}: give 'smollm2', say")
    if isinstance(name, str):
        if name in CATALOGUE:
            if not (folder := model_folder(name)).exists():
                raise ModelNotFoundError(f"the model {name} is not here yet: run draftwood fetch {name}")
            if wrong := fault(folder, CATALOGUE[name]):
                raise ModelError(f"the model {name} is broken ({wrong}): run draftwood fetch {name} --force")
            return folder
        exists = _exists(Path(name))
        if not exists and name.startswith(OLLAMA):
            return ollama_file(name.removeprefix(OLLAMA))
        if not exists and (found := hub_name(name)):
            return found
        if not name or not (exists or name.endswith(".gguf") or "/" in name or "\\" in name or name[0] in "~."):
            raise UnknownNameError(
                "model", name, CATALOGUE, "; or name a folder, a GGUF file, a hub name or ollama:NAME"
            )
    return _find_place(Path(os.path.expanduser(name)))  # noqa: PTH111 - as above


def gguf_files(place: Path) -> list[Path]:
    """Return the GGUF files with models in a folder, of one in several parts the first; or the file itself."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.glob("*.gguf") if is_model(path.name))


def gguf_file(name: str | os.PathLike[str]) -> Path:
    """Return the GGUF file with a model's weights; `UsageError` if there is none, or several; else as `find`."""
    place = find(name)
    files = gguf_files(place) if isinstance(place, Path) else []
    if len(files) == 1:
        return files[0]
    if files:
        some = ", ".join(path.name for path in files[:3]) + (", ..." if len(files) > 3 else "")
        raise UsageError(f"{place} holds {len(files)} GGUF files ({some}): name one of them instead of the folder")
    raise UsageError(
        f"no GGUF file with the weights of {name} is here: take a fetched model, or put one into its folder"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a file name, or in a folder that may not be read
        return False


def _find_place(place: Path) -> Path:
    if not _exists(place):
        what = "GGUF file" if place.suffix == ".gguf" else "model folder"
        raise ModelNotFoundError(f"there is no {what} {place}: name an existing one, or {' or '.join(CATALOGUE)}")
    if not place.is_dir():
        if not place.is_file() or (place.suffix != ".gguf" and not begins_like_gguf(place)):
            raise ModelError(f"{place} is no GGUF file: name one, or the folder that holds a transformers model")
    elif not (place / "config.json").is_file() and not gguf_files(place):
        raise ModelError(
            f"{place} is no model folder: config.json is missing (name one that transformers wrote, or a "
            "GGUF file)"
        )
    return place


def begins_like_gguf(path: Path) -> bool:
    """Return whether a file is GGUF whatever its name, as Ollama keeps its models."""
    try:
        with opened(path) as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def installed() -> list[dict[str, Any]]:
    """Return of every catalogue model, in its order: ``name``, ``description``, ``licence``, ``folder`` (where it
    is or would be), ``state`` (installed, missing or broken), and in bytes ``size`` on disk and ``download_size``.
    """
    found = []
    for model in CATALOGUE.values():
        folder = model_folder(model.name)
        state = "missing" if not folder.exists() else "broken" if fault(folder, model) else "installed"
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        said = {"name": model.name, "description": model.description, "licence": model.licence, "state": state}
        found.append({"folder": str(folder), **said, "size": size, "download_size": model.download_size})
    return found
