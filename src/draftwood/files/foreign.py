"""Reads what others wrote: text of any encoding, JSON of any shape; one sentence says what cannot be used."""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

from draftwood.errors import UsageError
from draftwood.files import paths

log = logging.getLogger("draftwood")

_SHOWN = 80  # characters of a line in an error
_REASONS = 3
_MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
_SAMPLE = 1 << 12  # bytes that are looked at


def opened(path: Path, *, streams: bool = False) -> BufferedReader:
    """Open a file for reading as `draftwood.files.paths.opened` does; `UsageError` where that cannot be."""
    try:
        return paths.opened(path, streams=streams)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its name") from error


def text_of(raw: bytes, where: str, kind: type[Exception]) -> str:
    """Return bytes as text, without a byte order mark; else raises ``kind``, naming them ``where``."""
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise kind(f"{where} is no UTF-8 text: {_advice(raw)}") from error
    if "\0" in text:
        wide = _encoding(raw).startswith("UTF-16")
        raise kind(f"{where} is no UTF-8 text: {_advice(raw)}" if wide else f"{where} is binary: give a text file")
    return text


def given_text(raw: bytes, where: str, kind: type[Exception]) -> str:
    """Return `text_of` a file or of standard input without one line end at its end, which editors and echo add."""
    return re.sub(r"\r?\n\Z", "", text_of(raw, where, kind))


def _advice(raw: bytes) -> str:
    found = _encoding(raw)
    if not found:
        return "it is binary, so give a text file"
    return f"its bytes look like {found}, so convert it first (iconv -f {found.partition(' ')[0]} -t UTF-8)"


def _encoding(raw: bytes) -> str:
    """Return the name of the likely encoding; empty where the bytes are no text."""
    if marked := next((name for mark, name in _MARKS.items() if raw.startswith(mark)), ""):
        return marked
    sample = raw[:_SAMPLE]
    for first, name in ((1, "UTF-16LE"), (0, "UTF-16BE")):  # every other byte of most letters is 0
        if 3 * sample[first::2].count(0) > len(sample) and not sample[1 - first :: 2].count(0):
            return name
    odd = sum(byte < 32 and byte not in b"\t\n\r\f\x1b" for byte in sample)
    return "" if odd else "WINDOWS-1252 (or Latin-1)"


def whole(text: str, where: str, kind: type[Exception]) -> str:
    """Return a text as it is; raises ``kind`` where it holds half a character, which no tokenizer can read.

    Python turns bytes of the command line that are no UTF-8 into such halves: the error then speaks of the bytes.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        with suppress(UnicodeEncodeError):  # where not all of the halves are such bytes
            text_of(text.encode("utf-8", "surrogateescape"), where, kind)
        half = f"\\u{ord(text[error.start]):04x} at character {error.start + 1}"
        raise kind(
            f"{where} holds half a character ({half}): give both halves, or neither (text.encode('utf-16', "
            "'surrogatepass').decode('utf-16', 'replace') mends it)"
        ) from error
    return text


def json_object(text: str | bytes, where: str, kind: type[Exception]) -> dict[str, Any]:
    """Parse a JSON object as `parsed` does; raises ``kind`` for everything else."""
    found = parsed(text, where, kind)
    if not isinstance(found, dict):
        raise kind(f"{where}: {type(found).__name__} instead of an object: mend it")
    return found


def parsed(text: str | bytes, where: str, kind: type[Exception]) -> Any:
    """Parse JSON, with U+FFFD for halves of characters; raises ``kind``, naming it ``where``, for what is none."""
    if isinstance(text, bytes):
        text = text_of(text, where, kind)
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise kind(f"{where}: JSON that is nested too deeply: mend or remove it") from error
    except ValueError as error:
        raise kind(f"{where}: no JSON ({text.strip()[:_SHOWN]!r}): mend or remove the line") from error
    if "\\ud" in text.lower():
        found = json.loads(mended(json.dumps(found, ensure_ascii=False)))
    return found


def mended(text: str) -> str:
    """Return text with U+FFFD for halves of characters, which Python makes of a file's name that is no UTF-8."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class LeftOut:
    """Counts the lines of a log that cannot be used, and keeps the reasons of the first."""

    def __init__(self, path: Path, kind: type[Exception]) -> None:
        self._path, self._kind, self._count = path, kind, 0
        self._reasons: dict[str, list[str]] = {}

    def note(self, number: int | str, why: Exception | str) -> None:
        """Leave out a line, or what else has this name."""
        self._count += 1
        if self._count <= _REASONS:
            self._reasons.setdefault(str(why), []).append(str(number))

    def say(self, used: int, advice: str = "") -> None:
        """Say in the log what was left out; raises the error's kind, with advice, where nothing was ``used``."""
        if not self._count:
            return
        reasons = "; ".join(f"line{'s' * (len(n) > 1)} {', '.join(n)}: {why}" for why, n in self._reasons.items())
        if not used:
            raise self._kind(f"{self._path}, {reasons}{advice and f'; {advice}'}")
        log.warning("%s: %d lines of %d are left out (%s)", self._path, self._count, self._count + used, reasons)
