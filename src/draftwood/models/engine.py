"""Which engine runs a model: decided by its files, by what is installed, and by who asks."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from draftwood.engines.llama_cpp import library
from draftwood.errors import UnknownNameError, UsageError
from draftwood.models.find import find, gguf_file, gguf_files, hub_file, is_fetched
from draftwood.models.hub import downloaded

TRANSFORMERS, LLAMA_CPP, CPU = "transformers", "llama.cpp", "cpu"
ENGINES = (CPU, TRANSFORMERS, LLAMA_CPP)
"""Names of the engines."""

_SAFE, _WEIGHTS = "*.safetensors", ("*.safetensors", "pytorch_model*.bin")


def choose(
    name: str | os.PathLike[str], engine: str | None = None, *, floats: bool = False
) -> tuple[str, Path | str]:
    """Return the engine for a model and what it reads: a GGUF file, else a folder or hub name of transformers.

    ``engine`` None leaves the choice open: GGUF files, and the models of the catalogue, go to our own engine,
    other folders to transformers where they have weights for it and it is installed. ``floats``: of a folder that
    has both our own engine is to read the weights for transformers, not the GGUF file. Only a hub name for another
    engine than transformers touches the network here. Raises as `find`, `UnknownNameError` for an unknown engine,
    and `UsageError` for one that cannot read the model.
    """
    if engine is not None and engine not in ENGINES:
        raise UnknownNameError("engine", engine, ENGINES)
    place = find(name)
    able = _able(place)
    if engine is None:
        engine = next(filter(is_installed, able), able[0])
    if engine not in able:
        raise UsageError(_unable(place, engine))
    if engine == TRANSFORMERS:
        return engine, place
    if isinstance(place, str):
        return engine, downloaded(place)
    if engine == CPU and place.is_dir() and _has(place, _SAFE) and (floats or not gguf_files(place)):
        return engine, place
    return engine, gguf_file(place)


def implied_engine(
    name: str | os.PathLike[str],
    dtype: str | None,
    device: str | None,
    *,
    gpu_layers: int = -1,
    exact: bool | None = None,
    weights: str | None = None,
) -> str | None:
    """Return the engine that alone understands what was asked for; None where the choice stays open."""
    able = _able(find(name))
    if weights is not None:
        return CPU
    if TRANSFORMERS in able and (dtype is not None or device not in (None, "cpu")):
        return TRANSFORMERS
    return (
        LLAMA_CPP
        if LLAMA_CPP in able and (exact is False or (isinstance(gpu_layers, int) and gpu_layers > 0))
        else None
    )


def is_installed(engine: str) -> bool:
    """Return whether the packages of an engine are here; they are not imported."""
    if engine == LLAMA_CPP:
        return library.is_installed()
    if engine == CPU:
        return True
    return all(importlib.util.find_spec(package) is not None for package in ("torch", "transformers"))


def _able(place: Path | str) -> list[str]:
    """Return the engines that can read a model, at least one, the preferred one first."""
    if isinstance(place, str):
        return [CPU, LLAMA_CPP] if hub_file(place) else [TRANSFORMERS, CPU]
    if place.is_file():
        return [CPU, LLAMA_CPP]
    has_gguf = bool(gguf_files(place))
    has_weights = _has(place, *_WEIGHTS)
    if has_gguf and is_fetched(place):
        return [CPU, *[TRANSFORMERS] * has_weights, LLAMA_CPP]
    ours = [CPU] * (has_gguf or _has(place, _SAFE)) + [LLAMA_CPP] * has_gguf
    return [TRANSFORMERS] * (has_weights or not has_gguf) + ours


def _has(folder: Path, *patterns: str) -> bool:
    return any(path.is_file() for pattern in patterns for path in folder.glob(pattern))


def _unable(place: Path | str, engine: str) -> str:
    if engine != TRANSFORMERS:
        where = f"write {place}/FILE.gguf" if isinstance(place, str) else "name one"
        what = "GGUF files and weights of safetensors" if engine == CPU else "GGUF files"
        return f"the engine {engine} reads {what}, and {place} names none: {where}, or take transformers"
    if isinstance(place, Path) and place.is_dir():
        return (
            f"{place} has no weights for transformers, only a GGUF file: take the engine cpu, or, if it was "
            "fetched, run draftwood fetch again, which adds them where transformers is installed"
        )
    return f"{place} is a GGUF file, which the engines cpu and llama.cpp read: take one, or name another model"
