"""A corpus: indexed files that drafts are copied from, in memory-mapped suffix arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.drafters.corpus.file import BORDER, Documents, Part, WatchedFile, open_corpus
from draftwood.errors import IntegrityError
from draftwood.files.format import Header

_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_RATES = np.empty(0, dtype=np.float32)
_NO_NODES = np.empty((3, 0), dtype=np.int32)


@dataclass(frozen=True, slots=True)
class Match:
    """Occurrences in a corpus of the longest suffix of a text."""

    length: int  # tokens of the suffix; 0 if not even the last token occurs
    count: int
    intervals: tuple[tuple[int, int], ...]  # of the suffix array of each part


@dataclass(frozen=True, eq=False)
class Corpus:
    """Documents of token ids, indexed: it finds where any sequence of tokens occurs.

    Made by `open` from a file of ``draftwood corpus build``, or by `of` from ids. Immutable: requests and threads
    may share it. The time of a lookup grows with the logarithm of its size.

    Attributes
    ----------
    parts
        Tokens and suffix arrays.
    documents
        Their names and places.
    fingerprint
        Fingerprint of the tokenizer whose ids these are (`draftwood.engines.tokens.fingerprint`); None if unknown.
    model
        Name of a model with that tokenizer.
    header
        The header of its file; None for a corpus in memory.
    """

    parts: tuple[Part, ...] = dataclasses.field(repr=False)
    documents: Documents = dataclasses.field(repr=False)
    fingerprint: str | None = None
    model: str | None = None
    header: Header | None = dataclasses.field(default=None, repr=False)
    _file: WatchedFile | None = dataclasses.field(default=None, init=False, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Open a corpus file without reading all of it; raises `UsageError` or `FileFormatError`."""
        header, parts, documents, watched = open_corpus(Path(path))
        model = header.about.get("model")
        found = cls(parts, documents, header.tokenizer, model if isinstance(model, str) else None, header)
        object.__setattr__(found, "_file", watched)
        return found

    @classmethod
    def of(cls, documents: Iterable[Sequence[int] | NDArray[Any]], *, fingerprint: str | None = None) -> Corpus:
        """Index documents of ids in memory, by plain sorting: for tests and small texts."""
        texts = [np.asarray(document, dtype=np.int32) for document in documents]
        starts = np.cumsum([0, *(len(text) + 1 for text in texts)], dtype=np.int64)[:-1]
        border = np.full(1, BORDER, dtype=np.int32)
        tokens = np.concatenate([_NO_TOKENS, *(piece for text in texts for piece in (text, border))])
        keys = tokens.tolist()
        order = sorted(np.flatnonzero(tokens != BORDER).tolist(), key=lambda place: keys[place:])
        part = Part(tokens, np.array(order, dtype=np.int32))
        return cls((part,), Documents.listed([str(i) for i in range(len(texts))], starts), fingerprint)

    def __len__(self) -> int:
        """Tokens of all documents."""
        return sum(len(part.suffixes) for part in self.parts)

    @property
    def path(self) -> Path | None:
        """The file; None for a corpus in memory."""
        return self.header.path if self.header else None

    @property
    def _is_whole(self) -> bool:
        """Whether its file is as it was opened; the log says once that it is not."""
        return self._file is None or self._file.is_whole()

    def match(self, context: Sequence[int] | NDArray[Any], most: int = 32) -> Match:
        """Find the longest suffix of ``context``, of at most ``most`` tokens, within a document.

        `FileFormatError` if its file was written to.
        """
        if self._file is not None:
            self._file.check()
        from draftwood.drafters.corpus.kernel import grow  # loads kernels

        pattern = np.array(context[-most:] if most else (), dtype=np.int32)
        # The length and interval of each part's longest suffix are found by growing a tree without nodes.
        arrays = [(part.tokens, part.suffixes) for part in self.parts]
        found = [grow(pair, pattern, (most, 1, 1), _NO_RATES, _NO_NODES) for pair in arrays]
        length = max((best for _, best, _, _ in found), default=0)
        intervals = tuple((low, high) if best == length and length else (0, 0) for _, best, low, high in found)
        return Match(length, sum(high - low for low, high in intervals), intervals)

    def occurrences(self, match: Match, limit: int) -> list[tuple[str, int]]:
        """Return at most ``limit`` documents that hold a match: name, and where in it the match begins."""
        found: list[tuple[str, int]] = []
        before = 0
        for part, (low, high) in zip(self.parts, match.intervals, strict=True):
            for place in part.suffixes[low : min(high, low + limit - len(found))].tolist():
                document = self.documents.at(before + place)
                start = int(self.documents.starts[document])
                found.append((self.documents.name(document), before + place - start))
            before += len(part.tokens)
        return found

    def ids(self, document: int) -> Ints:
        """Return the ids of one document, int32[length]; a view."""
        starts = [*self.documents.starts[document : document + 2].tolist(), sum(len(p.tokens) for p in self.parts)]
        start, length = starts[0], starts[1] - starts[0] - 1
        for part in self.parts:
            if start < len(part.tokens):
                return part.tokens[start : start + length]
            start -= len(part.tokens)
        raise IntegrityError(f"document {document} lies beyond the text: build the corpus again")
