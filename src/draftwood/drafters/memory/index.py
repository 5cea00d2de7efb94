"""An `NgramIndex` of many documents, which can be blanked again. Importing this module loads kernels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftwood.contracts import Ints
from draftwood.drafters.ngram.index import NgramIndex

BORDER = -1  # of the index: ends a document, is never proposed and equals no token


class DocumentIndex(NgramIndex):
    """Documents in the order in which they came; it takes ``room`` tokens, borders included, without growing."""

    def __init__(self, room: int) -> None:
        super().__init__()
        self._allocate(room)
        self._room = room

    @property
    def crowded(self) -> bool:
        """Whether a bigger one should take over soon: at some point, far from here, this one reads itself anew."""
        return 4 * len(self) > 5 * self._room

    def read_documents(self, documents: Sequence[Ints]) -> list[int]:
        """Append documents, all or, where this is interrupted, none; returns where each begins."""
        ends = np.cumsum([len(document) + 1 for document in documents], dtype=np.int64)
        text = np.full(ends[-1], BORDER, dtype=np.int32)
        for document, end in zip(documents, ends.tolist(), strict=True):
            text[end - 1 - len(document) : end - 1] = document
        start = len(self)
        try:
            self._read(text, 0)
        except BaseException:  # Ctrl-C, raised as a kernel returns
            self.blank(start, len(self))
            raise
        return [start, *(start + ends[:-1]).tolist()]

    def blank(self, start: int, end: int) -> None:
        """Forget these places: what is blank is neither matched nor proposed, though it takes up room."""
        self.text[start:end] = BORDER
