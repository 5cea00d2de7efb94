"""Drafter ``ngram``: the tree of everything that followed the last few tokens before, likeliest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Ints, Noise
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.ngram_prior import PRIOR
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.index.ngram_index import Cursor, NgramIndex

MAX_FREQUENT = 12


@dataclass(frozen=True)
class NgramDrafter(BaseDrafter):
    """Offers what followed the last 1 to 32 tokens before, as a tree, likeliest first (back-off n-grams).

    Parameters
    ----------
    length
        Longest branch that it proposes.
    frequent
        How many of the most frequent tokens it offers where the context says nothing better, at most 12.
    context
        Token ids of further texts to copy from, such as sources that are not in the prompt.
    """

    name: ClassVar[str] = "ngram"

    length: int = 64
    frequent: int = MAX_FREQUENT
    context: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not 1 <= self.length <= 1 << 16:
            raise UsageError("ngram: length must lie between 1 and 65536")
        if not 0 <= self.frequent <= MAX_FREQUENT:
            raise UsageError(f"ngram: frequent must lie between 0 and {MAX_FREQUENT}")

    @property
    def prior(self) -> Floats:
        return PRIOR

    def open(self, prompt: Sequence[int], noise: Noise | None) -> NgramSession:  # noqa: ARG002
        from draftwood.index.ngram_index import Cursor, NgramIndex  # brings numba, so not before it is used

        index, cursor = NgramIndex(), Cursor()
        for text in self.context:
            index.read(text)
            index.end_document()
        session = NgramSession(self, index, cursor)
        session.extend(prompt)
        return session


class NgramSession:
    """One text, indexed behind the further texts of its drafter."""

    def __init__(self, drafter: NgramDrafter, index: NgramIndex, cursor: Cursor) -> None:
        self._drafter, self._index, self._cursor = drafter, index, cursor
        self._start = len(index)
        self.match_length = 0

    def draft(self, nodes: int, probes: int, odds: Floats) -> TokenTree:  # noqa: ARG002
        if nodes < 1 or not len(self._cursor.tail):
            return TokenTree.empty()
        drafter = self._drafter
        columns, belief = self._index.grow(self._cursor, odds, nodes, min(drafter.length, nodes), drafter.frequent)
        self.match_length = self._cursor.match_length
        return tree_of(columns, belief)

    def learn(self, feedback: Feedback) -> None:
        self._index.read(feedback.emitted, self._cursor)

    def extend(self, ids: Sequence[int]) -> None:
        self._index.read(ids, self._cursor)

    def truncate(self, length: int) -> None:
        if self._start + length < len(self._index):
            kept = self._index.text[self._start : self._start + length].copy()
            self._index.truncate(self._start)
            self._cursor = type(self._cursor)()
            self._index.read(kept, self._cursor)

    def fork(self) -> NgramSession:
        twin = NgramSession(self._drafter, self._index.copy(), self._cursor.copy())
        twin._start = self._start
        return twin

    def close(self) -> None:
        self.truncate(0)


def tree_of(columns: Ints, belief: Floats) -> TokenTree:
    """Return the tree of what `NgramIndex.grow` gave."""
    n = len(belief)
    chain, source, nan, drafts = _columns(n)
    parents = columns[1]
    return TokenTree(
        columns[0],
        parents,
        belief,
        source,
        columns[2].astype(np.int16),
        nan,
        drafts,
        is_chain=n > 0 and parents[n - 1] == n - 2 and bool((parents == chain).all()),
    )


@lru_cache(maxsize=256)
def _columns(n: int) -> tuple[Ints, NDArray[np.int16], Floats, NDArray[Any]]:
    """Columns that all trees of this size share: the parents of a chain, source, NaN, not probes."""
    return (
        np.arange(-1, n - 1, dtype=np.int32),
        np.zeros(n, dtype=np.int16),
        np.full(n, np.nan, dtype=np.float32),
        np.zeros(n, dtype=np.bool_),
    )
