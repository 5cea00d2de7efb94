"""The container of draftwood's own binary files: a checked header, then the payload.

Layout, all numbers little-endian::

    8 bytes   MAGIC
    4         version of the kind's format, uint32
    4         bytes of the description, uint32
    8         bytes of the payload, uint64
    16        BLAKE2b of the payload
    16        BLAKE2b of everything else in the header, the description included
    ...       description: JSON (kind, tokenizer, ...), padded with blanks to a multiple of 64 bytes in all
    ...       payload; it starts aligned, so that arrays in it can be mapped into memory
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from draftwood.errors import FileFormatError, UsageError, VocabularyError
from draftwood.files.foreign import opened
from draftwood.files.paths import is_stream, whole_file

MAGIC = b"\x89DWOOD\r\n"  # no text begins like this, and a copy with translated line ends is noticed
ALIGNMENT = 64

_FIXED = struct.Struct("<8sIIQ16s16s")
_DIGEST = 16


@dataclass(frozen=True, slots=True)
class Header:
    """What stands before the payload, checked."""

    path: Path
    kind: str  # "ngram counts", "corpus"
    version: int  # of the kind's format
    about: Mapping[str, Any]  # the description as it was given to the writer; JSON values
    start: int  # byte at which the payload begins
    length: int  # bytes of the payload
    checksum: bytes  # BLAKE2b of the payload, 16 bytes

    @property
    def tokenizer(self) -> str | None:
        """Fingerprint of the tokenizer whose ids the file holds; None if the writer gave none."""
        return self.about.get("tokenizer")

    def verify(self) -> None:
        """Read the whole payload; raise `FileFormatError` if it is damaged, or the file was replaced."""
        with opened(self.path) as file:
            fixed = file.read(_FIXED.size)
            file.seek(self.start)
            digest = hashlib.file_digest(file, partial(hashlib.blake2b, digest_size=_DIGEST))
        if digest.digest() != self.checksum:
            if len(fixed) == _FIXED.size and _FIXED.unpack(fixed)[4] != self.checksum:
                raise FileFormatError(f"{self.path} was replaced since it was opened: open it again")
            raise damaged(self.path)


def compare_tokenizers(what: str, theirs: str | None, ours: str) -> None:
    """Raise `VocabularyError` if the fingerprints differ; ``theirs`` may be None, which is not compared."""
    if theirs not in (None, ours):
        raise VocabularyError(
            f"{what} holds the ids of another tokenizer ({theirs}, here {ours}): make it again with this one, or "
            "give the model that it was made for"
        )


def write_file(
    path: Path, kind: str, about: Mapping[str, Any], payload: Iterable[Any], *, version: int = 1
) -> None:
    """Write a file of one of our formats, whole or not at all; raises and replaces as `whole_file` does.

    ``about`` holds JSON values; its ``"tokenizer"`` is what `compare_tokenizers` takes. ``payload`` yields
    bytes or contiguous arrays, which are written one by one and need not fit into memory together.
    """
    digest, length = hashlib.blake2b(digest_size=_DIGEST), 0
    with whole_file(path) as new, new.open("wb") as file:
        file.write(header_bytes(kind, about, 0, bytes(_DIGEST), version=version))
        for piece in payload:
            data = memoryview(piece)
            if data.nbytes:  # a view of an empty array cannot be cast
                data = data.cast("B")
                digest.update(data)
                file.write(data)
                length += data.nbytes
        file.seek(0)
        file.write(header_bytes(kind, about, length, digest.digest(), version=version))


def header_bytes(kind: str, about: Mapping[str, Any], length: int, checksum: bytes, *, version: int = 1) -> bytes:
    """Return the header of a payload of ``length`` bytes; its own size depends on ``kind`` and ``about`` alone."""
    text = json.dumps({**about, "kind": kind}, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(_FIXED.size + len(text)) % ALIGNMENT)
    whole = _FIXED.pack(MAGIC, version, len(text), length, checksum, bytes(_DIGEST)) + text
    return whole[: _FIXED.size - _DIGEST] + _digest(whole) + text


@contextmanager
def open_payload(path: Path, kind: str, *, version: int = 1) -> Iterator[tuple[Header, BinaryIO]]:
    """Give the checked header of a file of this kind, and the file open at its payload, of which only the size is
    checked. Both are of one file, even if another one replaces it meanwhile.

    Raises `UsageError` if the file is missing or cannot be read, and `FileFormatError` if it is foreign, cut off,
    damaged, of another kind, or of a newer version than ``version``.
    """
    with opened(path) as file:
        header = _read(path, file, version)
        if header.kind != kind:
            raise FileFormatError(f"{path} is another of draftwood's files ({header.kind}): give one of {kind}")
        file.seek(header.start)
        yield header, file


def kind_of(path: Path) -> str | None:
    """Return the kind of a file of any version, or None if it is not in our format.

    Raises what `open_payload` raises for files that are missing, cut off or damaged.
    """
    with opened(path) as file:
        ours = is_ours(file.read(len(MAGIC)))
        file.seek(0)
        return _read(path, file, None).kind if ours else None


def refuse_to_replace(path: Path, kind: str) -> None:
    """Raise `UsageError` if an output of this kind would replace a folder, or another file that is not empty."""
    try:
        if is_stream(path) or not path.exists() or not path.stat().st_size:
            return
        other = kind_of(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): choose another -o") from error
    except FileFormatError as error:
        raise UsageError(f"{path} is there and is no whole file of {kind}: choose another -o") from error
    if other != kind:
        raise UsageError(f"{path} is there and is no file of {kind}: choose another -o")


def _read(path: Path, file: BinaryIO, version: int | None) -> Header:
    cut = FileFormatError(f"{path} was cut off: copy it again, or make it again")
    fixed = file.read(_FIXED.size)
    if not is_ours(fixed):
        raise FileFormatError(f"{path} is no file of draftwood: give one that it wrote")
    if len(fixed) < _FIXED.size:
        raise cut
    _, found, size, length, checksum, expected = _FIXED.unpack(fixed)
    if version is not None and found > version:
        raise FileFormatError(
            f"{path} is of version {found} and this draftwood reads up to {version}: upgrade it, or make the "
            "file again"
        )
    actual = os.fstat(file.fileno()).st_size - _FIXED.size
    if actual < size:
        raise cut
    text = file.read(size)
    if _digest(fixed + text) != expected:
        raise damaged(path)
    if actual < size + length:
        raise cut
    if actual > size + length:
        raise FileFormatError(f"{path} goes on after its end: make it again")
    try:
        about = dict(json.loads(text))
        named, tokenizer = about.pop("kind"), about.get("tokenizer")
        if not isinstance(named, str) or not isinstance(tokenizer, str | None):
            raise TypeError(named, tokenizer)
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # the checksum was made to fit
        raise FileFormatError(f"{path} has a description that cannot be read: make it again") from error
    return Header(path, named, found, about, _FIXED.size + size, length, checksum)


def read_payload(path: Path, kind: str, *, version: int = 1) -> tuple[Header, bytes]:
    """Return header and payload, both checked; raises what `open_payload` does."""
    with open_payload(path, kind, version=version) as (header, file):
        payload = file.read(header.length)
    if hashlib.blake2b(payload, digest_size=_DIGEST).digest() != header.checksum:
        raise damaged(path)
    return header, payload


def is_ours(start: bytes) -> bool:
    """Return whether these first bytes are those of our format; a beginning of `MAGIC` counts, as a cut file."""
    return bool(start) and start[: len(MAGIC)] == MAGIC[: len(start)]


def _digest(header: bytes) -> bytes:
    """Return the checksum of a header, without the bytes that hold it."""
    hashed = hashlib.blake2b(header[: _FIXED.size - _DIGEST], digest_size=_DIGEST)
    hashed.update(header[_FIXED.size :])
    return hashed.digest()


def damaged(path: Path) -> FileFormatError:
    """Return the error for a file whose checksum is wrong."""
    return FileFormatError(f"{path} is damaged (its checksum does not fit): copy it again, or make it again")
