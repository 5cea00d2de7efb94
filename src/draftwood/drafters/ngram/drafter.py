"""Drafter ``ngram``: the tree of everything that followed the last few tokens before, likeliest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.contracts import DraftTexts, Feedback, Floats, Noise, Takes
from draftwood.drafters.base import BaseDrafter, draft_tree
from draftwood.drafters.ngram.prior import PRIOR
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.ngram.index import Cursor, NgramIndex

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

    @property
    def takes(self) -> Takes:
        return Takes(context=True)

    def with_user_texts(self, texts: DraftTexts) -> NgramDrafter:
        return replace(self, context=(*self.context, *texts.context))

    def open(self, prompt: Sequence[int], noise: Noise | None) -> NgramSession:  # noqa: ARG002
        from draftwood.drafters.ngram.index import Cursor  # brings numba, so not before it is used

        session = NgramSession(self, self.begun.copy(), Cursor())
        session.extend(prompt)
        return session

    @cached_property
    def begun(self) -> NgramIndex:
        """The further texts, read once; each request goes on in a copy."""
        from draftwood.drafters.ngram.index import NgramIndex

        index = NgramIndex()
        for text in self.context:
            index.read(text)
            index.end_document()
        return index


class NgramSession:
    """One text, indexed behind the further texts of its drafter."""

    def __init__(self, drafter: NgramDrafter, index: NgramIndex, cursor: Cursor) -> None:
        self._drafter, self._index, self._cursor = drafter, index, cursor
        self._start = len(index)
        self.match_length = 0

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:  # noqa: ARG002
        drafter = self._drafter
        columns, belief = self._index.grow(self._cursor, accept_rates, nodes, drafter.length, drafter.frequent)
        self.match_length = self._cursor.match_length
        return draft_tree(columns[0], columns[2].astype(np.int16), belief, columns[1])

    def learn(self, feedback: Feedback) -> None:
        self._index.read(feedback.emitted, self._cursor)

    def extend(self, ids: Sequence[int]) -> None:
        self._index.read(ids, self._cursor)

    def begin_answer(self, ids: Sequence[int]) -> None:
        self._index.read(ids, self._cursor)

    def truncate(self, length: int) -> None:
        if self._start + length < len(self._index):
            kept = self._index.text[self._start : self._start + max(0, length)].copy()
            self._index, self._cursor = self._drafter.begun.copy(), type(self._cursor)()
            self._index.read(kept, self._cursor)

    def fork(self) -> NgramSession:
        twin = NgramSession(self._drafter, self._index.copy(), self._cursor.copy())
        twin._start = self._start
        return twin

    def close(self) -> None:
        self._index, self._cursor, self._start = type(self._index)(), type(self._cursor)(), 0
