"""The answers of one namespace of a memory, in one index that forgets at once and is rebuilt little by little."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import deque
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import IntegrityError

if TYPE_CHECKING:
    from draftwood.drafters.memory.index import DocumentIndex

Ints = NDArray[np.int32]

_BLANK = 0.4  # share of blank places in the index at which a rebuild starts
_PACE = 8  # tokens that a rebuild moves per token that comes in
_LEAST = 256  # what it moves at least, so that short answers do not drag it on
_ROOM = 1024  # of an index at first

_numbers = itertools.count(1)


class Answer:
    """One answer that is remembered.

    Attributes
    ----------
    namespace
        Whose it is.
    digest
        Of its tokens, 16 bytes.
    length
        Its tokens.
    worth
        How useful it was, see `draftwood.drafters.memory.memory`.
    start
        Where it begins in the index; -1 once it is forgotten.
    """

    __slots__ = ("digest", "length", "moved", "namespace", "start", "worth")

    def __init__(self, namespace: str, digest: bytes, length: int) -> None:
        self.namespace, self.digest, self.length, self.worth = namespace, digest, length, -math.inf
        self.start, self.moved = -1, -1  # the latter: in the index that is being built


class Namespace:
    """Answers by digest, and the index over them. Whoever calls holds the memory's lock.

    Parameters
    ----------
    room
        Tokens that it takes without moving them to a bigger index.

    Attributes
    ----------
    index
        Over all answers, a border behind each.
    answers
        In the order in which they came.
    generation
        A number that changes when places in the index change their meaning; no two namespaces share one.
    tokens
        How many are remembered, a border per answer included.
    """

    def __init__(self, room: int = 0) -> None:
        self.answers: dict[bytes, Answer] = {}
        self.tokens = 0
        self._fresh: DocumentIndex | None = None  # takes over when it holds all answers
        self._queue: deque[Answer] = deque()  # what it is still to hold
        self._start_with(_new_index(max(room, _ROOM)))

    def _start_with(self, index: DocumentIndex) -> None:
        self.index, self.generation = index, next(_numbers)
        self._owners = list(self.answers.values())
        self._starts = [answer.start for answer in self._owners]

    @property
    def nbytes(self) -> int:
        """Bytes of the index, and of the one that is being built."""
        return self.index.nbytes + (self._fresh.nbytes if self._fresh is not None else 0)

    def ids(self, answer: Answer) -> Ints:
        """Return the tokens of an answer, int32[length]; a view that the next change may overwrite."""
        return self.index.text[answer.start : answer.start + answer.length]

    def add(self, answer: Answer, ids: Ints) -> None:
        """Remember an answer; from now on it is proposed."""
        (answer.start,) = self.index.read_documents([ids])
        self.answers[answer.digest] = answer
        self._owners.append(answer)
        self._starts.append(answer.start)
        self.tokens += answer.length + 1
        if self._fresh is not None:
            self._queue.append(answer)
        self._rebuild(answer.length + 1)

    def remove(self, answer: Answer) -> None:
        """Forget an answer: what is blank is neither matched nor proposed, long before the index is rebuilt."""
        self.index.blank(answer.start, answer.start + answer.length)
        if self._fresh is not None and answer.moved >= 0:
            self._fresh.blank(answer.moved, answer.moved + answer.length)
        answer.start = answer.moved = -1
        del self.answers[answer.digest]
        self.tokens -= answer.length + 1

    def owner(self, place: int) -> Answer | None:
        """Return the answer to which this place of the index belongs; None if it is forgotten."""
        at = bisect_right(self._starts, place) - 1
        if at < 0 or not 0 <= self._owners[at].start <= place < self._starts[at] + self._owners[at].length:
            return None
        return self._owners[at]

    def _rebuild(self, came_in: int) -> None:
        """Move some answers to the index that takes over, so that no single call has to move them all."""
        if self._fresh is None:
            blank = len(self.index) - self.tokens
            if blank <= _BLANK * len(self.index) + _LEAST and not self.index.crowded:
                return
            self._fresh = _new_index(2 * self.tokens + _ROOM)
            self._queue = deque(self.answers.values())
        budget = max(_PACE * came_in, _LEAST)
        moving: list[Answer] = []
        while self._queue and budget > 0:
            answer = self._queue.popleft()
            if answer.start >= 0:  # else it was forgotten meanwhile
                moving.append(answer)
                budget -= answer.length + 1
        try:
            places = self._fresh.read_documents([self.ids(answer) for answer in moving]) if moving else []
        except BaseException:  # Ctrl-C: begin again another time
            self._fresh = None
            for answer in self.answers.values():
                answer.moved = -1
            raise
        for answer, place in zip(moving, places, strict=True):
            answer.moved = place
        if not self._queue:
            self._swap(self._fresh)

    def _swap(self, fresh: DocumentIndex) -> None:
        for answer in self.answers.values():
            answer.start, answer.moved = answer.moved, -1
        self._fresh = None
        self._start_with(fresh)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if answers and index disagree."""
        text, known = self.index.text, np.zeros(len(self.index), dtype=np.bool_)
        for digest, answer in self.answers.items():
            end = answer.start + answer.length
            if answer.digest != digest or answer.start < 0 or end >= len(text) or text[end] != -1:
                raise IntegrityError("every answer must lie in the index, a border behind it")
            if known[answer.start : end].any() or (self.ids(answer) < 0).any():
                raise IntegrityError("answers must not overlap and must be whole")
            if self.owner(answer.start) is not answer or self.owner(end - 1) is not answer:
                raise IntegrityError("the places of an answer must lead back to it")
            known[answer.start : end] = True
        if (text[~known] != -1).any():
            raise IntegrityError("what belongs to no answer must be blank")
        if self.tokens != sum(answer.length + 1 for answer in self.answers.values()):
            raise IntegrityError("the tokens are miscounted")


def _new_index(room: int) -> DocumentIndex:
    from draftwood.drafters.memory.index import DocumentIndex  # brings numba, so not before it is used

    return DocumentIndex(room)
