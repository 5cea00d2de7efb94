"""Where the model of a name lies: on this disk, or on the hub, of which what suits this machine is downloaded."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from draftwood.errors import FetchError, ModelError, ModelNotFoundError
from draftwood.local.find import find
from draftwood.local.hub_names import HubFolder, HubName, Variant, best, meant
from draftwood.local.machine import free_memory
from draftwood.local.neighbours import WEIGHTS, any_copy, snapshots, weights_copy
from draftwood.models.hub import Report, Repository, bring, look

_LOG = logging.getLogger("draftwood.engine")  # which the command line shows
_SETTINGS = ("*.json", "*.jinja", "*.model", "*.txt", "*.tiktoken", "LICENSE*")
"""What is fetched of a folder of transformers besides its weights."""


def here(name: str | os.PathLike[str], report: Report | None = None) -> Path | HubFolder:
    """Return the folder of a model or its GGUF file, downloaded if it is a GGUF file of the hub that is not here;
    or the name of a repository with a folder of transformers, of which nothing is downloaded.

    What is on this disk is taken without asking the hub. Of several GGUF files the one that suits this machine is
    taken, which the log names with the others. Raises as `find`, `ModelNotFoundError` where the hub does not have
    or give it, and as `bring`.
    """
    if isinstance(name, HubFolder):
        return name
    wanted = find(name)
    if not isinstance(wanted, HubName):
        return wanted
    if copy := any_copy(wanted):
        return HubFolder(wanted.repository) if copy.is_dir() else copy
    repository = look(wanted.repository)
    if is_folder(repository) and not (wanted.file or wanted.quantisation):
        return HubFolder(repository.name)
    chosen = choice(repository, wanted)
    return bring(repository, chosen.files, report) / chosen.files[0]


def choice(repository: Repository, wanted: HubName) -> Variant:
    """Return the GGUF file that a name means, in its parts; where the name leaves it open, the best that fits into
    the memory that is free, which the log names. `ModelNotFoundError` or `ModelError` where there is none."""
    there, name = repository.variants, repository.name
    found, listed = meant(wanted, there), ", ".join(one.said for one in there)
    if not there:
        raise ModelNotFoundError(f"{name} has no GGUF file with a model, and no weights: name another repository")
    if not found:
        said = f"{name} has no {wanted.file or wanted.quantisation}; it has {listed}"
        raise ModelNotFoundError(f"{said}: write {name}:LABEL or {name}/FILE.gguf")
    if wanted.quantisation or wanted.file:
        return found[0]
    free = free_memory()
    if (chosen := best(found, free)) is None:
        raise ModelError(
            f"nothing of {name} fits into the {(free or 0) / 1e9:.1f} GB of memory that are free; it has {listed}"
            f": name another model, end other programs, or write {name}:LABEL to get it anyway"
        )
    if others := ", ".join(one.said for one in there if one is not chosen):
        _LOG.info("%s: %s is taken, which suits this memory; there are also %s", name, chosen.said, others)
    return chosen


def folder(name: str, report: Report | None = None, *, weights: bool = True) -> Path:
    """Return the local copy of a repository's folder, downloading what is not there, or is newer on the hub.

    Where that fails, an older copy is taken, and the log says so; without one it raises `ModelNotFoundError` where
    neither the hub nor this disk has it, and as `bring`.
    """
    try:
        repository = look(name)
        return bring(repository, of_transformers(repository, weights=weights), report)
    except (ModelNotFoundError, FetchError) as error:
        kept = weights_copy(name) if weights else next(snapshots(name), None)
        if kept is None:
            raise
        _LOG.info("%s: the copy on this disk is taken: %s", name, error)
        return kept


def pull(name: HubName, report: Report | None = None) -> Path:
    """Download what a name of the hub means as it is there now; return its GGUF file, or its folder."""
    repository = look(name.repository)
    if is_folder(repository) and not (name.file or name.quantisation):
        return bring(repository, of_transformers(repository), report)
    chosen = choice(repository, name)
    return bring(repository, chosen.files, report) / chosen.files[0]


def is_folder(repository: Repository) -> bool:
    """Return whether a repository holds weights for transformers, or its settings and no GGUF file."""
    return bool(_of_folder(repository, WEIGHTS if repository.variants else (*WEIGHTS, "*.json")))


def of_transformers(repository: Repository, *, weights: bool = True) -> list[str]:
    """Return the files that transformers reads, without copies of weights in another form."""
    found = _of_folder(repository, _SETTINGS)
    if weights:
        safe, pickled = (_of_folder(repository, [pattern]) for pattern in WEIGHTS)
        found += [name for name in safe if not name.startswith("consolidated.")] or safe or pickled
    return found


def _of_folder(repository: Repository, patterns: Iterable[str]) -> list[str]:
    """Return the files of a repository's own folder that fit one of the patterns."""
    names = [one.name for one in repository.files if "/" not in one.name]
    return [name for name in names if any(fnmatch(name, pattern) for pattern in patterns)]
