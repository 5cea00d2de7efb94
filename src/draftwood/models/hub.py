"""The hub of models: what a repository holds, and its files, downloaded whole or not at all.

What was cut off goes on where it was. Files lie as huggingface_hub lays them, so that other programs find them:
``blobs/`` by checksum, and links to them in ``snapshots/COMMIT/``. Its own download is not used, since it begins
anew each time, compares no checksum, and names its files as the answers say.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, BinaryIO

from draftwood.errors import DraftwoodError, FetchError, ModelNotFoundError
from draftwood.files.paths import opened
from draftwood.local.hub_names import Variant, is_usable, variants
from draftwood.local.neighbours import hub_cache, hub_folder

if TYPE_CHECKING:
    from filelock import BaseFileLock

Report = Callable[[int, int], None]
"""Called with the bytes that have come, and those that will have."""

_LOG = logging.getLogger("draftwood.engine")  # which the command line shows
_SECONDS = 10  # for the hub to answer
_BLOCK = 1 << 20
_TRIES = 5  # in a row in which nothing comes
_OF_DISK = (
    errno.ENOSPC,
    errno.EIO,
    errno.EFBIG,
    getattr(errno, "EDQUOT", errno.ENOSPC),
)  # the last not on Windows
_COMMIT, _DIGEST = re.compile("[0-9a-f]{40}"), re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository: its size in bytes, and SHA-256 of it, or git's SHA-1 of a small one."""

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The files of a repository at a commit; none whose name would lead out of its folder."""

    name: str
    commit: str
    files: tuple[HubFile, ...]

    @property
    def variants(self) -> list[Variant]:
        return variants({file.name: file.size for file in self.files})

    def named(self, names: Iterable[str]) -> list[HubFile]:
        """Return the files of these names."""
        known = {file.name: file for file in self.files}
        return [known[name] for name in names]


def look(repository: str) -> Repository:
    """Ask the hub what a repository holds; `ModelNotFoundError` where it does not say."""
    from huggingface_hub import HfApi

    try:
        found = HfApi(endpoint=_endpoint()).model_info(repository, files_metadata=True, timeout=_SECONDS)
        siblings, commit = found.siblings or [], str(found.sha)
    except Exception as error:  # whatever the network's package raises
        raise _explained(error, repository) from error
    if not _COMMIT.fullmatch(commit):
        raise ModelNotFoundError(f"{_place()} does not answer as the hub does: check HF_ENDPOINT")
    files = []
    for one in siblings:
        size, digest = (one.lfs.size, one.lfs.sha256) if one.lfs else (one.size, one.blob_id)
        if is_usable(one.rfilename) and isinstance(size, int) and _DIGEST.fullmatch(digest or ""):
            files.append(HubFile(one.rfilename, size, digest or ""))
    return Repository(repository, commit, tuple(files))


def bring(repository: Repository, names: Iterable[str], report: Report | None = None) -> Path:
    """Return the folder of a repository in the cache, with these of its files.

    Raises `FetchError` where the disk is too small or full, a download stops or a checksum is wrong, and
    `ModelNotFoundError` where the hub does not give a file.
    """
    files = repository.named(names)
    kept = hub_folder(repository.name)
    snapshot = kept / "snapshots" / repository.commit
    lacking = [file for file in files if not _is_whole(snapshot / file.name, file)]
    total = sum(file.size for file in lacking)
    came = 0

    def tick(amount: int) -> None:
        nonlocal came
        came += amount
        if report is not None:
            report(came, total)

    try:
        if lacking:
            _forget_others(kept, repository)
            there = _require_space(kept, lacking, repository.name)
            begun = f"; {there / 1e6:.0f} MB of it are here" if there else ""
            _LOG.info("downloading %.0f MB of %s to %s%s", total / 1e6, repository.name, hub_cache(), begun)
        for file in lacking:
            _bring_one(repository, file, kept, tick)
            _link(kept / "blobs" / file.digest, snapshot / file.name)
        _name(kept, repository.commit)
    except OSError as error:
        where = f"{hub_cache()} cannot be written ({error.strerror or error})"
        raise FetchError(f"{where}: free some space there, or point HF_HOME to another folder") from error
    if lacking:
        from draftwood.local.memory_speed import measure_early

        measure_early()
    return snapshot


def _is_whole(path: Path, file: HubFile) -> bool:
    return path.is_file() and path.stat().st_size == file.size


def _partial(kept: Path, file: HubFile) -> Path:
    """Return where a file lies that has not come to its end."""
    return kept / "blobs" / f"{file.digest}.partial"


def _forget_others(kept: Path, repository: Repository) -> None:
    """Remove what came of files that the repository no longer has, but of those that another process brings."""
    from filelock import Timeout

    now = {_partial(kept, file) for file in repository.files}
    for old in (kept / "blobs").glob("*.partial"):
        if old not in now:
            with suppress(Timeout), _lock(kept, old.stem).acquire(blocking=False):
                old.unlink(missing_ok=True)


def _lock(kept: Path, digest: str) -> BaseFileLock:
    """Return the lock of a file, which is that of the hub's package."""
    from filelock import FileLock

    locks = hub_cache() / ".locks" / kept.name
    locks.mkdir(parents=True, exist_ok=True)
    return FileLock(locks / f"{digest}.lock")


def _require_space(kept: Path, files: list[HubFile], name: str) -> int:
    """Return how many bytes of files have come before; `FetchError` where the disk has no room for the others."""
    blobs = kept / "blobs"
    blobs.mkdir(parents=True, exist_ok=True)
    there = sum(path.stat().st_size for file in files if (path := _partial(kept, file)).is_file())
    need = sum(file.size for file in files if not _is_whole(blobs / file.digest, file)) - there
    free = shutil.disk_usage(blobs).free
    if free < need:
        raise FetchError(
            f"{name} needs {need / 1e9:.1f} GB and {hub_cache()} has {free / 1e9:.1f} GB free: free some space, "
            "or point HF_HOME to another disk"
        )
    return there


def _bring_one(repository: Repository, file: HubFile, kept: Path, tick: Callable[[int], None]) -> None:
    """Put a file under its checksum into ``blobs``; of several processes one does."""
    blob, partial = kept / "blobs" / file.digest, _partial(kept, file)
    with _lock(kept, file.digest):
        if _is_whole(blob, file):
            tick(file.size)
            return
        with partial.open("ab") as out:
            if out.tell() > file.size:
                _empty(out)
            tick(out.tell())
            _download(repository, file, out, tick)
        if _digest(partial, file) != file.digest:
            partial.unlink()
            raise FetchError(
                f"{file.name} of {repository.name} has another checksum than the hub says: it was damaged on the "
                "way; try again"
            )
        partial.replace(blob)


def _download(repository: Repository, file: HubFile, out: BinaryIO, tick: Callable[[int], None]) -> None:
    """Append to a file what it lacks, trying again as long as something comes."""
    left = _TRIES
    while (begin := out.tell()) < file.size:
        try:
            _ask(repository, file, out, tick)
            if out.tell() < file.size:
                raise ConnectionError("the answer was cut off")
        except DraftwoodError:
            raise
        except Exception as error:  # whatever the network's package raises
            if isinstance(error, OSError) and error.errno in _OF_DISK:
                raise
            failed = error
        else:
            return
        left = _TRIES if out.tell() > begin else left - 1
        status = getattr(getattr(failed, "response", None), "status_code", 500)
        if not left or status < 500:
            out.flush()
            stopped = f"; {out.tell() / 1e9:.2f} of {file.size / 1e9:.2f} GB of {file.name} are here"
            raise _explained(failed, repository.name, stopped=stopped) from failed
        sleep(_TRIES - left)


def _ask(repository: Repository, file: HubFile, out: BinaryIO, tick: Callable[[int], None]) -> None:
    """Append what the hub answers to one request for the rest of a file."""
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    address = hf_hub_url(repository.name, file.name, revision=repository.commit, endpoint=_endpoint())
    headers = {**build_hf_headers(), "Accept-Encoding": "identity", "Range": f"bytes={out.tell()}-"}
    with get_session().stream("GET", address, headers=headers, follow_redirects=True, timeout=30) as answer:
        hf_raise_for_status(answer)
        if answer.status_code != 206 and out.tell():  # it begins anew
            tick(-out.tell())
            _empty(out)
        for block in answer.iter_bytes():
            if out.tell() + len(block) > file.size:
                raise FetchError(f"the hub sends more of {file.name} than it said: try again later")
            out.write(block)
            tick(len(block))


def _empty(out: BinaryIO) -> None:
    out.truncate(0)
    out.seek(0)


def _digest(path: Path, file: HubFile) -> str:
    """Return a file's checksum of the hub's kind: SHA-256, or as git makes it of small files."""
    is_small = len(file.digest) == len(hashlib.sha1().hexdigest())
    digest = hashlib.sha1(b"blob %d\0" % file.size) if is_small else hashlib.sha256()
    with opened(path) as read:
        while block := read.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _link(blob: Path, path: Path) -> None:
    """Let a path in a snapshot be the blob, which is moved there where links cannot be made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    try:
        path.symlink_to(os.path.relpath(blob, path.parent))
    except OSError:
        blob.replace(path)


def _name(kept: Path, commit: str) -> None:
    """Say that a commit is the newest."""
    reference = kept / "refs" / "main"
    reference.parent.mkdir(parents=True, exist_ok=True)
    reference.write_text(commit, encoding="ascii")


def _endpoint() -> str | None:
    """Return the hub's address where it is not the usual one."""
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or None


def _place() -> str:
    return _endpoint() or "the hub"


def _explained(error: Exception, repository: str, *, stopped: str = "") -> DraftwoodError:
    """Return what the network's package raised as a sentence; ``stopped`` says how far a download came."""
    from huggingface_hub.errors import GatedRepoError, OfflineModeIsEnabled, RepositoryNotFoundError

    status = getattr(getattr(error, "response", None), "status_code", None)
    if isinstance(error, OfflineModeIsEnabled):
        return ModelNotFoundError(
            f"HF_HUB_OFFLINE is set, so nobody is asked for {repository}: unset it to get it"
        )
    if isinstance(error, GatedRepoError) or status == 403:
        page = f"{_endpoint() or 'https://huggingface.co'}/{repository}"
        said = f"{repository} is gated: ask for access at {page}, then set HF_TOKEN to a token of yours"
        return ModelNotFoundError(f"{said}, or run hf auth login")
    if isinstance(error, RepositoryNotFoundError):
        return ModelNotFoundError(
            f"neither this disk nor {_place()} has {repository}, or it is private: check the name; for a private "
            "one set HF_TOKEN, or run hf auth login"
        )
    if status == 401:
        return ModelNotFoundError(f"{_place()} refuses the token for {repository}: renew HF_TOKEN, or unset it")
    kind = FetchError if stopped else ModelNotFoundError
    if status is not None:
        wait = "wait a little, or set HF_TOKEN, which allows more" if status == 429 else "try again later"
        return kind(f"{_place()} answers {status} for {repository}{stopped}: {wait}")
    said = str(error).strip().partition("\n")[0].rstrip(".: ") or type(error).__name__
    if stopped:
        what = "check the network and run it again, which goes on from there"
        return FetchError(f"{_place()} does not answer for {repository} ({said}){stopped}: {what}")
    what = f"{repository} is not on this disk, and {_place()} does not answer ({said})"
    return ModelNotFoundError(f"{what}: check the network, or name what draftwood list shows")
