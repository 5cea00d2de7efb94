"""Which engine runs a model: by its files, what is installed, and what the caller asks."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path

from draftwood.engines.llama_cpp import library
from draftwood.errors import ModelError, UnknownNameError, UsageError
from draftwood.local.catalogue import CATALOGUE
from draftwood.local.find import gguf_file, gguf_files, model_folder
from draftwood.local.neighbours import WEIGHTS
from draftwood.models.here import folder as folder_of
from draftwood.models.here import here
from draftwood.models.hub import Report
from draftwood.models.importing import importing_torch

TRANSFORMERS, LLAMA_CPP, CPU = "transformers", "llama.cpp", "cpu"
ENGINES = (CPU, TRANSFORMERS, LLAMA_CPP)
"""Names of the engines."""
PACKAGES = ("torch", "transformers")
"""What the engine transformers needs."""
FASTEST = "fastest"
"""Stands for the engine that is the fastest here for a model."""

_LOG = logging.getLogger("draftwood.engine")  # of its own: the command line shows what it says of the choice

_CARDS = ("nvidiactl", "nvhost-ctrl", "kfd", "dxg")  # Linux's drivers of NVIDIA, its boards, AMD, and Windows'
_SAFE = "*.safetensors"


def choose(
    name: str | os.PathLike[str], engine: str | None = None, *, floats: bool = False, device: str | None = None,
    report: Report | None = None,
) -> tuple[str, Path | str]:  # fmt: skip
    """Return the engine for a model and what it reads: a GGUF file, else a folder or hub name of transformers.

    ``engine`` None leaves the choice open: GGUF files, and the models of the catalogue, go to our own engine,
    other folders to transformers where they have weights for it and it is installed. `FASTEST` is the same, but
    folders and hub names that our own engine runs as they stand go to it, where no graphics card is to be used;
    ``device`` "cpu" says that none is. ``floats``: of a folder that has both our own engine is to read the
    safetensors, not the GGUF file. A GGUF file of the hub is downloaded, a folder of it for other engines than
    transformers, and for `FASTEST`. Raises as `here`, `UnknownNameError` for an unknown engine, and `UsageError`
    for one that cannot read the model.
    """
    if engine not in (None, FASTEST, *ENGINES):
        raise UnknownNameError("engine", str(engine), ENGINES)
    place = here(name)
    able = _able(place)
    without_card = engine == FASTEST and able[0] == TRANSFORMERS and (device == "cpu" or not has_card())
    if without_card and (folder := _ours(place, report)):
        place, able = folder, [CPU, TRANSFORMERS]
    if engine in (None, FASTEST):
        engine = next(filter(is_installed, able), able[0])
    if engine not in able:
        raise UsageError(_unable(place, engine))
    if engine == TRANSFORMERS:
        return engine, place
    if isinstance(place, str):
        return engine, folder_of(place, report)
    if engine == CPU and place.is_dir() and _has(place, _SAFE) and (floats or not gguf_files(place)):
        return engine, place
    return engine, gguf_file(place)


def implied_engine(
    name: str | os.PathLike[str], dtype: str | None, device: str | None, *, gpu_layers: int = -1,
    exact: bool | None = None, weights: str | None = None,
) -> str | None:  # fmt: skip
    """Return the engine that alone understands what was asked for; None where the choice stays open."""
    able = _able(here(name))
    if weights is not None:
        return CPU
    if TRANSFORMERS in able and (dtype is not None or device not in (None, "cpu")):
        return TRANSFORMERS
    on_card = isinstance(gpu_layers, int) and gpu_layers > 0
    return LLAMA_CPP if LLAMA_CPP in able and (exact is False or on_card) else None


def say_chosen(name: str | os.PathLike[str], engine: str) -> None:
    """Log in a line which engine an open choice fell on, where one may expect another: our own runs a folder of
    transformers, or transformers runs one with a GGUF file."""
    place = here(name)
    usual, *_ = able = _able(place)
    others = [one for one in able if one != engine and is_installed(one)]
    if usual in others or (engine == TRANSFORMERS and isinstance(place, Path) and gguf_files(place)):
        what = "draftwood's own engine" if engine == CPU else engine
        fast = ", the fastest here for it" * (engine == CPU and not has_card())
        _LOG.info("%s runs on %s%s: change it with --engine %s", Path(name).name, what, fast, " or ".join(others))


def is_installed(engine: str) -> bool:
    """Return whether the packages of an engine are here; they are not imported."""
    if engine == LLAMA_CPP:
        return library.is_installed()
    if engine == CPU:
        return True
    return not missing(*PACKAGES)


def missing(*packages: str) -> list[str]:
    """Return those of these packages that are not installed; none is imported."""
    return [package for package in packages if importlib.util.find_spec(package) is None]


def _able(place: Path | str) -> list[str]:
    """Return the engines that can read a model, at least one, the preferred one first."""
    if isinstance(place, str):
        return [TRANSFORMERS, CPU]
    if place.is_file():
        return [CPU, LLAMA_CPP]
    has_gguf = bool(gguf_files(place))
    has_weights = _has(place, *WEIGHTS)
    if has_gguf and place in map(model_folder, CATALOGUE):
        return [CPU, *[TRANSFORMERS] * has_weights, LLAMA_CPP]
    ours = [CPU] * (has_gguf or _has(place, _SAFE)) + [LLAMA_CPP] * has_gguf
    return [TRANSFORMERS] * (has_weights or not has_gguf) + ours


def _ours(place: Path | str, report: Report | None) -> Path | None:
    """Return the folder, downloaded, with weights for transformers alone that our own engine runs; else None."""
    from draftwood.engines.files.hub_model import read_json
    from draftwood.engines.files.hub_settings import settings_of

    try:
        folder = folder_of(place, report, weights=False) if isinstance(place, str) else place
        settings_of(read_json(folder / "config.json"))
        if gguf_files(folder) or (folder / "adapter_config.json").exists() or not _has(folder, "tokenizer.json"):
            return None
        folder = folder_of(place, report) if isinstance(place, str) else place
    except ModelError:  # of what the hub does not give, transformers will say more
        return None
    return folder if _has(folder, _SAFE) else None


def has_card() -> bool:
    """Return whether torch has a graphics card to compute on; it is imported only where there may be one."""
    if not (_may_have_card() and is_installed(TRANSFORMERS)):
        return False
    with importing_torch():
        import torch
    return torch.cuda.is_available() or torch.backends.mps.is_available()


def _may_have_card() -> bool:
    return sys.platform != "linux" or any(Path("/dev", card).exists() for card in _CARDS)


def _has(folder: Path, *patterns: str) -> bool:
    return any(path.is_file() for pattern in patterns for path in folder.glob(pattern))


def _unable(place: Path | str, engine: str) -> str:
    if engine != TRANSFORMERS:
        what = "GGUF files and weights of safetensors" if engine == CPU else "GGUF files"
        return f"the engine {engine} reads {what}, and {place} names none: name one, or take transformers"
    if isinstance(place, Path) and place.is_dir():
        return (
            f"{place} has no weights for transformers, only a GGUF file: take the engine cpu, or, if it was "
            "fetched, run draftwood fetch again, which adds them where transformers is installed"
        )
    return f"{place} is a GGUF file, which the engines cpu and llama.cpp read: take one, or name another model"


def first_line(error: Exception) -> str:
    """Return how an error begins, to be put into a sentence."""
    return str(error).strip().partition("\n")[0].rstrip(".: ") or type(error).__name__
