"""Calls functions named as llama.cpp's speculators have them, at the times when llama.cpp calls them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Ints
from draftwood.drafters.base import TextSession
from draftwood.tree import TokenTree

NOTHING = np.empty(0, dtype=np.int32)


class ReferenceSession(TextSession):
    """A session that is called as llama.cpp calls its speculators, for the faithful modes.

    ``begin`` is called when a prompt or a turn was read, ``accept`` when part of a proposal was scored.
    llama.cpp's history is the text without its last token.
    """

    _evidence: NDArray[np.int16]  # class of each token of the longest proposal

    def begin(self) -> None:
        """The text was read as a prompt."""

    @abstractmethod
    def propose(self) -> Ints:
        """Return the whole proposal, before the caller's limit."""

    def accept(self, accepted: int) -> None:
        """So many tokens of the last proposal were accepted."""

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        if nodes < 1:  # the reference does not call a speculator then
            return TokenTree.empty()
        tokens = self.propose()[:nodes] if self._length > 1 else NOTHING
        evidence = self._evidence[: len(tokens)]
        return TokenTree.build(tokens.copy(), belief=accept_rates[evidence], evidence=evidence)

    def learn(self, feedback: Feedback) -> None:
        if (feedback.node_map >= 0).any():
            path = set(feedback.path)
            self.accept(len(list(takewhile(path.__contains__, feedback.node_map.tolist()))))
        super().extend(feedback.emitted)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self.begin()

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)


def occurrences(text: Ints, pattern: Ints, first: int, last: int) -> NDArray[np.int64]:
    """Return the starts from ``first`` to ``last``, both included, where the text has the pattern."""
    starts = np.flatnonzero(text[first : last + 1] == pattern[0]) + first
    for i in range(1, len(pattern)):
        if not len(starts):
            break
        starts = starts[text[starts + i] == pattern[i]]
    return starts


def newest(text: Ints, pattern: Ints, first: int, last: int) -> int:
    """Return the last start from ``first`` to ``last``, both included, where the text has the pattern; else 0."""
    block = 4096
    while last >= first:  # from the end, in ever larger blocks: most matches are near
        begin = max(first, last + 1 - block)
        if len(starts := occurrences(text, pattern, begin, last)):
            return int(starts[-1])
        last, block = begin - 1, 2 * block
    return 0
