"""What the sessions of one ``ngram-cache`` share: dynamic and static level, their files, llama.cpp's slots."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from draftwood.drafters.corpus.corpus import Corpus
from draftwood.drafters.corpus.file import KIND as CORPUS
from draftwood.drafters.llama_cpp.ngram_counts_file import common_tokenizer, read_counts, write_counts
from draftwood.errors import UsageError
from draftwood.files.format import kind_of

if TYPE_CHECKING:
    from draftwood.drafters.llama_cpp.ngram_counts import Levels, NgramCounts

_MOST = 2**31 - 1


@dataclass(slots=True)
class Slot:
    """Counts that llama.cpp's server keeps per slot, and how long the text was when they were last updated."""

    counts: NgramCounts
    length: int = 0
    taken: bool = True


def new_counts() -> NgramCounts:
    """Return counts for one text; loads kernels, so only when needed."""
    from draftwood.drafters.llama_cpp.ngram_counts import NgramCounts

    return NgramCounts()


def static_of(tokens: NDArray[np.int32], counts: NDArray[np.int64], pair: NDArray[np.int32]) -> NgramCounts:
    """Return a static level with the next tokens of this pair alone."""
    level = new_counts()
    records = np.full((len(tokens), 6), -1, dtype=np.int32)
    records[:, :2], records[:, 4], records[:, 5] = pair, tokens, np.minimum(counts, _MOST)
    level.add(records)
    return level


class Shared:
    """The levels that outlive a session, and their files; the static one may be a corpus.

    The dynamic level learns from closed sessions if ``learn``, and is written to its file then if ``save``; that
    file need not exist if ``may_miss``. One session may write while others read.
    """

    _static: NgramCounts  # both from `build` on
    _dynamic: NgramCounts

    def __init__(
        self, static: Path | None, dynamic: Path | None, *, learn: bool, save: bool, may_miss: bool
    ) -> None:
        self._learn, self._save, self._path = learn, save, dynamic
        self._lock = threading.Lock()
        self._slots: list[Slot] = []
        self.corpus: Corpus | None = None
        if static is not None and kind_of(static) == CORPUS:
            self.corpus, static = Corpus.open(static), None
        if may_miss and dynamic is not None and not dynamic.exists():
            dynamic = None
        self._files = tuple(read_counts(path) if path is not None else None for path in (static, dynamic))
        headers = [self.corpus.header] if self.corpus is not None else []
        self.tokenizer = common_tokenizer(file for file in (*self._files, *headers) if file is not None)
        self._format = self._files[1].format if self._files[1] is not None else "draftwood"

    def belong_to(self, tokenizer: str) -> None:
        """Keep the fingerprint of the tokenizer in use, for the files that are written."""
        self.tokenizer = tokenizer

    def build(self) -> None:
        """Build the levels from the files at the first call."""
        with self._lock:
            if self._files:
                self._static, self._dynamic = new_counts(), new_counts()
                for counts, file in zip((self._static, self._dynamic), self._files, strict=True):
                    if file is not None:
                        counts.add(file.records)
                self._files = ()

    def levels(self, context: NgramCounts) -> Levels:
        """Return the shared levels together with this context."""
        from draftwood.drafters.llama_cpp.ngram_counts import Levels

        return Levels(context, self._dynamic, self._static)

    def learn(self, text: NDArray[Any], start: int) -> None:
        """Learn the text of a session that closes, from ``start`` on; what comes before was learnt already."""
        if not self._learn or len(text) <= start:
            return
        with self._lock:
            self._dynamic.read(text[max(0, start - 4) : start], fresh=True, counted=False)
            self._dynamic.read(text[start:])
        if self._save and len(self._dynamic):
            self.write(None, None)

    def write(self, path: Path | None, tokenizer: str | None) -> Path:
        """Write the dynamic level."""
        to = path if path is not None else self._path
        if to is None:
            raise UsageError("ngram-cache: no file to write to: name one, or give dynamic=FILE")
        self.build()
        with self._lock:
            write_counts(to, self._dynamic.records(), format=self._format, tokenizer=self.tokenizer or tokenizer)
        return to

    def take_slot(self) -> Slot:
        """Return the first free slot, with its counts."""
        with self._lock:
            for slot in self._slots:
                if not slot.taken:
                    slot.taken = True
                    return slot
            self._slots.append(Slot(new_counts()))
            return self._slots[-1]
