"""Reads and writes files of JSON lines, compressed where the name ends in .zst."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from draftwood.errors import RecordError, UsageError
from draftwood.files.foreign import json_object, opened
from draftwood.files.paths import whole_file

log = logging.getLogger("draftwood")


def read_lines(
    path: Path, on_torn: Callable[[Path, str], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) of a file of JSON objects; blank lines are skipped. A last line that was
    cut off is left out, and ``on_torn`` (by default a warning in the log) gets file and place. Raises `UsageError`
    if the file cannot be opened or decompressed, `RecordError` for a line that is no JSON object."""
    some = False
    for number, line in enumerate(_texts(path), 1):
        if not line.strip():
            continue
        try:
            found = json_object(line.encode("utf-8", "surrogateescape"), f"{path}, line {number}", RecordError)
        except RecordError:
            if not some or line.endswith("\n"):  # a first line, or a whole one, was not cut off
                raise
            (on_torn or warn_of_torn)(path, f"line {number}")
            return
        some = True
        yield number, found


def warn_of_torn(path: Path, where: str) -> None:
    """Warn in the log that the last record of a file is incomplete."""
    log.warning("%s ends in a record that was cut off (%s): it is left out", path, where)


def _texts(path: Path) -> Iterator[str]:
    raw: BinaryIO
    with opened(path) as raw:
        if compressed(path):
            raw = zstandard().ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        try:
            with io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape") as text:
                yield from text
        except OSError as error:
            raise RecordError(f"{path} cannot be read to its end ({error.strerror})") from error
        except Exception as error:
            if type(error).__name__ != "ZstdError":  # of a library that may not be installed
                raise
            raise RecordError(f"{path} is damaged or not compressed with zstd ({error})") from error


def compressed(path: Path) -> bool:
    """Whether the name asks for zstd."""
    return path.suffix == ".zst"


def zstandard() -> Any:
    """Import the library, or raise `UsageError` that says how to get it."""
    try:
        import zstandard
    except ImportError as error:
        advice = 'run pip install "draftwood[measure]", or drop the ending'
        raise UsageError(f"files named .zst need a library: {advice}") from error
    return zstandard


def _encoded(path: Path, lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return lines as bytes, compressed if the name asks for it; such pieces may be concatenated in a file."""
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
    return zstandard().ZstdCompressor().compress(text) if compressed(path) else text


def write_whole(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a file completely or not at all; raises `RecordError` where it cannot be written."""
    with whole_file(path, error=RecordError) as new:
        new.write_bytes(_encoded(path, lines))


class Appender:
    """Appends pieces of lines to a file, each completely or not at all; creates the file if it is missing. Raises
    `RecordError` if it cannot be opened or written; what was written before stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise RecordError(f"{path} cannot be written ({error.strerror}): choose another place") from error

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        piece, end = memoryview(_encoded(self._path, lines)), self._file.tell()
        try:
            while piece:
                piece = piece[self._file.write(piece) :]
        except OSError as error:
            self._file.truncate(end)
            raise RecordError(
                f"{self._path} cannot be written ({error.strerror}): what was measured before is in it; make room "
                "and run the same command again to go on"
            ) from error

    def close(self) -> None:
        self._file.close()
