"""A session that knows where the answer begins: what lies before is prompt, what follows was generated."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats
from draftwood.drafters.base import TextSession
from draftwood.tree import TokenTree


class AnswerSession(TextSession):
    """Follows the committed text and tells the answer under way from its prompt.

    The answer begins where `open` left off. The token that reading the prompt gave comes as an `extend` of one
    token and belongs to it, as does all that `learn` brings. Any other `extend` is the next turn, so is the one
    after a `truncate`, be it empty: the answer begins again behind it.
    """

    def __init__(self, ids: Sequence[int] | NDArray[Any] = ()) -> None:
        self._starts, self._begun, self._turns = [0], False, False  # before the prompt comes in, through `extend`
        super().__init__(ids)
        self._starts, self._begun = [self._length], False

    @property
    def start(self) -> int:
        """Index of the first token of the answer under way; the length of the text before it has one."""
        return self._starts[-1]

    @abstractmethod
    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree: ...

    def learn(self, feedback: Feedback) -> None:
        super().extend(feedback.emitted)
        self._begun = True

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        if self._begun:
            self._starts.append(self._length)
            self._begun = False
        elif len(ids) == 1 and not self._turns:
            self._begun = True
        else:
            self._starts[-1] = self._length
        self._turns = False

    def truncate(self, length: int) -> None:
        super().truncate(max(0, length))
        while len(self._starts) > 1 and self._starts[-1] > self._length:
            self._starts.pop()
        self._starts[-1] = min(self._starts[-1], self._length)
        self._begun = self._starts[-1] < self._length
        self._turns = True

    def close(self) -> None:
        super().close()
        self._starts, self._begun = [0], False

    def fork(self) -> Self:
        twin = super().fork()
        twin._starts = list(self._starts)
        return twin
