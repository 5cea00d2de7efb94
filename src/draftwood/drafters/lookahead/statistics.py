"""Back-off statistics of the n-grams of lookahead decoding and of the text. Importing this loads kernels."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.drafters.base import best_nodes, draft_tree
from draftwood.drafters.ngram.drafter import MAX_FREQUENT, PRIOR
from draftwood.drafters.ngram.index import Cursor, NgramIndex
from draftwood.tree import TokenTree, merge

MOST = 1 << 18  # tokens of n-grams after which the collection is emptied: some 16 MB
_LONGEST = 64


class Statistics:
    """An index of the n-grams, each a document of its own, and one of the text; used in place of a `Pool`.

    With two indexes, no match runs from an n-gram into the text that was committed after it. The evidence classes
    are those of ``ngram`` for n-grams, then the same again for the text, if candidates come from there too.
    """

    def __init__(self, *, read_text: bool) -> None:
        self._ngrams, self._place = NgramIndex(), Cursor()
        self._text, self._here = NgramIndex(), Cursor()
        self._reads = read_text
        self.match_length = 0

    def read(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Read more committed text."""
        self._ngrams.follow(ids, self._place)
        if self._reads:
            self._text.read(ids, self._here)

    def add(self, first: int, ngram: tuple[int, ...]) -> None:
        """Take in an n-gram."""
        if len(self._ngrams) > MOST:
            tail, self._ngrams, self._place = self._place.tail, NgramIndex(), Cursor()
            self._ngrams.follow(tail, self._place)
        self._ngrams.read((first, *ngram))
        self._ngrams.end_document()

    def reread(self, text: NDArray[Any]) -> None:
        """Replace the text, which was cut; n-grams of the window are kept."""
        self._place, self._text, self._here = Cursor(), NgramIndex(), Cursor()
        self.read(text)

    def grow(self, nodes: int, accept_rates: Floats) -> TokenTree:
        """Return what follows the end of the text in either index as one tree, likeliest first."""
        classes = len(PRIOR)
        tree = _tree(self._ngrams, self._place, nodes, accept_rates[:classes], 0)
        self.match_length = self._place.match_length
        if self._reads:
            other = _tree(self._text, self._here, nodes, accept_rates[classes:], classes)
            self.match_length = max(self.match_length, self._here.match_length)
            tree, _ = merge((tree, other))
        return best_nodes(tree, nodes)

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = copy(self)
        twin._ngrams, twin._place = self._ngrams.copy(), self._place.copy()
        twin._text, twin._here = self._text.copy(), self._here.copy()
        return twin


def _tree(index: NgramIndex, cursor: Cursor, nodes: int, accept_rates: Floats, first_class: int) -> TokenTree:
    columns, chances = index.grow(cursor, accept_rates, nodes, _LONGEST, MAX_FREQUENT)
    return draft_tree(columns[0], columns[2] + np.int32(first_class), chances[0], columns[1])
