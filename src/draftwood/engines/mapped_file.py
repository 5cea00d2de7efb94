"""Whether a file was changed since it was loaded, and files mapped into memory for reading."""

from __future__ import annotations

import logging
import mmap
import os
from pathlib import Path

from draftwood.errors import ModelError, ModelNotFoundError
from draftwood.files.paths import opened

_LOG = logging.getLogger("draftwood")


class FileState:
    """What a file was when it was loaded: ``stamp`` has its size and time of change."""

    def __init__(self, path: Path, status: os.stat_result) -> None:
        self.path, self.stamp, self._said_replaced = path, _stamp(status), False
        self._identity = _identity(status)

    def check_unchanged(self) -> None:
        """Raise `ModelError` if the file, which is mapped and not copied, was written to since it was loaded. If
        it was deleted or replaced, the mapped one is unchanged; the log warns once that it was replaced."""
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


class MappedFile(FileState):
    """A file whose bytes are ``buffer``, read from the disk only as they are looked at. Raises
    `ModelNotFoundError` where there is no such file, `ModelError` for one that is empty or cannot be read."""

    def __init__(self, path: Path) -> None:
        try:
            with opened(path) as file:
                status = os.fstat(file.fileno())
                super().__init__(path, status)
                if not status.st_size:
                    raise ModelError(f"{path} is empty: get the file again")
                self.buffer = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError as error:
            raise ModelNotFoundError(f"there is no file {path}: name an existing one") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ModelError(f"{path} cannot be read ({reason}): check its permissions") from error

    def let_go(self) -> None:
        """Give back the memory of what was read; it is read from the file again where it is needed."""
        if isinstance(self.buffer, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.buffer.madvise(mmap.MADV_DONTNEED)


def _stamp(status: os.stat_result) -> tuple[int, int]:
    return status.st_size, status.st_mtime_ns


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino  # a file that takes another's name has another number
