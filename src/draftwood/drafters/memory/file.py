"""The file of a memory: an SQLite database, whose transactions keep processes apart and each save whole.

``about`` is one row: a random id of the file, its tokenizer, the size of the memory. ``answers`` are numbered in
the order in which they came. ``forgotten`` are digests of namespaces: a forgotten name must not stay in the file.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from draftwood.child_safe import ChildSafeLock
from draftwood.contracts import Ints
from draftwood.errors import DraftwoodError, FileFormatError, UsageError
from draftwood.files.format import damaged
from draftwood.files.paths import is_stream

MOST_TOKENS = 1 << 28  # places are int32, and an index holds up to twice as many while it is rebuilt
VERSION = 1
_APPLICATION = 0x44574D31  # SQLite's mark of whose database it is: "DWM1"
_TABLES = {
    "about": "CREATE TABLE about (id BLOB, tokenizer TEXT, tokens INTEGER)",
    "answers": "CREATE TABLE answers (number INTEGER PRIMARY KEY AUTOINCREMENT, namespace BLOB, digest BLOB,"
    " ids BLOB, worth REAL)",
    "forgotten": "CREATE TABLE forgotten (number INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB)",
}
_SEQUENCES = {"sqlite_sequence": "CREATE TABLE sqlite_sequence(name,seq)"}  # SQLite's own
_SLICE = 0.1  # seconds that SQLite waits at a time: Ctrl-C is noticed between two

_one_by_one = ChildSafeLock()  # of this process: closing a file that another thread has locked would free its lock
if hasattr(os, "register_at_fork"):
    # A child that was forked within a transaction would find the file locked for good.
    os.register_at_fork(before=_one_by_one.__enter__, after_in_parent=_one_by_one.__exit__)


class Saved(NamedTuple):
    """An answer in a file."""

    namespace: str
    ids: Ints  # none negative
    worth: float  # how useful it was (`draftwood.drafters.memory.memory.Memory`), relative to clock 0
    digest: bytes


def digest(namespace: str, ids: Ints) -> bytes:
    """Return a digest of whose answer it is and of its tokens, 16 bytes."""
    return blake2b(_encoded(namespace) + b"\0" + ids.tobytes(), digest_size=16).digest()


def tombstone(namespace: str) -> bytes:
    """Return a digest of the name of a forgotten namespace."""
    return blake2b(_encoded(namespace), digest_size=8).digest()


def _encoded(namespace: str) -> bytes:
    return namespace.encode("utf-8", "surrogatepass")


class MemoryFile:
    """A file within one transaction; `opened` makes it."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection, run = path, connection, connection.execute
        if path.stat().st_size:
            self._check()
        else:  # new
            marks = f"PRAGMA application_id = {_APPLICATION}", f"PRAGMA user_version = {VERSION}"
            for sql in (*_TABLES.values(), *marks):
                run(sql)
            run("INSERT INTO about VALUES (?, NULL, NULL)", (os.urandom(16),))
        about: Any = run("SELECT id, tokenizer, tokens FROM about").fetchone() or (None, None, None)
        self.id: bytes = about[0]
        self.tokenizer: str | None = about[1]
        self.tokens: int | None = about[2]
        size = self.tokens is None or (isinstance(self.tokens, int) and 1 <= self.tokens <= MOST_TOKENS)
        if not (isinstance(self.id, bytes) and isinstance(self.tokenizer, str | None) and size):
            raise _unsound(path)

    def _check(self) -> None:
        """Raise `FileFormatError` for anything but a whole memory."""
        read = self._connection.execute
        if read("PRAGMA application_id").fetchone() != (_APPLICATION,):
            raise _foreign(self._path)
        (version,) = read("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise FileFormatError(
                f"{self._path} is of version {version} and this draftwood reads up to {VERSION}: upgrade it, or "
                "make the file again"
            )
        if dict(read("SELECT name, sql FROM sqlite_master")) != _TABLES | _SEQUENCES:
            raise _unsound(self._path)
        if read("PRAGMA quick_check(1)").fetchone() != ("ok",):
            raise damaged(self._path)

    def answers(self, after: int = 0) -> list[Saved]:
        """Return the answers whose numbers are higher, in order; raises `FileFormatError` for damaged ones."""
        sql = "SELECT namespace, ids, worth, digest FROM answers WHERE number > ? ORDER BY number"
        return [self._answer(*row) for row in self._connection.execute(sql, (after,))]

    def _answer(self, namespace: Any, ids: Any, worth: Any, known: Any) -> Saved:
        try:
            name = namespace.decode("utf-8", "surrogatepass")
            tokens = np.frombuffer(ids, dtype="<i4").astype(np.int32, copy=False)
            found = Saved(name, tokens, worth, digest(name, tokens))
        except (AttributeError, TypeError, ValueError) as error:
            raise _unsound(self._path) from error
        if found.digest != known:
            raise damaged(self._path)
        if not len(found.ids) or (found.ids < 0).any() or not (isinstance(worth, float) and isfinite(worth)):
            raise _unsound(self._path)
        return found

    def forgotten(self, after: int = 0) -> set[bytes]:
        """Return the tombstones whose numbers are higher."""
        rows = self._connection.execute("SELECT name FROM forgotten WHERE number > ?", (after,))
        return {name for (name,) in rows}

    @property
    def ends(self) -> tuple[int, int]:
        """The highest numbers of answers and tombstones."""
        sql = "SELECT coalesce(max(number), 0) FROM {}"
        run = self._connection.execute
        answers, stones = (run(sql.format(table)).fetchone()[0] for table in ("answers", "forgotten"))
        return int(answers), int(stones)

    def write(self, answers: Sequence[Saved], forget: Iterable[str], tokenizer: str | None, tokens: int) -> None:
        """Hold these answers and no others, and let other processes forget these namespaces."""
        run = self._connection
        for namespace in forget:
            run.execute("DELETE FROM answers WHERE namespace = ?", (_encoded(namespace),))
            run.execute("DELETE FROM forgotten WHERE name = ?", (tombstone(namespace),))
            run.execute("INSERT INTO forgotten (name) VALUES (?)", (tombstone(namespace),))
        mine = {(_encoded(saved.namespace), saved.digest): saved for saved in answers}
        rows = run.execute("SELECT number, namespace, digest FROM answers").fetchall()
        there = {row[1:]: row[0] for row in rows if row[1:] in mine}
        kept = set(there.values())
        run.executemany("DELETE FROM answers WHERE number = ?", [row[:1] for row in rows if row[0] not in kept])
        worths = [(mine[key].worth, at) for key, at in there.items()]
        run.executemany("UPDATE answers SET worth = ? WHERE number = ?", worths)
        new = (
            (*key, saved.ids.astype("<i4").tobytes(), saved.worth)
            for key, saved in mine.items()
            if key not in there
        )
        run.executemany("INSERT INTO answers (namespace, digest, ids, worth) VALUES (?, ?, ?, ?)", new)
        run.execute("UPDATE about SET tokenizer = ?, tokens = ?", (tokenizer, tokens))


@contextmanager
def _alone(path: Path, wait: float) -> Iterator[None]:
    if not _one_by_one.acquire(timeout=max(0.0, wait)):
        raise _locked(path, wait)
    try:
        yield
    finally:
        _one_by_one.release()


@contextmanager
def opened(path: Path, wait: float, *, writing: bool = False) -> Iterator[MemoryFile]:
    """Open a file in one transaction, which ends with the block; if ``writing``, an error undoes all of it.

    Only its owner may read a new file. Raises `UsageError` if it cannot be read, and `FileFormatError`
    if it is no memory, damaged or newer, cannot be written, or is locked by others for more than ``wait`` seconds.
    """
    until = time.monotonic() + wait
    try:
        if is_stream(path):
            raise OSError(errno.EINVAL, "it is a pipe or a device, which cannot hold a memory")
        with _alone(path, wait):
            if writing:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.exists():
                    path.touch(mode=0o600)
            uri = f"{path.as_uri()}?mode=rw"
            with closing(sqlite3.connect(uri, min(wait, _SLICE), isolation_level=None, uri=True)) as connection:
                _patiently(connection, "BEGIN IMMEDIATE" if writing else "BEGIN", until)
                _patiently(connection, "SELECT 1 FROM sqlite_master", until)
                connection.execute("PRAGMA secure_delete = ON")  # what is forgotten is overwritten
                yield MemoryFile(path, connection)
                _patiently(connection, "COMMIT", until)
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:  # the last one is of damaged names
        raise _refusal(path, error, wait, writing) from error


def _patiently(connection: sqlite3.Connection, sql: str, until: float) -> None:
    """Run a statement for which another process may have to finish first."""
    while True:
        try:
            connection.execute(sql)
        except sqlite3.OperationalError as error:
            if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() >= until:
                raise
        else:
            return


def _code(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest says more than is asked


def _refusal(path: Path, error: Exception, wait: float, writing: bool) -> DraftwoodError:
    """Return the error that says what was wrong with a file."""
    code = _code(error)
    if code == sqlite3.SQLITE_BUSY:
        return _locked(path, wait)
    if code == sqlite3.SQLITE_NOTADB:
        return _foreign(path)
    if code in (0, sqlite3.SQLITE_CORRUPT) and not isinstance(error, OSError):  # 0: Python could not read a value
        return damaged(path)
    reason = getattr(error, "strerror", None) or error
    if writing and getattr(error, "errno", None) != errno.EINVAL:  # which says that it is no file
        return FileFormatError(f"{path} cannot be written ({reason}): choose another place")
    return UsageError(f"{path} cannot be read ({reason}): check its name")


def _locked(path: Path, wait: float) -> FileFormatError:
    return FileFormatError(
        f"{path} was locked by another writer for {wait:g} seconds: try again later, or choose another file"
    )


def _foreign(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} is no memory of draftwood: give one that it wrote")


def _unsound(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} holds no answers that belong together: delete it, or restore a copy of it")
