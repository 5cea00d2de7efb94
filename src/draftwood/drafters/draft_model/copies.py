"""How far what other drafters propose for the next token is to be believed in one text."""

from __future__ import annotations

from dataclasses import dataclass

from draftwood.contracts import Ints
from draftwood.tree import TokenTree

_KEEP = 0.97  # the weight of earlier steps
_CAUTION = 3.0  # promised tokens that count as kept before anything is known

_Promise = tuple[int, frozenset[int], float]
"""Length of the text behind which it was made, the proposed tokens, and the belief in them, at most 1."""

_NOTHING: _Promise = (-1, frozenset(), 0.0)


@dataclass(slots=True)
class Copies:
    """Other drafters' beliefs in the next token, added up, and how many of these tokens came.

    Their acceptance rates are those of many texts, and follow one text slowly. A draft model must know sooner,
    since it does not read where it believes what others promise.
    """

    _promised: float = 0.0
    _kept: float = 0.0
    _latest: _Promise = _NOTHING

    @property
    def trust(self) -> float:
        """By what beliefs in these tokens are multiplied, at most 1."""
        return min(1.0, (_CAUTION + self._kept) / (_CAUTION + self._promised))

    def promise(self, length: int, tree: TokenTree) -> None:
        """Note what is proposed behind a text of this length."""
        first = tree.parents < 0
        beliefs: dict[int, float] = {}
        for token, belief in zip(tree.tokens[first].tolist(), tree.belief[first].tolist(), strict=True):
            beliefs.setdefault(token, belief)  # equal siblings: the first one stands for both
        self._latest = length, frozenset(beliefs), min(1.0, sum(beliefs.values()))

    def learn(self, text: Ints) -> None:
        """Learn from a text, int32[n], whether the promise was kept, if it goes on behind it."""
        at, tokens, promised = self._latest
        if 0 <= at < len(text):
            self._promised = _KEEP * self._promised + promised
            self._kept = _KEEP * self._kept + (int(text[at]) in tokens)
            self._latest = _NOTHING

    def truncate(self, length: int) -> None:
        """Forget what was promised behind more tokens than these."""
        if length <= self._latest[0]:
            self._latest = _NOTHING

    def copy(self) -> Copies:
        """Return an independent copy."""
        return Copies(self._promised, self._kept, self._latest)
