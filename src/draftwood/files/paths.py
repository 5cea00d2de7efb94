"""Paths as users write them: what stands there, reading it, and writing it whole or not at all; locks between
writers, and what is not kept."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO

from draftwood.errors import DraftwoodError, FileFormatError

_LOG = logging.getLogger("draftwood")
_SAID: set[str] = set()  # what is not kept in this process

MOST = 1 << 28  # bytes of a text that a user names, which may be a pipe or a device and have no end
_STREAMS = (stat.S_IFIFO, stat.S_IFCHR)


def named(given: str | os.PathLike[str]) -> Path:
    """Return the real path of a file that a user named: ``~`` and links are followed."""
    path = os.path.expanduser(given)  # noqa: PTH111 - pathlib's fails without a home
    real = os.path.realpath(path)
    # /dev/fd/63 leads to a pipe without a name. pathlib's raises for names that are too long.
    return Path(path if os.path.exists(path) and not os.path.exists(real) else real)  # noqa: PTH110


def opened(path: Path, *, streams: bool = False) -> BufferedReader:
    """Open a file for reading. Raises `OSError`, unless ``streams`` also for a pipe or a device: a pipe without a
    writer would hold us up for ever, and a device may have no end."""
    if not streams and stat.S_IFMT(path.stat().st_mode) in _STREAMS:
        raise OSError(errno.EINVAL, "it is a pipe or a device")
    return path.open("rb")


def content(path: Path, *, streams: bool = False) -> bytes:
    """Return the bytes of what `opened` opens, with ``streams`` at most `MOST`; raises `OSError`."""
    with opened(path, streams=streams) as file:
        found = file.read(MOST + 1 if streams else -1)
    if streams and len(found) > MOST:
        raise OSError(errno.EFBIG, f"it has more than {MOST:,} bytes")
    return found


def is_stream(path: Path) -> bool:
    """Whether what is written to a path goes on to a reader, as it does for a pipe, a device and an open file of
    this process (``/dev/stdout``, bash's ``>(...)``). False for a file, which is replaced, and where nothing is.
    Raises `OSError` for anything else."""
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return False
    if _descriptor(path) is not None or stat.S_IFMT(mode) in _STREAMS:
        return True
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a folder, a disk or a socket")
    return False


def stream(path: Path, *, buffering: int = -1) -> BinaryIO:
    """Open what `is_stream` for writing; waits for the reader of a pipe. An open file goes on where it stands."""
    number = _descriptor(path)
    return open(path if number is None else os.dup(number), "wb", buffering=buffering)  # noqa: PTH123


def _descriptor(path: Path) -> int | None:
    """Return the number of our open file that an existing path stands for, as /dev/stdout and a link to it do."""
    at = path.parent.resolve() / path.name
    if str(at.parent) in (os.path.realpath("/proc/self/fd"), "/dev/fd"):
        return int(at.name)
    return _descriptor(at.parent / at.readlink()) if at.is_symlink() else None


@contextmanager
def whole_file(path: Path, *, error: type[DraftwoodError] = FileFormatError) -> Iterator[Path]:
    """Give a file to write to, which becomes ``path`` afterwards, so that it appears whole or not at all.

    A former file is replaced and keeps its permissions; if ``path`` is a link, its target is replaced. What
    `is_stream` is never replaced: the whole file is written to it. Raises ``error`` if it cannot be written; a
    former file is then untouched.
    """
    try:
        with _for_a_stream(path) if is_stream(path) else _beside(Path(os.path.realpath(path))) as new:
            yield new
    except OSError as reason:
        raise error(f"{path} cannot be written ({reason.strerror or reason}): choose another place") from reason


@contextmanager
def _for_a_stream(path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        new = Path(folder, path.name)
        yield new
        with new.open("rb") as made, stream(path) as to:
            shutil.copyfileobj(made, to)


@contextmanager
def _beside(to: Path) -> Iterator[Path]:
    # The suffix stays the same, since some writers choose their format by it.
    new = to.with_name(f".{os.getpid()}-{threading.get_ident()}.{to.name}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        mode = to.stat().st_mode & 0o777 if to.exists() else None
        if mode is not None:  # no other user can read it while it is written
            os.close(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
        yield new
        if mode is not None:
            with suppress(OSError):  # not every disk knows permissions
                new.chmod(mode)
        new.replace(to)
    finally:
        with suppress(OSError):  # gone already, or never made
            new.unlink()


@contextmanager
def alone(path: Path, wait: float, *, error: type[DraftwoodError] = FileFormatError) -> Iterator[None]:
    """Lock ``path``, links followed, against other processes and threads that write to it.

    The lock is on a file in the same folder, removed afterwards; the system frees the lock of a killed process.
    Raises ``error`` if the lock is not free within ``wait`` seconds, or the folder cannot be written to.
    """
    from filelock import FileLock, Timeout

    to = named(path)
    lock = FileLock(to.with_name(f".{to.name}.lock"))
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        _make(Path(lock.lock_file))
        lock.acquire(timeout=wait)
    except Timeout:
        held = f"was locked by another writer for {wait:g} seconds" if wait else "is in use by another run"
        raise error(f"{path} {held}: try again later, or choose another file") from None
    except (OSError, NotImplementedError) as failure:
        reason = getattr(failure, "strerror", None) or failure
        raise error(f"{path} cannot be written ({reason}): choose another place") from failure
    try:
        yield
    finally:
        with suppress(OSError):  # where open files cannot be removed
            Path(lock.lock_file).unlink()  # a waiting process notices and makes a new one
        lock.release()


def _make(lock: Path) -> None:
    """Make a lock's file, or raise `OSError` at once: the lock itself would go on trying until its time is up.

    Tries three times, since on network disks another process that removes the file can make it fail.
    """
    for left in (2, 1, 0):
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_WRONLY, 0o666))
        except OSError:
            if lock.exists():  # another process has made it
                return
            if not left:
                raise
        else:
            return


@cache
def without_home() -> Path:
    """Return the cache folder of a user without a home: a temporary one that nobody else can write to, since
    machine code is kept in it. Where that cannot be, a place that no folder can have."""
    try:
        place = Path(tempfile.gettempdir(), f"draftwood-{os.getuid()}")
        place.mkdir(mode=0o700, exist_ok=True)
        found = place.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            _LOG.warning("there is no home here, so things are kept in %s: set HOME, or DRAFTWOOD_CACHE", place)
            return place
        reason = f"{place} is not this user's alone"
    except (OSError, AttributeError) as error:  # no temporary folder, or a system without numbers of users
        reason = str(error)
    say_unkept("without a home, models, machine code and findings are", reason)
    return Path(os.devnull, "draftwood")


def say_unkept(what: str, reason: object) -> None:
    """Warn that something is not kept; of further things in this process only debuggers hear."""
    _LOG.log(logging.DEBUG if _SAID else logging.WARNING, "%s not kept for the next start: %s", what, reason)
    _SAID.add(what)
