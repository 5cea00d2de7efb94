"""A grammar that begins later in an answer, behind what the model thinks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.grammar.follower import Follower
from draftwood.grammar.vocabulary import Vocabulary, Words, words_of
from draftwood.tree import TokenTree


class Beginning(Protocol):
    """Where in an answer its grammar begins, by the answer's tokens so far."""

    def begins(self, answer: Sequence[int], /) -> int | None:
        """Return how many of the tokens stand before the grammar; None where it has not begun."""

    def opening(self, answer: Sequence[int], /) -> Collection[int]:
        """Return the tokens that may come where the grammar could begin, and put it off."""


class LaterFollower:
    """A `Follower` of what stands behind the beginning; before it all may come but an end of the text.

    ``begins`` makes a `Beginning`, of which each twin has its own, since they remember a place.
    """

    def __init__(self, follower: Follower, vocabulary: Vocabulary, begins: Callable[[], Beginning]) -> None:
        self._follower, self._vocabulary, self._made, self._place = follower, vocabulary, begins, begins()
        self._before = ~words_of(vocabulary.ends, vocabulary.size)

    def twin(self) -> LaterFollower:
        return LaterFollower(self._follower.twin(), self._vocabulary, self._made)

    def mask(self, answer: Sequence[int]) -> Words:
        begins = self._place.begins(answer)
        if begins is None:
            return self._before
        mask, others = self._follower.mask(answer[begins:]), self._opening(answer, begins)
        return mask | words_of(others, self._vocabulary.size) if others else mask

    def is_complete(self, answer: Sequence[int]) -> bool:
        begins = self._place.begins(answer)
        return begins is not None and self._follower.is_complete(answer[begins:])

    def forced(self, answer: Sequence[int], most: int) -> list[int]:
        begins = self._place.begins(answer)
        is_free = begins is None or self._opening(answer, begins)
        return [] if is_free else self._follower.forced(answer[begins:], most)

    def likely(self, answer: Sequence[int], most: int) -> list[int]:
        begins = self._place.begins(answer)
        return [] if begins is None else self._follower.likely(answer[begins:], most)

    def fitting(self, answer: Sequence[int], tree: TokenTree) -> NDArray[np.intp]:
        """Return the nodes of a tree that may come; before the grammar all, also those behind its beginning."""
        begins = self._place.begins(answer)
        return np.arange(len(tree.tokens)) if begins is None else self._follower.fitting(answer[begins:], tree)

    def _opening(self, answer: Sequence[int], begins: int) -> Collection[int]:
        return self._place.opening(answer) if begins == len(answer) else ()
