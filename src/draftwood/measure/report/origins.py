"""Finds where copied tokens came from: the latest earlier place with the same tokens and the same context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from draftwood.measure.records.records import Answer
from draftwood.step import MODEL, Step

_WIDTH = 4  # bytes of an id


class Origin(NamedTuple):
    """An earlier place of a copied run; positions count from the first token of the prompt."""

    source: int  # who proposed the run
    start: int  # position of the run
    at: int  # position of the context in the earlier place
    context: int  # tokens before the run that are equal in both places
    run: int  # tokens of the run


class Text:
    """Prompt and output of an answer, for searching."""

    def __init__(self, answer: Answer) -> None:
        self.ids = [*answer.prompt_ids, *answer.output_ids]
        self._bytes = np.asarray(self.ids, dtype=np.int32).tobytes()

    def origins(self, step: Step) -> Iterator[Origin]:
        """Yield the origin of each run of accepted tokens from one source, if there is one: of several equal
        places the latest, though the drafter itself may have used another."""
        for start, end, source in _runs(step.sources):
            matched = step.by_source[source].match_length if source < len(step.by_source) else 0
            first = step.context + start
            context = min(first, start + matched)
            while (at := self._before(first - context, step.context + end)) is None and context:
                context //= 2  # a merged draft may come from another source, whose match was shorter
            if at is not None:
                yield Origin(source, first, at, context, end - start)

    def _before(self, start: int, end: int) -> int | None:
        """Return the latest place before ``start`` with the tokens from ``start`` to ``end``."""
        wanted = self._bytes[start * _WIDTH : end * _WIDTH]
        limit = (end - 1) * _WIDTH  # in loops the earlier place may overlap the tokens themselves
        while (found := self._bytes.rfind(wanted, 0, limit)) >= 0:
            if found % _WIDTH == 0:
                return found // _WIDTH
            limit = found + len(wanted) - 1
        return None


def _runs(sources: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (start, end, source) of each stretch of one drafter."""
    start = 0
    for source, run in groupby(sources):
        end = start + len(list(run))
        if source != MODEL:
            yield start, end, source
        start = end
