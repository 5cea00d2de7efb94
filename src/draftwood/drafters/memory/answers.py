"""Finished answers by namespace, bounded by tokens; the least useful are forgotten first. Not thread-safe.

An answer's ``worth`` is the binary logarithm of the sum of its credits. A credit is the number of accepted tokens
that were copied from it, times ``2 ** (clock / half life)``; the clock counts the tokens that were added. So a
credit loses half its relative weight per half life, but the order of two answers changes only by a new credit.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from draftwood.contracts import Ints
from draftwood.drafters.memory.file import Saved
from draftwood.errors import IntegrityError, UsageError

if TYPE_CHECKING:
    from draftwood.drafters.memory.index import Answer, Namespace

Key = tuple[str, bytes]  # identifies an answer: its namespace, and a digest of its tokens

NAMESPACE = 1024  # tokens that each namespace beyond the first counts in addition, for the memory its arrays take
START = 10.0  # credit, in accepted tokens, of an answer when it is added, or added again
HALF_LIFE = 1.0  # tokens added while a credit loses half its weight, as a multiple of the size of the memory


class Answers:
    """The answers of all namespaces, of ``size`` tokens at most, and the order in which they are forgotten."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.spaces: dict[str, Namespace] = {}  # those that hold something
        self.changes = 0  # how many times an answer was added or a namespace forgotten
        self._clock = 0
        self._heap: list[tuple[float, int, Answer]] = []  # a worth in it may be outdated, then it is too low
        self._numbers = itertools.count()

    @property
    def held(self) -> int:
        """Tokens that count against the size."""
        return sum(space.tokens for space in self.spaces.values()) + NAMESPACE * max(0, len(self.spaces) - 1)

    @property
    def _age(self) -> float:
        """Binary logarithm of the weight of a credit now, relative to one at clock 0."""
        return self._clock / (HALF_LIFE * self.size)

    def find(self, key: Key) -> Answer | None:
        """Return the answer of this namespace and digest."""
        space = self.spaces.get(key[0])
        return space.answers.get(key[1]) if space is not None else None

    def put(self, key: Key, text: Ints, told: float | None = None, room: int = 0) -> bool:
        """Remember an answer, for the first time or again; False if it does not fit.

        If a file has ``told`` its worth, only answers of less worth make room for it. ``room``: tokens that its
        namespace will soon hold.
        """
        from draftwood.drafters.memory.index import Answer  # loads kernels, so not before it is used

        known = self.find(key)
        answer = known if known is not None else Answer(*key, len(text))
        if told is not None:
            answer.worth = max(answer.worth, told + self._age)
        else:
            self._clock += answer.length + 1 if known is None else 0
            self._credit(answer, START)
        if known is None:
            if not self._make_room(answer, fair=told is not None):
                return False
            self._write(answer, text, room)
        self.changes += 1
        return True

    def _make_room(self, answer: Answer, fair: bool) -> bool:
        """Forget the least useful answers, if ``fair`` only those of less worth; False if that was not enough."""
        if answer.length + 1 > self.size:
            return False
        while True:
            new = bool(self.spaces) and answer.namespace not in self.spaces
            if self.held + answer.length + 1 + NAMESPACE * new <= self.size:
                return True
            least = self._least()
            if least is None or (fair and least.worth >= answer.worth):
                return False
            space = self.spaces[least.namespace]
            space.remove(least)
            if not space.answers:
                del self.spaces[least.namespace]

    def _least(self) -> Answer | None:
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

    def _write(self, answer: Answer, text: Ints, room: int) -> None:
        from draftwood.drafters.memory.index import Namespace

        heapq.heappush(self._heap, (answer.worth, next(self._numbers), answer))
        space = self.spaces.get(answer.namespace)
        if space is None:
            space = self.spaces[answer.namespace] = Namespace(room)
        try:
            space.add(answer, text)
        finally:
            if not space.answers:  # Ctrl-C interrupted it
                del self.spaces[answer.namespace]

    def credit(self, answers: Iterable[Answer]) -> None:
        """Count one accepted token for each of these answers."""
        for answer in answers:
            self._credit(answer, 1.0)

    def _credit(self, answer: Answer, tokens: float) -> None:
        low, high = sorted((answer.worth, math.log2(tokens) + self._age))
        answer.worth = high + math.log2(1 + 2 ** (low - high))

    def forget(self, namespace: str) -> None:
        """Forget what is remembered of one namespace."""
        space = self.spaces.pop(namespace, None)
        for answer in space.answers.values() if space is not None else ():
            answer.start = -1
        self._heap = [entry for entry in self._heap if entry[2].start >= 0]
        heapq.heapify(self._heap)
        self.changes += 1

    def saved(self) -> list[Saved]:
        """Return a copy of all answers, per namespace in the order in which they were added."""
        return [
            Saved(name, space.ids(answer).copy(), answer.worth - self._age, answer.digest)
            for name, space in self.spaces.items()
            for answer in space.answers.values()
        ]

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if counts, order and indices disagree."""
        if self.held > self.size:
            raise IntegrityError("it holds more than its size")
        for name, space in self.spaces.items():
            space.check_integrity()
            if not space.answers or any(answer.namespace != name for answer in space.answers.values()):
                raise IntegrityError("a namespace must hold answers, and its own")
        waiting = [(worth, answer) for worth, _, answer in self._heap if answer.start >= 0]
        every = {id(answer) for space in self.spaces.values() for answer in space.answers.values()}
        if {id(answer) for _, answer in waiting} != every or any(
            worth > answer.worth for worth, answer in waiting
        ):
            raise IntegrityError(
                "exactly the answers that are remembered must wait to be forgotten, none for too long"
            )


def token_ids(ids: Any) -> Ints:
    """Return a copy of an answer, int32[length]; raise `UsageError` for what is no list of token ids."""
    try:
        found = np.array(ids)
        if found.ndim != 1 or (len(found) and found.dtype.kind not in "iu"):
            raise TypeError
    except (TypeError, ValueError) as error:
        raise UsageError("a memory keeps token ids: give a list of whole numbers") from error
    if len(found) and not 0 <= int(found.min()) <= int(found.max()) < 1 << 31:
        raise UsageError("token ids must not be negative or larger than 2147483647")
    return found.astype(np.int32)
