"""Find the files of a corpus, without what ``.gitignore`` names, and read their documents.

A document is a file, or a record of a ``.jsonl`` file.
"""

from __future__ import annotations

import codecs
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from draftwood.errors import RecordError, UsageError
from draftwood.files.lines import read_lines
from draftwood.files.paths import content

FIELDS = ("text", "prompt", "output")
"""Fields of a record that are documents if none are named: ``text``, or else ``prompt`` and ``output``."""

MAX_BYTES = 8 << 20  # larger files of folders are left out: they are data, seldom text that an answer copies

Skipped = Counter[str]  # how often something was left out, by reason; an ignored folder counts once
Rules = tuple[tuple[Path, Any], ...]  # folder and what its .gitignore says, the deepest last


@dataclass(frozen=True, slots=True)
class Source:
    """A file to be read."""

    path: Path
    name: str  # of its document: the path as the user wrote it
    size: int  # in bytes
    records: bool = False  # one JSON object per line, each with documents of its own


def sources(
    paths: Sequence[Path], skipped: Skipped, *, records: bool = False, leave: Iterable[Path] = ()
) -> list[Source]:
    """List the files of a corpus, sorted within each path, each file once and without those to ``leave`` out.

    Folders are walked without ``.git``, links, files larger than `MAX_BYTES`, and what ``.gitignore`` files of
    any level name; with ``records`` their ``.jsonl`` files are read as records. A file that is named itself is
    taken even if it is ignored; one whose name ends in ``.jsonl`` is read as records. Raises `UsageError` for a
    path that is missing, cannot be read, or is neither a file nor a folder.
    """
    taken = {path.resolve() for path in leave}
    found = []
    for path in paths:
        for source in _below(path, skipped, records):
            place = source.path.resolve()
            if place not in taken:
                taken.add(place)
                found.append(source)
    return found


def _below(path: Path, skipped: Skipped, records: bool) -> Iterator[Source]:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): check its name") from error
    if path.is_dir():
        yield from _walk(path.resolve(), path, _rules_above(path.resolve()), skipped, records)
    elif path.is_file():
        yield Source(path, path.as_posix(), size, path.suffix == ".jsonl")
    else:
        raise UsageError(f"{path} is neither a file nor a folder: name what holds the text")


def _walk(folder: Path, shown: Path, rules: Rules, skipped: Skipped, records: bool) -> Iterator[Source]:
    rules = (*rules, *_rules_of(folder))
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        skipped["unreadable"] += 1
        return
    for entry in entries:
        path, name = folder / entry.name, shown / entry.name
        if entry.name == ".git":
            continue
        if entry.is_symlink():
            skipped["links"] += 1
        elif _ignored(path, entry.is_dir(), rules):
            skipped["ignored"] += 1
        elif entry.is_dir():
            yield from _walk(path, name, rules, skipped, records)
        elif entry.is_file():
            as_records, size = records and path.suffix == ".jsonl", 0
            with suppress(OSError):  # gone since; reading it will count it
                size = path.stat().st_size
            if size > MAX_BYTES and not as_records:  # records are read one by one
                skipped["too large"] += 1
            else:
                yield Source(path, name.as_posix(), size, as_records)


def _ignored(path: Path, folder: bool, rules: Rules) -> bool:
    for base, spec in reversed(rules):  # the deepest .gitignore with a matching rule decides
        # git compares bytes, of which ? is one: here each is a character
        name = os.fsencode(path.relative_to(base).as_posix()).decode("latin-1")
        said = spec.check_file(name + "/" * folder).include
        if said is not None:
            return bool(said)
    return False


def _rules_above(folder: Path) -> Rules:
    """Return the rules of the parent folders up to the root of the repository; none outside a repository."""
    found: Rules = ()
    for above in (folder, *folder.parents):
        if above != folder:
            found = (*_rules_of(above), *found)
        if (above / ".git").exists():
            return () if _ignored(folder, True, found) else found  # a user who names an ignored folder wants it
    return ()


def _rules_of(folder: Path) -> Rules:
    place = folder / ".gitignore"
    try:
        raw = b"" if place.is_symlink() else content(place)  # git follows no such link
    except OSError:  # most folders have none
        return ()
    from pathspec import GitIgnoreSpec

    patterns: list[Any] = []
    for line in raw.removeprefix(codecs.BOM_UTF8).decode("latin-1").split("\n"):
        with suppress(ValueError):  # git, too, leaves out patterns that cannot be read
            patterns += GitIgnoreSpec.from_lines([_pattern(line)]).patterns
    return ((folder, GitIgnoreSpec(patterns)),)


_CLOSED = re.compile(r"\\.|\[[!^]?+\]?+[^]]*\]", re.DOTALL)  # escaped, or a whole set of characters


def _pattern(line: str) -> str:
    """Return a line of a .gitignore so that pathspec, which strips white space of all kinds, reads what git reads:
    git strips blanks, but none after a backslash. What git never finds anything by becomes empty."""
    parts = re.findall(r"\\?.", line.removesuffix("\r").partition("\0")[0], re.DOTALL)
    while parts and parts[-1] == " ":
        parts.pop()
    text = "".join(parts)
    if text == "!/" or "[" in _CLOSED.sub("", text):
        return ""
    end = len(parts)
    while end and parts[end - 1][-1].isspace():
        end -= 1
    return "".join(parts[:end]) + "".join(f"[{part[-1]}]" for part in parts[end:])


def documents(source: Source, fields: Sequence[str], skipped: Skipped) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of each document of a file; of records, each of ``fields`` (empty: `FIELDS`) is one.

    A last record that was cut off is left out, which the log tells. Raises `RecordError` for other broken records,
    `UsageError` if none has a field.
    """
    if source.records:
        yield from _records(source, fields, skipped)
        return
    try:
        text = content(source.path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        skipped["unreadable" if isinstance(error, OSError) else "binary"] += 1
        return
    if not text or "\0" in text:
        skipped["binary" if text else "empty"] += 1
    else:
        yield source.name, text


def _records(source: Source, fields: Sequence[str], skipped: Skipped) -> Iterator[tuple[str, str]]:
    held = False
    for number, record in read_lines(source.path):
        named = fields or (FIELDS[:1] if FIELDS[0] in record else FIELDS[1:])
        texts = [(field, record[field]) for field in named if record.get(field) is not None]
        held = held or bool(texts)
        for field, text in texts:
            if not isinstance(text, str):
                place = f"{source.path}, line {number}"
                raise RecordError(f"{place}: {field!r} is no text: choose another field with --field")
            if text:
                yield f"{source.name}:{number}" + f".{field}" * (len(named) > 1), text
        if not any(text for _, text in texts):
            skipped["empty"] += 1
    if not held:
        wanted = ", ".join(fields or FIELDS)
        raise UsageError(f"{source.path}: no record has a field {wanted}: name one with --field")
