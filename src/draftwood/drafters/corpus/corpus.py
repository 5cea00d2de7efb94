"""A corpus: indexed files that drafts are copied from, in memory-mapped suffix arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints
from draftwood.drafters.corpus.file import BORDER, Documents, Longs, Part, open_corpus
from draftwood.errors import IntegrityError
from draftwood.files.format import Header

COUNTED = 1 << 10  # most occurrences of which successors are counted; of more, this many evenly spaced ones
_NO_TOKENS = np.empty(0, dtype=np.int32)
_NO_COUNTS = np.empty(0, dtype=np.int64)
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
    """Documents of token ids, and where any sequence of them occurs.

    Made by `open` from a file of ``draftwood corpus build``, or by `of` from ids. Immutable: requests and threads
    may share it. The time of a lookup grows with the logarithm of its size.

    Attributes
    ----------
    parts
        Tokens and suffix arrays.
    documents
        Their names and places.
    fingerprint
        Fingerprint of the tokenizer whose ids these are (`draftwood.models.fingerprint`); None if unknown.
    model
        Name of a model with that tokenizer.
    header
        Of the file; None for a corpus in memory.
    """

    parts: tuple[Part, ...] = dataclasses.field(repr=False)
    documents: Documents = dataclasses.field(repr=False)
    fingerprint: str | None = None
    model: str | None = None
    header: Header | None = dataclasses.field(default=None, repr=False)

    @classmethod
    def open(cls, path: str | Path) -> Corpus:
        """Open a corpus file without reading it. Raises what `open_corpus` does."""
        header, parts, documents = open_corpus(Path(path))
        model = header.about.get("model")
        return cls(parts, documents, header.tokenizer, model if isinstance(model, str) else None, header)

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

    def match(self, context: Sequence[int] | NDArray[Any], most: int = 32) -> Match:
        """Find the longest suffix of ``context``, of at most ``most`` tokens, that occurs within a document."""
        from draftwood.drafters.corpus.kernel import grow  # loads kernels

        pattern = np.array(context[-most:] if most else (), dtype=np.int32)
        # The length and interval of each part's longest suffix are found by growing a tree without nodes.
        arrays = [(part.tokens, part.suffixes) for part in self.parts]
        found = [grow(pair, pattern, (most, 1, 1), _NO_RATES, _NO_NODES) for pair in arrays]
        length = max((best for _, best, _, _ in found), default=0)
        intervals = tuple((low, high) if best == length and length else (0, 0) for _, best, low, high in found)
        return Match(length, sum(high - low for low, high in intervals), intervals)

    def successors(self, match: Match, limit: int) -> tuple[Ints, Longs]:
        """Return the tokens that follow a match and how often, as `next_counts` does."""
        tokens, weights = [_NO_TOKENS], [np.empty(0)]
        for part, (low, high) in zip(self.parts, match.intervals, strict=True):
            total = high - low
            looks = min(total, COUNTED)
            places = low + (2 * np.arange(looks) + 1) * total // (2 * max(looks, 1))
            after = part.suffixes[places].astype(np.int64) + match.length
            tokens.append(part.tokens[after.clip(0, len(part.tokens) - 1)] if looks else _NO_TOKENS)
            weights.append(np.full(looks, total / max(looks, 1)))
        found, where = np.unique(np.concatenate(tokens), return_inverse=True)
        counts = np.rint(np.bincount(where, np.concatenate(weights), len(found))).astype(np.int64)
        found, counts = found[found >= 0], counts[found >= 0]
        best = np.lexsort((found, -counts))[: max(limit, 0)]
        return found[best], counts[best]

    def next_counts(self, context: Sequence[int] | NDArray[Any], limit: int) -> tuple[Ints, Longs]:
        """Return the tokens that followed ``context`` and how often.

        Parameters
        ----------
        context
            Token ids; all of them must match. The empty context matches nothing.
        limit
            Most tokens to return.

        Returns
        -------
        tokens : int32[n]
            The most frequent first, the lowest id first on a tie.
        counts : int64[n]
            Exact up to `COUNTED` occurrences of the context in a part, estimated beyond.
        """
        match = self.match(context, len(context))
        if not len(context) or match.length < len(context):
            return _NO_TOKENS, _NO_COUNTS
        return self.successors(match, limit)

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

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if tokens, suffixes and documents disagree; reads everything, in plain Python."""
        for part in self.parts:
            keys, places = part.tokens.tolist(), part.suffixes.tolist()
            filled = np.flatnonzero(part.tokens != BORDER).tolist()
            if sorted(places) != filled or min(keys, default=BORDER) < BORDER:
                raise IntegrityError("the suffixes must be every place that holds a token, and no other")
            if any(keys[a:] >= keys[b:] for a, b in pairwise(places)):
                raise IntegrityError("the suffixes must be sorted")
        tokens = np.concatenate([_NO_TOKENS, *(part.tokens for part in self.parts)])
        borders = np.flatnonzero(tokens == BORDER).tolist()
        if [0, *(border + 1 for border in borders)][: len(borders)] != self.documents.starts.tolist():
            raise IntegrityError("every document must begin after a border")
        if borders and borders[-1] != len(tokens) - 1:
            raise IntegrityError("a border must end the text")
