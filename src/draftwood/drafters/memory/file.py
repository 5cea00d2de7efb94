"""Files of a memory: its answers in the order in which they were added; the index is not stored.

The payload, little-endian, for n answers: int64[n] lengths, int64[n] numbers of namespaces (the description names
them), float64[n] worths relative to clock 0, int32[sum of lengths] ids. The description holds the other fields of
`MemoryFile`; other processes that save there forget the forgotten namespaces as well.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from draftwood.contracts import Ints
from draftwood.errors import FileFormatError
from draftwood.files.format import read_payload, write_file

KIND = "memory"
MOST_TOKENS = 1 << 28  # places are int32, and an index holds up to twice as many while it is rebuilt


class Saved(NamedTuple):
    """An answer in a file."""

    namespace: str
    ids: Ints  # none negative
    worth: float  # how useful it was (`draftwood.drafters.memory.answers`), relative to clock 0


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """What a file of a memory holds."""

    answers: Sequence[Saved]
    fingerprint: str | None = None  # of the tokenizer whose ids these are
    tokens: int | None = None  # size of the memory that was saved
    forgotten: Mapping[str, float] = field(default_factory=dict)  # `tombstone` -> when, in seconds since 1970


def tombstone(namespace: str) -> str:
    """Return a digest of the name of a forgotten namespace; the name itself must not stay in the file."""
    return hashlib.blake2b(namespace.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def write_memory(path: Path, memory: MemoryFile) -> None:
    """Replace a file, whole or (`FileFormatError`) not at all; a new one may be read by nobody but its owner.

    The caller holds `draftwood.files.paths.alone`.
    """
    answers = memory.answers
    names = {name: number for number, name in enumerate(dict.fromkeys(answer.namespace for answer in answers))}
    about = {
        "tokenizer": memory.fingerprint, "tokens": memory.tokens, "forgotten": dict(memory.forgotten),
        "answers": len(answers), "namespaces": list(names),
    }  # fmt: skip
    columns = (
        np.array([len(answer.ids) for answer in answers], dtype="<i8"),
        np.array([names[answer.namespace] for answer in answers], dtype="<i8"),
        np.array([answer.worth for answer in answers], dtype="<f8"),
    )
    write_file(path, KIND, about, itertools.chain(columns, _texts(answers)), private=True)


def _texts(answers: Sequence[Saved]) -> Iterator[Ints]:
    return (np.ascontiguousarray(answer.ids, dtype="<i4") for answer in answers)


def read_memory(path: Path) -> MemoryFile:
    """Return what a file holds.

    Raises `UsageError` if it cannot be opened, `FileFormatError` if it is no memory, newer or damaged.
    """
    header, payload = read_payload(path, KIND)
    names, count = header.about.get("namespaces"), header.about.get("answers")
    tokens, forgotten = header.about.get("tokens"), header.about.get("forgotten", {})
    if not (
        (tokens is None or (isinstance(tokens, int) and 1 <= tokens <= MOST_TOKENS))
        and (isinstance(forgotten, dict) and all(map(_is_time, forgotten.values())))
        and (isinstance(names, list) and all(isinstance(name, str) for name in names))
        and (isinstance(count, int) and 0 <= 24 * count <= len(payload))
    ):
        raise _foreign(path)
    kinds = ("<i8", "<i8", "<f8")
    lengths, owners, worths = (np.frombuffer(payload, kind, count, 8 * count * i) for i, kind in enumerate(kinds))
    sound = (lengths >= 1) & (lengths <= len(payload)) & np.isfinite(worths)
    sound &= (owners >= 0) & (owners < len(names))
    if not sound.all() or 4 * int(lengths.sum()) != len(payload) - 24 * count:
        raise _foreign(path)
    ids = np.frombuffer(payload, "<i4", offset=24 * count)
    if (ids < 0).any():
        raise _foreign(path)
    pieces = np.split(ids.astype(np.int32, copy=False), np.cumsum(lengths)[:-1]) if count else []
    whose = [names[owner] for owner in owners.tolist()]
    return MemoryFile(list(map(Saved, whose, pieces, worths.tolist())), header.tokenizer, tokens, forgotten)


def _is_time(when: Any) -> bool:
    return isinstance(when, int | float) and abs(when) < 1e18  # neither infinite nor NaN


def _foreign(path: Path) -> FileFormatError:
    return FileFormatError(f"{path} holds no answers that belong together: delete it, or restore a copy of it")
