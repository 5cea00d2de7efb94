"""The file of a corpus: token ids of documents and their suffix arrays, mapped into memory rather than read.

Payload of the file (the header is that of `draftwood.files.format`), all numbers little-endian, every array filled
up to a multiple of 64 bytes::

    per part   int32 tokens[n]       the part's documents, each followed by -1
               int32 suffixes[m]     where its suffixes start, sorted; those of -1 are left out
    int64      starts[documents]     where each document begins, over all parts
    int64      name_ends[documents]  where its name ends in the names
    bytes      names                 UTF-8

The description holds ``parts`` ([n, m] each), ``documents``, ``names`` (bytes) and the name of a ``model`` with
this tokenizer. Each part has its own suffix array, since its places are int32 and it must be sorted in memory. A
document lies in one part.
"""

from __future__ import annotations

import logging
import mmap
import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.errors import FileFormatError
from draftwood.files.format import ALIGNMENT, Header, open_payload, write_file
from draftwood.index.faults import GuardedMap

log = logging.getLogger("draftwood")

KIND = "corpus"
VERSION = 1
BORDER = -1  # stands after every document; tokens are not negative, so no pattern matches across it
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Some documents of a corpus, and their suffix array."""

    tokens: Ints  # `BORDER` after each document
    suffixes: Ints  # places of all tokens but the borders, sorted by the tokens from there on


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Names and places of the documents of a corpus."""

    starts: Longs  # where each begins among the tokens of all parts, borders counted
    name_ends: Longs  # where its name ends in ``names``
    names: NDArray[np.uint8]  # all names, UTF-8

    def __len__(self) -> int:
        return len(self.starts)

    def name(self, index: int) -> str:
        begin = int(self.name_ends[index - 1]) if index else 0
        return bytes(self.names[begin : int(self.name_ends[index])]).decode("utf-8", "surrogateescape")

    def at(self, place: int) -> int:
        """Return the document that holds this place among the tokens of all parts."""
        return max(int(np.searchsorted(self.starts, place, side="right")) - 1, 0)

    @classmethod
    def listed(cls, names: Sequence[str], starts: Iterable[int]) -> Documents:
        """Make the table of these documents, in the order of their starts."""
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
        ends = np.cumsum([len(name) for name in encoded], dtype=np.int64)
        blob = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(np.fromiter(starts, dtype=np.int64), ends, blob)


class WatchedFile:
    """A file that is mapped, watched for changes; one that is replaced or deleted stays as it was."""

    def __init__(self, path: Path, file: BinaryIO, whole: GuardedMap) -> None:
        self._path, self._number, self._said = path, os.dup(file.fileno()), False
        weakref.finalize(whole, os.close, self._number)
        self._stamp = _stamp(self._number)

    def check(self) -> None:
        """Raise `FileFormatError` once it was written to: what is mapped is then no corpus."""
        if _stamp(self._number) != self._stamp:
            raise FileFormatError(f"{self._path} was written to while it was open: open it again")

    def is_whole(self) -> bool:
        """Return whether `check` passes; the log says once that it does not."""
        try:
            self.check()
        except FileFormatError as error:
            if not self._said:
                self._said = True
                log.warning("%s; nothing is drafted from it", error)
            return False
        return True


def open_corpus(path: Path) -> tuple[Header, tuple[Part, ...], Documents, WatchedFile]:
    """Map a corpus file into memory; of the payload only the size is checked, `Header.verify` reads all of it.

    Raises `UsageError` if it cannot be opened, `FileFormatError` if it is no corpus, cut, damaged or newer.
    """
    with open_payload(path, KIND, version=VERSION) as (header, file):
        layout, parts = _layout(header)
        arrays, watched = _mapped(header, file, layout)
    pairs = zip(arrays[: 2 * parts : 2], arrays[1 : 2 * parts : 2], strict=True)
    return header, tuple(Part(*pair) for pair in pairs), Documents(*arrays[2 * parts :]), watched


def _layout(header: Header) -> tuple[list[tuple[int, Any]], int]:
    """Length and type of each array, and the number of parts."""
    about = header.about
    try:
        sizes = [(int(n), int(m)) for n, m in about["parts"]]
        counts = [int(about[name]) for name in ("documents", "names")]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise _disagrees(header.path) from error
    layout: list[tuple[int, Any]] = [(size, np.int32) for pair in sizes for size in pair]
    layout += [(counts[0], np.int64), (counts[0], np.int64), (counts[1], np.uint8)]
    fits = min(size for size, _ in layout) >= 0 and header.length == sum(_room(*entry) for entry in layout)
    if not fits or (sizes and not counts[0]):
        raise _disagrees(header.path)
    return layout, len(sizes)


def write_corpus(
    path: Path,
    parts: Iterable[Part],
    sizes: Sequence[tuple[int, int]],
    documents: Documents,
    about: dict[str, Any],
) -> None:
    """Replace a corpus file, whole or (`FileFormatError`) not at all.

    The parts are taken one by one, so that only one is in memory; ``sizes`` are the lengths of tokens and suffixes
    of each. ``about`` holds ``tokenizer`` (the fingerprint) and ``model``.
    """
    counts = {"documents": len(documents), "names": len(documents.names)}
    about = {**about, "parts": [list(pair) for pair in sizes], **counts}

    indexed = (_padded(array, np.int32) for part in parts for array in (part.tokens, part.suffixes))
    table = [_padded(array, np.int64) for array in (documents.starts, documents.name_ends)]
    pieces = chain(indexed, table, [_padded(documents.names, np.uint8)])
    write_file(path, KIND, about, chain.from_iterable(pieces), version=VERSION)


def _mapped(
    header: Header, file: BinaryIO, layout: Iterable[tuple[int, Any]]
) -> tuple[list[NDArray[Any]], WatchedFile]:
    try:
        # Read-only, so that a corpus may be larger than memory: a writable map would reserve pages.
        whole = GuardedMap(file)
        arrays = list(_arrays(whole, header.start, layout))
    except (OSError, ValueError) as error:
        message = f"{header.path} cannot be mapped into memory ({error}): copy it elsewhere"
        raise FileFormatError(message) from error
    if hasattr(mmap, "MADV_RANDOM"):
        whole.madvise(mmap.MADV_RANDOM)  # lookups do not need the neighbouring pages
    return arrays, WatchedFile(header.path, file, whole)


def _stamp(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_size, status.st_mtime_ns


def _arrays(whole: GuardedMap, start: int, layout: Iterable[tuple[int, Any]]) -> Iterator[NDArray[Any]]:
    for size, kind in layout:
        yield np.frombuffer(whole, dtype=np.dtype(kind).newbyteorder("<"), count=size, offset=start)
        start += _room(size, kind)


def _room(size: int, kind: Any) -> int:
    used = size * np.dtype(kind).itemsize
    return used + -used % ALIGNMENT


def _padded(array: NDArray[Any], kind: Any) -> tuple[Any, bytes]:
    data = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
    return data, bytes(-data.nbytes % ALIGNMENT)


def _disagrees(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} does not hold what its header says: build it again")
