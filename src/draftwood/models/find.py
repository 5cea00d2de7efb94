"""Find models on this machine, those that Ollama keeps among them, and list which are installed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from draftwood.errors import (
    ModelError,
    ModelNotFoundError,
    UnknownNameError,
    UnsupportedModelError,
    UsageError,
)
from draftwood.models.catalogue import CATALOGUE, CatalogueModel, fault

OLLAMA = "ollama:"
"""How names of models that Ollama keeps begin."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HUB_FILE = re.compile(rf"({_HUB_NAME.pattern})/(\w[\w./-]*\.gguf)")
_MAGIC = b"GGUF"  # how a GGUF file begins
_NO_MODEL = re.compile(r"^mmproj|-(?!00001)\d{5}-of-\d{5}\.gguf$")  # for pictures; a further part of a model

_OLLAMA_NAME = re.compile(r"\w[\w./:@-]*")
_LINE = r"^{}\s+(.+?)\s*$"
_FROM, _ADAPTER = (re.compile(_LINE.format(word), re.MULTILINE | re.IGNORECASE) for word in ("FROM", "ADAPTER"))
_QUOTED = re.compile(r'""".*?"""', re.DOTALL)  # templates and licences, whose lines are no instructions
_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")  # what its progress display writes to a pipe, too
_SECONDS = 30

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
    """Return the folder of a model or its GGUF file, or its hub name as it came if nothing of that name exists.

    Parameters
    ----------
    name
        A catalogue name (``"smollm2"``), a folder, a GGUF file, or a hub name (``"owner/name"``, or of a GGUF
        file ``"owner/name/file.gguf"``), or a model that Ollama has (``"ollama:llama3.2:1b"``); a path: a folder
        or a GGUF file.

    Raises
    ------
    ModelNotFoundError, ModelError
        The model was not fetched yet, or there is no such folder or file; it is broken or holds no model.
    UnknownNameError
        A single word that is neither in the catalogue nor a folder.
    """
    if not isinstance(name, str | os.PathLike):
        raise UsageError(f"a model's name is text or a path, not {type(name).__name__}: give 'smollm2', say")
    if isinstance(name, str):
        if name in CATALOGUE:
            return _find_fetched(CATALOGUE[name])
        if name.startswith(OLLAMA):
            return _find_place(ollama_file(name))
        exists = _exists(Path(name))
        is_gguf = name.endswith(".gguf")
        if not exists and (hub_file(name) or (_HUB_NAME.fullmatch(name) and not is_gguf)):
            return name
        if not name or not (exists or is_gguf or "/" in name or "\\" in name or name[0] in "~."):
            raise UnknownNameError("model", name, CATALOGUE)
    return _find_place(_expand(name))


def hub_file(name: str) -> tuple[str, str] | None:
    """Return the hub's name and the file of ``owner/name/file.gguf``; None for what is written otherwise."""
    found = _HUB_FILE.fullmatch(name)
    return (found[1], found[2]) if found else None


def gguf_files(place: Path) -> list[Path]:
    """Return the GGUF files with models in a folder, of one in several parts the first; or the file itself."""
    if place.is_file():
        return [place]
    return sorted(path for path in place.glob("*.gguf") if not _NO_MODEL.search(path.name))


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


def _expand(name: str | os.PathLike[str]) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # a ``~`` that stands for no home folder
        return Path(name)


def is_fetched(place: Path) -> bool:
    """Return whether a folder is that of a model of the catalogue."""
    return any(place == model_folder(name) for name in CATALOGUE)


def _find_fetched(model: CatalogueModel) -> Path:
    folder = model_folder(model.name)
    if not folder.exists():
        raise ModelNotFoundError(f"the model {model.name} is not here yet: run draftwood fetch {model.name}")
    if wrong := fault(folder, model):
        raise ModelError(f"the model {model.name} is broken ({wrong}): run draftwood fetch {model.name} --force")
    return folder


def _find_place(place: Path) -> Path:
    if not _exists(place):
        what = "GGUF file" if place.suffix == ".gguf" else "model folder"
        raise ModelNotFoundError(
            f"there is no {what} {place}: name an existing one, or one of {', '.join(CATALOGUE)}"
        )
    if not place.is_dir():
        if place.suffix != ".gguf" and not begins_like_gguf(place):
            raise ModelError(f"{place} is no GGUF file: name one, or the folder that holds a transformers model")
    elif not (place / "config.json").is_file() and not gguf_files(place):
        raise ModelError(
            f"{place} is no model folder: config.json is missing (name one that transformers wrote, or a "
            "GGUF file)"
        )
    return place


def begins_like_gguf(path: Path) -> bool:
    """Return whether a file is GGUF whatever its name, as Ollama keeps them."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return False


def ollama_file(name: str) -> Path:
    """Return the GGUF file of a model that Ollama has, named as ``ollama:llama3.2:1b``.

    ``ollama show --modelfile`` names it in a line ``FROM /path``; Ollama must be running. Raises `UsageError` for
    what cannot be a name, `ModelNotFoundError` where Ollama is missing or names no file of this machine,
    `UnsupportedModelError` for a model of more than one file.
    """
    model = name.removeprefix(OLLAMA)
    if not _OLLAMA_NAME.fullmatch(model):
        raise UsageError(f"{name!r:.80} names no model of Ollama: write it as {OLLAMA}llama3.2:1b")
    modelfile = _QUOTED.sub("", _modelfile(model))
    files, adapters = _FROM.findall(modelfile), _ADAPTER.findall(modelfile)
    if adapters or len(files) > 1:
        more = "an ADAPTER" if adapters else f"{len(files)} files (FROM)"
        raise UnsupportedModelError(
            f"Ollama's {model} has {more}, and draftwood reads models of one file: merge them, and name that"
        )
    file = Path(files[0].strip('"')) if files else None
    if file is None or not file.is_absolute():
        raise ModelNotFoundError(
            f"Ollama has {model} in no GGUF file of this machine: name a model that it has downloaded"
        )
    if not file.is_file():
        raise ModelNotFoundError(
            f"Ollama says that {model} is {file}, which cannot be seen from here: name a file that can, or run "
            "Ollama on this machine"
        )
    return file


def _modelfile(model: str) -> str:
    import subprocess

    command = ["ollama", "show", "--modelfile", model]
    try:
        ran = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS)
    except FileNotFoundError as error:
        raise ModelNotFoundError(
            f"{OLLAMA}{model} is looked up with the command ollama, which is not here: install it, or name the "
            "GGUF file"
        ) from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ModelNotFoundError(
            f"Ollama gave no answer about {model} ({error}): see that it runs, or name the GGUF file"
        ) from error
    if ran.returncode != 0:
        lines = [line.strip() for line in _ESCAPE.sub("", ran.stderr).splitlines() if line.strip()]
        why = lines[-1].removeprefix("Error: ").rstrip(".") if lines else f"status {ran.returncode}"
        raise ModelNotFoundError(f"Ollama does not give {model} ({why}): ollama list shows what it has")
    return ran.stdout


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
