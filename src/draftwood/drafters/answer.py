"""A session that knows where the answer begins: what lies before was read, what follows was generated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats
from draftwood.drafters.base import TextSession
from draftwood.tree import TokenTree


class AnswerSession(TextSession):
    """Follows the committed text and remembers where the latest answer begins.

    Attributes
    ----------
    start
        Index of the answer's first token; the length of the text while no answer has begun.
    """

    start = 0

    @abstractmethod
    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree: ...

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self.start = self._length

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        self.start = self._length
        super().extend(ids)

    def learn(self, feedback: Feedback) -> None:
        super().extend(feedback.emitted)

    def truncate(self, length: int) -> None:
        super().truncate(max(0, length))
        self.start = min(self.start, self._length)

    def close(self) -> None:
        super().close()
        self.start = 0
