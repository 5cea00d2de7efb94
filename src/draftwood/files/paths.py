"""Paths as users write them, files written whole or not at all, locks between writers, and what is not kept."""

from __future__ import annotations

import logging
import os
import stat
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from draftwood.errors import DraftwoodError, FileFormatError

_LOG = logging.getLogger("draftwood")
_SAID: set[str] = set()  # what is not kept in this process


def named(given: str | os.PathLike[str]) -> Path:
    """Return the real path of a file that a user named: ``~`` and links are followed."""
    return Path(os.path.realpath(os.path.expanduser(given)))  # noqa: PTH111 - pathlib's fails without a home


@contextmanager
def whole_file(path: Path, *, error: type[DraftwoodError] = FileFormatError) -> Iterator[Path]:
    """Give a file to write to, renamed to ``path`` afterwards, so that it appears whole or not at all.

    If ``path`` is a link, its target is replaced. A replaced file keeps its permissions. Raises ``error`` if it
    cannot be written; a former file is then untouched.
    """
    to = Path(os.path.realpath(path))
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
    except OSError as reason:
        raise error(f"{path} cannot be written ({reason.strerror}): choose another place") from reason
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
