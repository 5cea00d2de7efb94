"""Read the documents of a corpus: one per file, or one per record of a ``.jsonl`` file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from draftwood.corpora.walk import BINARY, EMPTY, UNREADABLE, Source
from draftwood.errors import RecordError, UsageError
from draftwood.files.foreign import json_object

FIELDS = ("text", "prompt", "output")
"""Fields of a record that are documents if none are named: ``text``, or else ``prompt`` and ``output``."""


def documents(source: Source, fields: Sequence[str], skipped: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each document of a file; of records, each of ``fields`` (empty: `FIELDS`) is one.
    ``skipped`` counts what is binary, unreadable or empty. `RecordError` for broken records, `UsageError` if none
    has a field.
    """
    if source.records:
        yield from _records(source, fields, skipped)
        return
    try:
        data = source.path.read_bytes()
    except OSError:
        skipped[UNREADABLE] += 1
        return
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        skipped[BINARY] += 1
    elif not text:
        skipped[EMPTY] += 1
    else:
        yield source.name, text


def _records(source: Source, fields: Sequence[str], skipped: Counter[str]) -> Iterator[tuple[str, str]]:
    held = False
    for number, record in _objects(source.path):
        named = fields or (FIELDS[:1] if FIELDS[0] in record else FIELDS[1:])
        texts = [(field, record[field]) for field in named if record.get(field) is not None]
        held = held or bool(texts)
        for field, text in texts:
            if not isinstance(text, str):
                place = f"{source.path}, line {number}"
                raise RecordError(f"{place}: {field!r} is no text: choose another field with --field")
            if text:
                name = f"{source.name}:{number}" + f".{field}" * (len(named) > 1)
                yield name, text
        if not any(text for _, text in texts):
            skipped[EMPTY] += 1
    if not held:
        wanted = ", ".join(fields or FIELDS)
        raise UsageError(f"{source.path}: no record has a field {wanted}: name one with --field")


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield number, _object(path, number, line)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its name") from error


def _object(path: Path, number: int, line: bytes) -> dict[str, Any]:
    return json_object(line, f"{path}, line {number}", RecordError)
