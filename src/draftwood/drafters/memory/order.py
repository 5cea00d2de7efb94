"""In which order answers are forgotten: the least useful first, a credit counting less the longer ago it was.

How useful an answer is, its ``worth``, is the binary logarithm of the accepted tokens that were copied from it,
each counted ``2 ** (clock / half life)``, where the clock counts the tokens that came in. So a credit loses half
its weight with every half life, and yet the order of two answers changes only when one of them is credited.
"""

from __future__ import annotations

import heapq
import math

from draftwood.drafters.memory.namespace import Answer
from draftwood.errors import IntegrityError

START = 10.0
"""Accepted tokens that an answer counts for when it comes, or comes again."""

HALF_LIFE = 1.0
"""Tokens that come in while a credit loses half its weight, in sizes of the memory."""


class Order:
    """Answers by worth, and the clock.

    Parameters
    ----------
    size
        Of the memory, in tokens.
    """

    def __init__(self, size: int) -> None:
        self._half_life = HALF_LIFE * size
        self._heap: list[tuple[float, int, Answer]] = []  # a worth in it may be out of date, thus too low
        self._clock = self._number = 0

    @property
    def age(self) -> float:
        """Binary logarithm of what a credit weighs now, if one at clock 0 weighs 1."""
        return self._clock / self._half_life

    def pass_by(self, tokens: int) -> None:
        """Let the clock go on."""
        self._clock += tokens

    def credit(self, answer: Answer, tokens: float) -> None:
        """Count so many accepted tokens, now."""
        low, high = sorted((answer.worth, math.log2(tokens) + self.age))
        answer.worth = high + math.log2(1 + 2 ** (low - high))

    def push(self, answer: Answer) -> None:
        """Let an answer wait for its turn; only ever to be credited from now on."""
        self._number += 1
        heapq.heappush(self._heap, (answer.worth, self._number, answer))

    def least(self) -> Answer | None:
        """Return the answer of least worth, the older one on a tie; None if none waits."""
        while self._heap:
            worth, number, answer = self._heap[0]
            if answer.start < 0:  # forgotten
                heapq.heappop(self._heap)
            elif answer.worth > worth:
                heapq.heapreplace(self._heap, (answer.worth, number, answer))
            else:
                return answer
        return None

    def clear_out(self) -> None:
        """Drop those that were forgotten."""
        self._heap = [entry for entry in self._heap if entry[2].start >= 0]
        heapq.heapify(self._heap)

    def check_integrity(self, answers: list[Answer]) -> None:
        """Raise `IntegrityError` unless these answers are waiting, and no others."""
        waiting = {id(answer): worth for worth, _, answer in self._heap if answer.start >= 0}
        if waiting.keys() != {id(answer) for answer in answers}:
            raise IntegrityError("the answers that are remembered must wait in the order, and no others")
        if any(waiting[id(answer)] > answer.worth for answer in answers):
            raise IntegrityError("an answer must not wait longer than its worth allows")
