"""The answers of one namespace, in an index that forgets at once and is rebuilt step by step. Loads kernels."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.contracts import Ints
from draftwood.drafters.ngram.index import NgramIndex
from draftwood.errors import IntegrityError

BORDER = -1  # of the index: ends a document, is never proposed and equals no token
_BLANK = 0.4  # share of blank places in the index at which a rebuild starts
_PACE = 8  # tokens that a rebuild moves per token that is added
_LEAST = 256  # tokens that it moves at least, so that short answers do not prolong it
_ROOM = 1024  # tokens of a new index

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class Answer:
    """One answer that is remembered, of ``length`` tokens with this 16-byte digest."""

    namespace: str
    digest: bytes
    length: int
    worth: float = -math.inf  # how useful it was, see `draftwood.drafters.memory.answers`
    start: int = -1  # where it begins in the index; -1 once it is forgotten
    moved: int = -1  # start in the index that is being built


class DocumentIndex(NgramIndex):
    """Documents in the order in which they came; it takes ``room`` tokens, borders included, without growing."""

    def __init__(self, room: int) -> None:
        super().__init__(room=room)
        self._room = room

    @property
    def crowded(self) -> bool:
        """Whether a bigger one should take over soon: at some point, far from here, this one reads itself anew."""
        return 4 * len(self) > 5 * self._room

    def read_documents(self, documents: Sequence[Ints]) -> list[int]:
        """Append documents, all or, where this is interrupted, none; returns where each begins."""
        ends = np.cumsum([len(document) + 1 for document in documents], dtype=np.int64)
        text = np.full(ends[-1], BORDER, dtype=np.int32)
        for document, end in zip(documents, ends.tolist(), strict=True):
            text[end - 1 - len(document) : end - 1] = document
        start = len(self)
        try:
            self._read(text, 0)
        except BaseException:  # Ctrl-C, raised as a kernel returns
            self.blank(start, len(self))
            raise
        return [start, *(start + ends[:-1]).tolist()]

    def blank(self, start: int, end: int) -> None:
        """Forget these places: what is blank is neither matched nor proposed, though it takes up room."""
        self.text[start:end] = BORDER


class Namespace:
    """Answers by digest, and the index over them, with ``room`` for so many tokens. The caller holds the lock."""

    def __init__(self, room: int) -> None:
        self.answers: dict[bytes, Answer] = {}  # in the order in which they were added
        self.tokens = 0  # tokens that are remembered, a border per answer included
        self._fresh: DocumentIndex | None = None  # replaces the index when it holds all answers
        self._queue: deque[Answer] = deque()  # answers that it lacks
        self._start_with(DocumentIndex(max(room, _ROOM)))

    def _start_with(self, index: DocumentIndex) -> None:
        self.index = index  # over all answers, a border after each
        self.generation = next(_numbers)  # changes when places in the index get another meaning; unique
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
        """Remember an answer; from now on drafts may come from it."""
        (answer.start,) = self.index.read_documents([ids])
        self.answers[answer.digest] = answer
        self._owners.append(answer)
        self._starts.append(answer.start)
        self.tokens += answer.length + 1
        if self._fresh is not None:
            self._queue.append(answer)
        self._rebuild(answer.length + 1)

    def remove(self, answer: Answer) -> None:
        """Forget an answer: blanked tokens are neither matched nor proposed, before the index is rebuilt too."""
        self.index.blank(answer.start, answer.start + answer.length)
        if self._fresh is not None and answer.moved >= 0:
            self._fresh.blank(answer.moved, answer.moved + answer.length)
        answer.start = answer.moved = -1
        del self.answers[answer.digest]
        self.tokens -= answer.length + 1

    def owner(self, place: int) -> Answer | None:
        """Return the answer at this place of the index; None if it is forgotten."""
        at = bisect_right(self._starts, place) - 1
        if at < 0 or not 0 <= self._owners[at].start <= place < self._starts[at] + self._owners[at].length:
            return None
        return self._owners[at]

    def _rebuild(self, came_in: int) -> None:
        """Move some answers to the new index, so that no single call moves them all."""
        if self._fresh is None:
            blank = len(self.index) - self.tokens
            if blank <= _BLANK * len(self.index) + _LEAST and not self.index.crowded:
                return
            self._fresh = DocumentIndex(2 * self.tokens + _ROOM)
            self._queue = deque(self.answers.values())
        budget = max(_PACE * came_in, _LEAST)
        moving: list[Answer] = []
        while self._queue and budget > 0:
            answer = self._queue.popleft()
            if answer.start >= 0:  # else it was forgotten since
                moving.append(answer)
                budget -= answer.length + 1
        try:
            places = self._fresh.read_documents([self.ids(answer) for answer in moving]) if moving else []
        except BaseException:  # Ctrl-C: a later call begins again
            self._fresh = None
            for answer in self.answers.values():
                answer.moved = -1
            raise
        for answer, place in zip(moving, places, strict=True):
            answer.moved = place
        if not self._queue:
            for answer in self.answers.values():
                answer.start, answer.moved = answer.moved, -1
            fresh, self._fresh = self._fresh, None
            self._start_with(fresh)

    def check_integrity(self) -> None:
        """Raise `IntegrityError` if answers and index disagree."""
        text, known = self.index.text, np.zeros(len(self.index), dtype=np.bool_)
        for answer in self.answers.values():
            end = answer.start + answer.length
            if (
                answer.start < 0
                or text[end] != BORDER
                or known[answer.start : end].any()
                or (self.ids(answer) < 0).any()
            ):
                raise IntegrityError("answers must not overlap and must be whole")
            if self.owner(answer.start) is not answer or self.owner(end - 1) is not answer:
                raise IntegrityError("the places of an answer must lead back to it")
            known[answer.start : end] = True
        if (text[~known] != BORDER).any() or self.tokens != sum(a.length + 1 for a in self.answers.values()):
            raise IntegrityError("what belongs to no answer must be blank, and the tokens counted")
