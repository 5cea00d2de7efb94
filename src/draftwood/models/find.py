"""Find models on this machine, and list which are installed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from draftwood.errors import ModelError, ModelNotFoundError, UnknownNameError, UsageError
from draftwood.models.catalogue import CATALOGUE, CatalogueModel
from draftwood.models.manifest import fault

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")

State = Literal["installed", "missing", "broken"]


def cache_folder() -> Path:
    """Return draftwood's cache folder, which need not exist; ``DRAFTWOOD_CACHE`` in the environment moves it."""
    if chosen := os.environ.get("DRAFTWOOD_CACHE"):
        return _expand(chosen).absolute()
    import platformdirs

    return Path(platformdirs.user_cache_dir("draftwood", appauthor=False))


def model_folder(name: str) -> Path:
    """Return where the catalogue model ``name`` belongs, whether or not it is there."""
    return cache_folder() / "models" / name


def find(name: str | os.PathLike[str]) -> Path | str:
    """Return the folder of a model, or its hub name as it came if no such folder exists.

    Parameters
    ----------
    name
        A catalogue name (``"smollm2"``), a local folder, or a hub name (``"owner/name"``); a path: a folder.

    Raises
    ------
    ModelNotFoundError, ModelError
        The model was not fetched yet, or the folder does not exist; it is broken or holds no model.
    UnknownNameError
        A single word that is neither in the catalogue nor a folder.
    """
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"a model's name is text or a path, not {type(name).__name__}: give 'smollm2', say")
    if isinstance(name, str):
        if name in CATALOGUE:
            return _find_fetched(CATALOGUE[name])
        exists = _exists(Path(name))
        if _HUB_NAME.fullmatch(name) and not exists:
            return name
        if not name or not (exists or "/" in name or "\\" in name or name[0] in "~."):
            raise UnknownNameError("model", name, CATALOGUE)
    return _find_folder(_expand(name))


def gguf_file(name: str | os.PathLike[str]) -> Path:
    """Return the GGUF file with a model's weights; `UsageError` if there is none, or several; else as `find`."""
    place = find(name)
    files = sorted(place.glob("*.gguf")) if isinstance(place, Path) else []
    if len(files) == 1:
        return files[0]
    if files:
        raise UsageError(f"{place} holds {len(files)} GGUF files: leave the one that has the model's own weights")
    raise UsageError(
        f"no GGUF file with the weights of {name} is here: take a fetched model, or put one into its folder"
    )


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a file name, or in a folder that may not be read
        return False


def _expand(name: str | os.PathLike[str]) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # a ``~`` that stands for no home folder
        return Path(name)


def _find_fetched(model: CatalogueModel) -> Path:
    folder = model_folder(model.name)
    if not folder.exists():
        raise ModelNotFoundError(f"the model {model.name} is not here yet: run draftwood fetch {model.name}")
    if wrong := fault(folder, model):
        raise ModelError(f"the model {model.name} is broken ({wrong}): run draftwood fetch {model.name} --force")
    return folder


def _find_folder(folder: Path) -> Path:
    if not _exists(folder):
        raise ModelNotFoundError(
            f"there is no model folder {folder}: name an existing folder or one of {', '.join(CATALOGUE)}"
        )
    if not folder.is_dir():
        raise ModelError(f"{folder} is a file: name the transformers folder that holds the model")
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} is no model folder: config.json is missing (name one that transformers wrote)")
    return folder


@dataclass(frozen=True, slots=True)
class Installed:
    """A catalogue model and its state on this machine; sizes are in bytes."""

    name: str
    description: str
    licence: str
    state: State
    path: Path  # where it is or would be
    size: int  # on disk; 0 if missing
    download_size: int


def installed() -> list[Installed]:
    """Return every catalogue model with its state, in the catalogue's order."""
    return [_inspect(model) for model in CATALOGUE.values()]


def _inspect(model: CatalogueModel) -> Installed:
    folder = model_folder(model.name)
    state: State = "missing"
    if folder.exists():
        state = "broken" if fault(folder, model) else "installed"
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Installed(model.name, model.description, model.licence, state, folder, size, model.download_size)
