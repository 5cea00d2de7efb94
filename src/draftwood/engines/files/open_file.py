"""Whether a file was changed since it was loaded, and files that are read piece by piece."""

from __future__ import annotations

import hashlib
import logging
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from time import time

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import ModelError, ModelNotFoundError
from draftwood.files.paths import opened
from draftwood.local.findings import remember, remembered

_LOG = logging.getLogger("draftwood")
_AT_ONCE = 1 << 24  # bytes that are digested at a time
_SETTLED = 2.0  # seconds: a file system may give two changes within less the same time


class FileState:
    """What a file was when it was loaded: ``stamp`` has its size and time of change."""

    def __init__(self, path: Path, status: os.stat_result) -> None:
        self.path, self.stamp, self._said_replaced = path, _stamp(status), False
        self._identity = _identity(status)

    def check_unchanged(self) -> None:
        """Raise `ModelError` if the file was written to since it was loaded. If it was deleted or replaced, the
        loaded one is unchanged; the log warns once that it was replaced."""
        try:
            status = self.path.stat()
        except OSError:
            return
        same, replaced = _stamp(status) == self.stamp, _identity(status) != self._identity
        if not same and not replaced:
            raise ModelError(f"{self.path} has changed since it was loaded: load it again")
        if replaced and not self._said_replaced:
            self._said_replaced = True
            _LOG.warning("%s was replaced: texts are those of the file as it was; load it again", self.path)


class OpenFile(FileState):
    """A file of ``size`` bytes, of which parts are read; it stays the same one when another takes its name.

    It is not mapped into memory: where somebody had cut it, touching the missing bytes would end the process.
    Raises `ModelNotFoundError` where there is no such file, `ModelError` for one that is empty or unreadable.
    """

    def __init__(self, path: Path) -> None:
        with self._readable(path):
            self._file, self._lock = opened(path), Lock()
            weakref.finalize(self, self._file.close)
            status = os.fstat(self._file.fileno())
        super().__init__(path, status)
        self.size = status.st_size
        if not self.size:
            raise ModelError(f"{path} is empty: get the file again")

    def read(self, start: int, size: int) -> NDArray[np.uint8]:
        """Return bytes from ``start`` on, uint8[size]; `ModelError` where the file has become shorter."""
        found = np.empty(size, np.uint8)
        view, done = found.data, 0
        with self._readable(self.path):
            while done < size:
                if (more := self._into(view[done:], start + done)) == 0:
                    raise ModelError(f"{self.path} was cut while it was read: load it again when it is whole")
                done += more
        return found

    def digest(self) -> int:
        """Return a BLAKE2b of the file as it was loaded, of 128 bits; raises as `read` and `check_unchanged`.

        It is remembered from one start to the next by what the system says of the file, with the time of its last
        change of any kind: no program can set that one back.
        """
        key = f"digest of a file|{self.path}|{self._status()}"
        known = remembered(key)
        if known is None:
            digest = hashlib.blake2b(digest_size=16)
            for start in range(0, self.size, _AT_ONCE):
                digest.update(self.read(start, min(_AT_ONCE, self.size - start)).data)
            known = int.from_bytes(digest.digest(), "little")
            changed = os.fstat(self._file.fileno()).st_ctime
            if key.endswith(f"|{self._status()}") and changed < time() - _SETTLED and os.name != "nt":
                remember(key, known)  # Windows knows no time of any change
        self.check_unchanged()
        return known

    def _status(self) -> tuple[int, ...]:
        status = os.fstat(self._file.fileno())
        return (*_identity(status), *_stamp(status), status.st_ctime_ns)

    def _into(self, view: memoryview, at: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [view], at)
        with self._lock:  # another thread would move the place
            self._file.seek(at)
            return self._file.readinto(view)

    @staticmethod
    @contextmanager
    def _readable(path: Path) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"there is no file {path}: name an existing one") from error
        except OSError as error:
            raise ModelError(
                f"{path} cannot be read ({error.strerror or error}): check its permissions"
            ) from error


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino  # a file that takes another's name has another number
