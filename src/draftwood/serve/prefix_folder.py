"""Pages of texts in a folder: their names, how they are written, checked and removed.

    prefixes/secret           32 random bytes, with which names are made
    prefixes/<digest>.page    a page of a text's beginning
    prefixes/<digest>.state   what a text needs beside pages to go on from the end of that page

A name is a keyed digest of model, code, client and all tokens up to the page's end. So texts that begin alike
share their first pages, a page of other weights or of another client is never found, and without the secret names
tell nothing. Several processes may use a folder: each file is there whole or not at all, and is bound to its name.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from time import monotonic, time, time_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import StoredForm
from draftwood.errors import FileFormatError, UsageError
from draftwood.files.format import damaged, header_bytes, read_payload, write_file

Bytes = NDArray[np.uint8]

_VERSION = 1
"""Of what the files hold; a new one gives other names."""
_PART, _SECRET = "part of a prefix", "secret of prefixes"
_NAME = re.compile(r"[0-9a-f]{64}\.(page|state)")
_UNFINISHED = re.compile(rf"\.\d+-\d+\.{_NAME.pattern}")  # as `draftwood.files.paths.whole_file` calls it
_OLD = 3600.0  # seconds after which an unfinished file is one of a process that was killed
_LISTED = 10.0  # seconds for which a list of the folder is used: to make one of thousands of files takes 50 ms
_STEP = 1000  # nanoseconds between the times of two pages, which most file systems keep apart


class _Entry(NamedTuple):
    used: int  # time of the last use, in nanoseconds
    size: int


class PrefixFolder:
    """The files of a folder, of at most so many bytes; any thread may read, one at a time writes.

    Methods raise `OSError` and `draftwood.errors.DraftwoodError` where the folder cannot be used.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._place, self._most = folder / "prefixes", most_bytes
        self._there, self._listed = dict[str, _Entry](), -_LISTED  # our files by name, and when they were listed

    def names(self, form: StoredForm, namespace: str, ids: Sequence[int], *, make: bool = False) -> list[str]:
        """Return the names of a text's whole pages, in order, without endings.

        ``make``: write the secret where there is none of use.
        """
        key, about = self._secret(make=make), repr((_VERSION, form, namespace))
        digest, found = blake2b(about.encode(), key=key, digest_size=32).digest(), list[str]()
        for start, end in pairwise(range(0, len(ids) + 1, form.tokens)):
            tokens = np.asarray(ids[start:end], dtype="<i4").tobytes()
            digest = blake2b(digest + tokens, key=key, digest_size=32).digest()
            found.append(digest.hex())
        return found

    def _secret(self, *, make: bool) -> bytes:
        path = self._place / "secret"
        try:
            return read_payload(path, _SECRET)[1]
        except (UsageError, FileFormatError):
            if not make:
                raise
        self._place.mkdir(mode=0o700, parents=True, exist_ok=True)  # pages tell the text to who can read them
        write_file(path, _SECRET, {}, [secrets.token_bytes(32)])
        return read_payload(path, _SECRET)[1]  # of two processes that begin at once the last one's, mostly

    def is_empty(self) -> bool:
        """Whether nothing was ever written."""
        return not (self._place / "secret").exists()

    def has(self, name: str, size: int) -> bool:
        """Whether there is a file of this name, of so many bytes without its header."""
        try:
            return (self._place / name).stat().st_size == _file_bytes(name, size)
        except OSError:
            return False

    def read(self, name: str, size: int) -> Bytes | None:
        """Return what a file holds, checked; None where it has gone. A damaged one is removed, to be written anew.

        It is read, not mapped: where somebody had cut it, touching the missing bytes would end the process.
        """
        path = self._place / name
        try:
            header, payload = read_payload(path, _PART)
            if header.about.get("name") != name or len(payload) != size:
                raise damaged(path)
        except FileFormatError:
            with suppress(OSError):
                path.unlink()
            raise
        except UsageError:
            if path.exists():
                raise
            return None
        return np.frombuffer(payload, dtype=np.uint8)

    def keep(self, parts: Mapping[str, NDArray[Any]]) -> int:
        """Write those parts of a text that are not there, and note that all were used; returns the bytes written.

        They are given by name, first ones first, and as many are kept as fit. Others make room: those used longest
        ago, of one text the last ones first.
        """
        self._list()
        sizes, total = dict[str, int](), 0
        for name, part in parts.items():
            total += _file_bytes(name, part.nbytes)
            if total > self._most:
                break
            sizes[name] = _file_bytes(name, part.nbytes)
        others = {name: entry for name, entry in self._there.items() if name not in sizes}
        self._remove(others, sum(sizes.values()))
        # The clock may have been set back: what is used now is newer than all else.
        latest = max((entry.used for entry in self._there.values()), default=0)
        now, written = max(time_ns(), 1 + latest) + _STEP * len(sizes), 0
        for number, (name, size) in enumerate(sizes.items()):
            path, used = self._place / name, now - number * _STEP
            if not self.has(name, parts[name].nbytes):  # asked of the disk: other processes remove files, too
                write_file(path, _PART, {"name": name}, [parts[name]])
                written += size
            with suppress(OSError):
                os.utime(path, ns=(used, used))
            self._there[name] = _Entry(used, size)
        return written

    def _list(self) -> None:
        """Note which files of ours there are, if that was not done lately; remove what killed processes have left.

        What other processes write meanwhile is counted the next time: so much may be too much for a while.
        """
        if monotonic() - self._listed < _LISTED:
            return
        found = dict[str, _Entry]()
        for entry in self._entries():
            with suppress(OSError):  # another process has removed it
                status = entry.stat(follow_symlinks=False)
                if _NAME.fullmatch(entry.name):
                    found[entry.name] = _Entry(status.st_mtime_ns, status.st_size)
                elif _UNFINISHED.fullmatch(entry.name) and status.st_mtime < time() - _OLD:
                    Path(entry).unlink()
        self._there, self._listed = found, monotonic()

    def _entries(self) -> Iterator[os.DirEntry[str]]:
        with os.scandir(self._place) as entries:
            yield from entries

    def _remove(self, others: Mapping[str, _Entry], needed: int) -> None:
        """Remove those of the other files that were used longest ago, until there is room for what is needed."""
        total = needed + sum(entry.size for entry in others.values())
        if total <= self._most:
            return
        for name, entry in sorted(others.items(), key=lambda item: item[1].used):
            with suppress(FileNotFoundError):
                (self._place / name).unlink()
            del self._there[name]
            total -= entry.size
            if total <= self._most:
                return


def _file_bytes(name: str, size: int) -> int:
    return len(header_bytes(_PART, {"name": name}, 0, bytes(16))) + size
