"""When llama.cpp would have called a speculator, told from what a draft session is told."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Ints
from draftwood.drafters.base import TextSession
from draftwood.tree import TokenTree

NOTHING = np.empty(0, dtype=np.int32)


class ReferenceSession(TextSession):
    """A session that is called as llama.cpp calls its speculators, for the faithful modes.

    Reading the prompt is ``begin``; the one token that follows it is the first one sampled; whatever else comes
    from outside is a new turn, so ``begin`` again. A proposal of which something was scored is followed by
    ``accept``. History is the text but for its last token.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        self._sampled = True  # else the next single token is the first one sampled after a `begin`
        super().__init__(prompt)

    @abstractmethod
    def begin(self) -> None:
        """The text was read as a prompt."""

    @abstractmethod
    def propose(self) -> Ints:
        """Return the whole proposal, before the caller's limit."""

    @abstractmethod
    def accept(self, accepted: int) -> None:
        """So many tokens of the last proposal were right."""

    @abstractmethod
    def classes(self, count: int) -> NDArray[np.int16]:
        """Evidence classes of a proposal's first ``count`` tokens."""

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:  # noqa: ARG002
        if nodes < 1:  # the reference does not call a speculator then
            return TokenTree.empty()
        tokens = self.propose()[:nodes] if self._length > 1 else NOTHING
        evidence = self.classes(len(tokens))
        return TokenTree.build(tokens.copy(), belief=accept_rates[evidence], evidence=evidence)

    def learn(self, feedback: Feedback) -> None:
        if (feedback.node_map >= 0).any():
            accepted, path = 0, set(feedback.path)
            for row in feedback.node_map.tolist():
                if row not in path:
                    break
                accepted += 1
            self.accept(accepted)
        super().extend(feedback.emitted)
        self._sampled = True

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        if self._sampled or len(ids) != 1:
            self.begin()
        self._sampled = not self._sampled and len(ids) == 1

    def truncate(self, length: int) -> None:
        super().truncate(max(length, 0))
        self._sampled = True


def newest(text: Ints, pattern: Ints, first: int, last: int) -> int:
    """Return the last start from ``first`` to ``last``, both included, where the text has the pattern; else 0."""
    block = 4096
    while last >= first:  # from the end, in ever larger blocks: most matches are near
        begin = max(first, last + 1 - block)
        starts = np.flatnonzero(text[begin : last + 1] == pattern[0]) + begin
        for i in range(1, len(pattern)):
            if not len(starts):
                break
            starts = starts[text[starts + i] == pattern[i]]
        if len(starts):
            return int(starts[-1])
        last, block = begin - 1, 2 * block
    return 0
