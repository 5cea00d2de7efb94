"""A grammar that begins later in an answer, behind what the model thinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar.follower import Follower
from draftwood.grammar.vocabulary import Vocabulary, Words, words_of
from draftwood.tree import TokenTree

Beginning = Callable[[Sequence[int]], int | None]
"""Told the tokens of an answer, returns how many of them stand before the grammar; None where it has not begun."""


class LaterFollower:
    """A `Follower` of what stands behind the beginning; before it all may come but an end of the text.

    ``begins`` makes a `Beginning`, of which each twin has its own, since they remember a place.
    """

    def __init__(self, follower: Follower, vocabulary: Vocabulary, begins: Callable[[], Beginning]) -> None:
        self._follower, self._vocabulary, self._made, self._begins = follower, vocabulary, begins, begins()
        self._before = ~words_of(vocabulary.ends, vocabulary.size)

    def twin(self) -> LaterFollower:
        return LaterFollower(self._follower.twin(), self._vocabulary, self._made)

    def mask(self, answer: Sequence[int]) -> Words:
        begins = self._begins(answer)
        return self._before if begins is None else self._follower.mask(answer[begins:])

    def is_complete(self, answer: Sequence[int]) -> bool:
        begins = self._begins(answer)
        return begins is not None and self._follower.is_complete(answer[begins:])

    def forced(self, answer: Sequence[int], most: int) -> list[int]:
        begins = self._begins(answer)
        return [] if begins is None else self._follower.forced(answer[begins:], most)

    def likely(self, answer: Sequence[int], most: int) -> list[int]:
        begins = self._begins(answer)
        return [] if begins is None else self._follower.likely(answer[begins:], most)

    def fitting(self, answer: Sequence[int], tree: TokenTree) -> NDArray[np.intp]:
        """Return the nodes of a tree that may come; before the grammar all, also those behind its beginning."""
        begins = self._begins(answer)
        return np.arange(len(tree.tokens)) if begins is None else self._follower.fitting(answer[begins:], tree)
