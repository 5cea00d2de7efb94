"""Drafter ``ngram``: proposes a tree of what followed the last few tokens earlier, likeliest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from draftwood.contracts import DraftSession, DraftTexts, Floats, Ints, Noise, Takes
from draftwood.drafters.base import BaseDrafter, grown_tree, read_rates
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.ngram.index import Cursor, NgramIndex

PRIOR = read_rates(__file__)

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
    modules: ClassVar[Sequence[str]] = ("draftwood.drafters.ngram.index",)
    prior: ClassVar[Floats] = PRIOR
    takes: ClassVar[Takes] = Takes(context=True)

    length: int = 64
    frequent: int = MAX_FREQUENT
    context: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)
        self.check_range("frequent", 0, MAX_FREQUENT)

    @property
    def copies_text(self) -> bool:
        return not self.context

    def with_user_texts(self, texts: DraftTexts) -> NgramDrafter:
        return replace(self, context=(*self.context, *texts.context))

    def open(self, prompt: Sequence[int], noise: Noise | None) -> NgramSession:
        from draftwood.drafters.ngram.index import Cursor  # loads kernels, so only when needed

        session = NgramSession(self, self.begun.copy(), Cursor())
        session.extend(prompt)
        return session

    @cached_property
    def begun(self) -> NgramIndex:
        """Index of the further texts, built once; each request continues a copy of it."""
        from draftwood.drafters.ngram.index import NgramIndex

        index = NgramIndex()
        for text in self.context:
            index.read(text)
            index.end_document()
        return index


class NgramSession(DraftSession):
    """One text, indexed after the further texts of its drafter."""

    def __init__(self, drafter: NgramDrafter, index: NgramIndex, cursor: Cursor) -> None:
        self._drafter, self._index, self._cursor = drafter, index, cursor
        self._start = len(index)
        self._new: list[int] = []  # committed tokens that the index has not read: the next draft reads them

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        columns, chances = self.grow(nodes, accept_rates)
        return grown_tree(columns, *chances)

    def grow(
        self, nodes: int, accept_rates: Floats, arrays: tuple[Ints, Floats] | None = None
    ) -> tuple[Ints, Floats]:
        """Return the tree, or its best chain, as `NgramIndex.grow` does."""
        it, cursor, new = self._drafter, self._cursor, self._new
        grown = self._index.grow(cursor, accept_rates, nodes, it.length, it.frequent, new, arrays)
        self._new, self.match_length = [], cursor.match_length
        return grown

    def extend(self, ids: Sequence[int]) -> None:
        self._new += [*ids]  # an array would be added number by number
        if len(self._new) > self._index.at_once:
            self._read()

    def _read(self) -> None:
        new, self._new = self._new, []
        self._index.read(new, self._cursor)

    def truncate(self, length: int) -> None:
        self._read()
        if self._start + length < len(self._index):
            kept = self._index.text[self._start : self._start + max(0, length)].copy()
            self._index, self._cursor = self._drafter.begun.copy(), type(self._cursor)()
            self._index.read(kept, self._cursor)
