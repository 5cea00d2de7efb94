"""Files of n-gram counts: llama.cpp's lookup cache, and the same records after a draftwood header.

llama.cpp's format has no header: per n-gram four int32 tokens (-1 in unused places), an int32 number of pairs, and
as many pairs of int32 token and count, all in the byte order of the machine. Ours is little-endian.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.errors import FileFormatError, UsageError
from draftwood.files.foreign import opened
from draftwood.files.format import compare_tokenizers, is_ours, read_payload, write_file
from draftwood.files.paths import whole_file

Format = Literal["draftwood", "llama"]

KIND = "ngram counts"

_LONGEST = 4


@dataclass(frozen=True, slots=True)
class CountsFile:
    """What a file of counts holds; ``records`` are as of `NgramCounts.records`, each n-gram and token once."""

    path: Path
    format: Format
    tokenizer: str | None  # fingerprint; None if unknown, as in all files of llama.cpp
    records: Ints


def read_counts(path: Path) -> CountsFile:
    """Read a file of either format; only ours has a header.

    Raises `UsageError` if it cannot be opened, `FileFormatError` if it is cut, damaged, or no file of counts.
    """
    with opened(path) as file:
        content = file.read(8)
        if not (ours := is_ours(content)):
            content += file.read()
    if not ours:
        return CountsFile(path, "llama", None, _decode(path, content, "="))
    header, content = read_payload(path, KIND)
    return CountsFile(path, "draftwood", header.tokenizer, _decode(path, content, "<"))


def write_counts(path: Path, records: Ints, *, format: Format = "draftwood", tokenizer: str | None = None) -> None:
    """Write counts, sorted as `NgramCounts.records` returns them; replaces a file whole or not at all.

    llama.cpp's format has no place for the tokenizer's fingerprint and no checksum. Raises `UsageError` without
    records, as llama.cpp refuses empty files, and `FileFormatError` if the file cannot be written.
    """
    if not len(records):
        raise UsageError(f"nothing was counted, so there is nothing to write to {path}: give longer texts")
    stream = _encode(records)
    if format == "llama":
        with whole_file(path) as beside:
            beside.write_bytes(stream.tobytes())
        return
    about = {"ngrams": int(len(stream) - 2 * len(records)) // (_LONGEST + 1), "continuations": len(records)}
    known = {} if tokenizer is None else {"tokenizer": tokenizer}
    write_file(path, KIND, about | known, [stream.astype("<i4")])


def common_tokenizer(files: Iterable[CountsFile]) -> str | None:
    """Return the tokenizer that the files name, or None; `VocabularyError` if they name different ones."""
    known: str | None = None
    for file in files:
        if known is not None:
            compare_tokenizers(str(file.path), file.tokenizer, known)
        known = file.tokenizer or known
    return known


def _encode(records: Ints) -> Ints:
    """The stream of int32 that both formats hold: n-gram, number of pairs, pairs."""
    new = np.ones(len(records), dtype=np.bool_)
    new[1:] = (records[1:, :_LONGEST] != records[:-1, :_LONGEST]).any(axis=1)
    first = np.flatnonzero(new)
    pairs = np.diff(np.append(first, len(records)))
    stream = np.empty(5 * len(first) + 2 * len(records), dtype=np.int32)
    head = 5 * np.arange(len(first)) + 2 * first
    stream[head[:, None] + np.arange(_LONGEST)] = records[first, :_LONGEST]
    stream[head + _LONGEST] = pairs
    pair = 5 * np.cumsum(new) + 2 * np.arange(len(records))
    stream[pair], stream[pair + 1] = records[:, _LONGEST], records[:, _LONGEST + 1]
    return stream


def _decode(path: Path, content: bytes, order: str) -> Ints:
    """Check and unpack a stream; of an n-gram or token that occurs twice the first counts, as in llama.cpp."""
    if not content:
        raise FileFormatError(f"{path} is empty: give one that holds counts")
    stream = np.frombuffer(content[: len(content) // 4 * 4], dtype=f"{order}i4").astype(np.int32)
    heads = _heads(path, stream, cut=len(content) % 4 > 0)
    sizes = stream[heads + _LONGEST]
    grams = stream[heads[:, None] + np.arange(_LONGEST)]
    used = grams >= 0
    if (grams < -1).any() or not used[:, 0].all() or (used[:, 1:] > used[:, :-1]).any():
        raise _foreign(path, "an n-gram must be tokens, then -1")
    owner = np.repeat(np.arange(len(heads)), sizes)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = heads[owner] + _LONGEST + 1 + 2 * place
    records = np.column_stack((grams[owner], stream[at], stream[at + 1])).astype(np.int32)
    if (records[:, _LONGEST] < 0).any() or (records[:, _LONGEST + 1] <= 0).any():
        raise _foreign(path, "tokens must not be negative, and counts at least 1")
    return _first_of_each(records, owner)


def _heads(path: Path, stream: Ints, *, cut: bool) -> NDArray[np.int64]:
    """Where each n-gram begins."""
    values, end, at, heads = stream.data, len(stream), 0, []
    while at + _LONGEST < end:
        pairs = values[at + _LONGEST]
        if pairs <= 0:
            raise _foreign(path, "an n-gram must have at least one pair")
        heads.append(at)
        at += _LONGEST + 1 + 2 * pairs
    if at != end or cut:
        raise FileFormatError(
            f"{path} was cut off, or is no file of n-gram counts: copy it again, or make it again"
        )
    return np.array(heads, dtype=np.int64)


def _first_of_each(records: Ints, owner: NDArray[np.int64]) -> Ints:
    """Sort the records; keep each n-gram's first owner and, of that, the first record of each token."""
    order = np.lexsort((records[:, _LONGEST], owner, *records[:, _LONGEST - 1 :: -1].T))  # stable
    records, owner = records[order], owner[order]
    new = np.ones((len(records), _LONGEST + 1), dtype=np.bool_)
    new[1:] = records[1:, : _LONGEST + 1] != records[:-1, : _LONGEST + 1]
    first = np.maximum.accumulate(np.where(new[:, :_LONGEST].any(axis=1), np.arange(len(records)), 0))
    return records[new.any(axis=1) & (owner == owner[first])]


def _foreign(path: Path, why: str) -> FileFormatError:
    return FileFormatError(f"{path} is no file of n-gram counts, or it is damaged ({why}): make it again")
