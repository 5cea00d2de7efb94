"""The order in which answers are forgotten: the least useful first; older credits count less.

An answer's ``worth`` is the binary logarithm of the sum of its credits. A credit is the number of accepted tokens
that were copied from it, times ``2 ** (clock / half life)``; the clock counts the tokens that were added. So a
credit loses half its relative weight per half life, but the order of two answers changes only by a new credit.
"""

from __future__ import annotations

import heapq
import math

from draftwood.drafters.memory.namespace import Answer
from draftwood.errors import IntegrityError

START = 10.0  # credit, in accepted tokens, of an answer when it is added, or added again
HALF_LIFE = 1.0  # tokens added while a credit loses half its weight, as a multiple of the size of the memory


class Order:
    """Answers by worth, and the clock; ``size`` is that of the memory, in tokens."""

    def __init__(self, size: int) -> None:
        self._half_life = HALF_LIFE * size
        self._heap: list[tuple[float, int, Answer]] = []  # a worth in it may be outdated, then it is too low
        self._clock = self._number = 0

    @property
    def age(self) -> float:
        """Binary logarithm of the weight of a credit now, relative to one at clock 0."""
        return self._clock / self._half_life

    def pass_by(self, tokens: int) -> None:
        """Advance the clock."""
        self._clock += tokens

    def credit(self, answer: Answer, tokens: float) -> None:
        """Credit an answer with so many accepted tokens."""
        low, high = sorted((answer.worth, math.log2(tokens) + self.age))
        answer.worth = high + math.log2(1 + 2 ** (low - high))

    def push(self, answer: Answer) -> None:
        """Add an answer; from now on its worth may only rise."""
        self._number += 1
        heapq.heappush(self._heap, (answer.worth, self._number, answer))

    def least(self) -> Answer | None:
        """Return the answer of least worth, the older one on a tie; None if there is none."""
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
        """Drop answers that were forgotten."""
        self._heap = [entry for entry in self._heap if entry[2].start >= 0]
        heapq.heapify(self._heap)

    def check_integrity(self, answers: list[Answer]) -> None:
        """Raise `IntegrityError` unless it holds these answers and no others."""
        waiting = [(worth, answer) for worth, _, answer in self._heap if answer.start >= 0]
        if {id(answer) for _, answer in waiting} != {id(answer) for answer in answers}:
            raise IntegrityError("the answers that are remembered must wait in the order, and no others")
        if any(worth > answer.worth for worth, answer in waiting):
            raise IntegrityError("an answer must not wait longer than its worth allows")
