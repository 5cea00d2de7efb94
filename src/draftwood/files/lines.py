"""Reads and writes files of JSON lines, compressed where the name ends in .zst."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from draftwood.errors import RecordError, UsageError
from draftwood.files.foreign import json_object, mended, opened
from draftwood.files.paths import is_stream, stream, whole_file

log = logging.getLogger("draftwood")

_LONGEST = 1 << 26  # characters of a line: what has more is no record, and may have no end


def read_lines(
    path: Path, on_torn: Callable[[Path, str], None] | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number from 1, object) of a file of JSON objects; blank lines are skipped. A last line that was
    cut off is left out, and ``on_torn`` (by default a warning in the log) gets file and place. Raises `UsageError`
    if the file cannot be opened or decompressed, `RecordError` for a line that is no JSON object."""
    some = False
    for number, line in enumerate(texts(path), 1):
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


def texts(path: Path, *, skip: bool = False) -> Iterator[str]:
    """Yield the lines of a file with their ends, bytes that are no UTF-8 as halves of characters. A line that is
    too long is an error; with ``skip`` it is an empty line of an ordinary file, which the log says, since a device
    may have no end. Raises as `read_lines` does."""
    raw: BinaryIO
    with opened(path, streams=True) as raw:
        if compressed(path):
            raw = zstandard().ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        try:
            with io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape") as text:
                while line := text.readline(_LONGEST):
                    if len(line) == _LONGEST:
                        what = f"{path} has a line of more than {_LONGEST:,} characters"
                        if not (skip and path.is_file()):
                            raise RecordError(f"{what}: mend it")
                        log.warning("%s: it is left out", what)
                        while len(line) == _LONGEST and not line.endswith("\n"):
                            line = text.readline(_LONGEST)
                        line = "\n"
                    yield line
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
    text = mended("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)).encode()
    return zstandard().ZstdCompressor().compress(text) if compressed(path) else text


def write_whole(path: Path, lines: Iterable[Mapping[str, Any]]) -> None:
    """Write a file completely or not at all; raises `RecordError` where it cannot be written."""
    with whole_file(path, error=RecordError) as new:
        new.write_bytes(_encoded(path, lines))


class Appender:
    """Appends pieces of lines to a file, each completely or not at all; creates the file if it is missing. What
    `is_stream` gets them as they come. Raises `OSError` if it cannot be opened, `RecordError` if it cannot be
    written; what was written before stays."""

    def __init__(self, path: Path) -> None:
        self._path, self._streams = path, is_stream(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = stream(path, buffering=0) if self._streams else path.open("ab", buffering=0)

    def write(self, lines: Iterable[Mapping[str, Any]]) -> None:
        piece, end = memoryview(_encoded(self._path, lines)), 0 if self._streams else self._file.tell()
        try:
            while piece:
                piece = piece[self._file.write(piece) :]
        except OSError as error:
            advice = "choose another place"
            if not self._streams:
                self._file.truncate(end)
                advice = "what was measured before is in it; make room and run the same command again to go on"
            raise RecordError(f"{self._path} cannot be written ({error.strerror}): {advice}") from error

    def close(self) -> None:
        self._file.close()
