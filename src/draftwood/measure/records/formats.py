"""Which files hold recorded answers. Each is known by what stands in it, whatever its name is."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from draftwood.errors import RecordError, UsageError
from draftwood.files.foreign import LeftOut, json_object, parsed
from draftwood.files.lines import texts
from draftwood.measure.records.agents import ClaudeCode, Codex
from draftwood.measure.records.chats import Exports, FineTuning
from draftwood.measure.records.conversations import Conversations
from draftwood.measure.records.records import Row
from draftwood.measure.records.server_logs import LlamaCpp, Vllm

log = logging.getLogger("draftwood")

FORMATS: tuple[type[Conversations], ...] = (Exports, FineTuning, ClaudeCode, Codex, LlamaCpp, Vllm)
"""The first that knows a line takes it. Lines that none knows are records, or prompts with their answers."""

SHAPES = (
    "simulate takes JSON lines with prompt and output (or messages and output, prompt_ids and output_ids, request "
    f"and response), files that draftwood wrote, {', '.join(kind.told for kind in FORMATS)}, and folders of these"
)

_OURS = ({"row"}, {"request"}, {"prompt_ids"}, {"prompt", "output"}, {"messages", "output"})
"""Fields of lines that are answers as they stand."""
_BEGINNING = 10_000  # lines before a server's log is known as one
_DOCUMENT = re.compile(r"\s*(\[\s*(\{|\[|$|\])|\{\s*$)")  # how JSON begins that is not a line for each object


class LogReader:
    """Reads one log, or all files of a folder, whose hidden files and folders are left alone."""

    def __init__(self, path: Path, left_out: LeftOut) -> None:
        self._path, self._left_out = path, left_out
        self._readers = [kind() for kind in FORMATS]

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield the number of a line, after the name of its file in a folder, and the line, if no format knows it;
        then name and answer of what the formats found. Broken lines are left out, and noted.

        Raises `UsageError` if a file cannot be opened or decompressed, `RecordError` for one that cannot be read
        to its end and for a document of JSON without chats; a folder goes on with the next file.
        """
        if not self._path.is_dir():
            yield from self._file(self._path, "")
        for path in sorted(self._path.rglob("[!.]*")) if self._path.is_dir() else ():
            name = path.relative_to(self._path)
            if path.is_file() and not any(part.startswith(".") for part in name.parts):
                try:
                    yield from self._file(path, f"{name}:")
                except (RecordError, UsageError) as error:
                    self._left_out.note(str(name), error)
        for reader in self._readers:
            rows, held = reader.rows(), reader.answers()
            if len(rows) < held:
                log.warning("%s: %d answers of %d are taken, evenly spread", self._path, len(rows), held)
            yield from ((row["name"].removeprefix("line "), row) for row in rows)

    def why(self) -> str:
        """Return why there was no answer, or else what can be read."""
        return next(filter(None, (reader.lacking() for reader in self._readers)), SHAPES)

    def _file(self, path: Path, prefix: str) -> Iterator[tuple[str, Row]]:
        for reader in self._readers:
            reader.begin()
        lines = texts(path, skip=True)
        begun = list(islice(lines, 1))
        if begun and _DOCUMENT.match(begun[0]):
            whole = parsed("".join([*begun, *lines]).encode("utf-8", "surrogateescape"), str(path), RecordError)
            if not self._taken(f"{prefix}chat", whole):
                raise RecordError(f"{path} holds no chats: {SHAPES}")
            return
        waiting: list[tuple[str, str]] = []  # what may yet turn out to be the beginning of a server's log
        for number, line in enumerate(chain(begun, lines), 1):
            place = f"{prefix}{number}"
            try:
                row = json_object(line.encode("utf-8", "surrogateescape"), "", RecordError)
            except RecordError as error:
                if self._taken(f"line {place}", line):
                    waiting.clear()
                elif line.strip():
                    waiting.append((place, str(error).lstrip(": ")))
            else:
                if any(fields <= row.keys() for fields in _OURS) or not self._taken(f"line {place}", row):
                    yield place, row
            if len(waiting) > _BEGINNING:
                self._note(waiting)
        self._note(waiting)

    def _taken(self, where: str, found: Any) -> bool:
        return any(reader.take(where, found) for reader in self._readers)

    def _note(self, waiting: list[tuple[str, str]]) -> None:
        for place, why in waiting:
            self._left_out.note(place, why)
        waiting.clear()
