"""The answers of one namespace, in an index from which they can be removed at once. Loads kernels."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.contracts import Ints
from draftwood.drafters.ngram.index import NgramIndex

BORDER = -1  # of the index: ends a document, is never proposed and equals no token
_BLANK, _LEAST = 0.4, 256  # the index is made anew when more than this share of it, plus so many places, is blank
_ROOM = 1024  # tokens of a new index

_numbers = itertools.count(1)


@dataclass(slots=True, eq=False)
class KeptAnswer:
    """One answer that is remembered, of ``length`` tokens with this 16-byte digest."""

    namespace: str
    digest: bytes
    length: int
    worth: float = -math.inf  # how useful it was, see `draftwood.drafters.memory.memory.Memory`
    start: int = -1  # where it begins in the index; -1 once it is forgotten


class Namespace:
    """Answers by digest, and the index over them, with ``room`` for so many tokens. The caller holds the lock.

    A full memory of a million tokens is indexed anew about once per 400,000 new tokens, for half a second.
    """

    def __init__(self, room: int) -> None:
        self.answers: dict[bytes, KeptAnswer] = {}  # in the order in which they were added
        self.tokens = 0  # tokens that are remembered, a border per answer included
        self._use(NgramIndex(room=max(room, _ROOM)))

    def _use(self, index: NgramIndex) -> None:
        self.index = index  # over all answers, a border after each
        self.generation = next(_numbers)  # a number of this index alone: places of another one mean other tokens
        self._owners = list(self.answers.values())
        self._starts = [answer.start for answer in self._owners]

    def ids(self, answer: KeptAnswer) -> Ints:
        """Return the tokens of an answer, int32[length]; a view that the next change may overwrite."""
        return self.index.text[answer.start : answer.start + answer.length]

    def add(self, answer: KeptAnswer, ids: Ints) -> None:
        """Remember an answer; from now on drafts may come from it."""
        start = len(self.index)
        try:
            read_documents(self.index, [ids])
        except BaseException:  # Ctrl-C, raised as a kernel returns
            self.index.text[start:] = BORDER
            raise
        answer.start = start
        self.answers[answer.digest] = answer
        self._owners.append(answer)
        self._starts.append(start)
        self.tokens += answer.length + 1
        if len(self.index) - self.tokens > _BLANK * len(self.index) + _LEAST:
            fresh = NgramIndex(room=2 * self.tokens + _ROOM)
            places = read_documents(fresh, [self.ids(one) for one in self.answers.values()])
            for one, place in zip(self.answers.values(), places, strict=True):
                one.start = place
            self._use(fresh)

    def remove(self, answer: KeptAnswer) -> None:
        """Forget an answer: blank tokens are neither matched nor proposed."""
        self.ids(answer)[:] = BORDER
        answer.start = -1
        del self.answers[answer.digest]
        self.tokens -= answer.length + 1

    def owner(self, place: int) -> KeptAnswer | None:
        """Return the answer at this place of the index; None if it is forgotten."""
        at = bisect_right(self._starts, place) - 1
        if at < 0 or not 0 <= self._owners[at].start <= place < self._starts[at] + self._owners[at].length:
            return None
        return self._owners[at]


def read_documents(index: NgramIndex, documents: Sequence[Ints]) -> list[int]:
    """Append documents, a border after each; returns where each begins."""
    ends = len(index) + np.cumsum([len(document) + 1 for document in documents], dtype=np.int64)
    starts = [len(index), *ends[:-1].tolist()]
    border = np.full(1, BORDER, dtype=np.int32)
    index._read(np.concatenate([part for document in documents for part in (document, border)]), 0)
    return starts
