"""Whether a text repeats itself just now: the cheapest sign that copying drafters have something to propose."""

from __future__ import annotations

from collections.abc import Sequence

SIZE = 3  # tokens that must have occurred before
_MOST = 1 << 15  # tokens of a text that are looked at, the latest when it was first seen: 2 MB
_BITS = 21  # of a token's id, so that three make one number; larger vocabularies may find repeats that are none
_RUN = (1 << SIZE * _BITS) - 1  # all bits of such a number


class Repeats:
    """The runs of `SIZE` tokens in one text, which grows."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._length, self._run = 0, 0  # of the text that was looked at, and the number of its last tokens

    def at_end_of(self, ids: Sequence[int]) -> bool:
        """Return whether the last `SIZE` of these tokens, prompt included, stood in the text before."""
        length = len(ids)
        if length < self._length:  # it was cut
            self._seen, self._length = set(), 0
        if length < SIZE:
            return False
        seen, first = self._seen, max(self._length, length - _MOST)
        if first != self._length or first < SIZE:
            first, self._run = max(first, SIZE), _joined(ids, max(first, SIZE))
        run = self._run
        for token in ids[first:]:
            seen.add(run)
            run = (run << _BITS | token) & _RUN
        self._length, self._run = length, run
        return run in seen


def _joined(ids: Sequence[int], end: int) -> int:
    found = 0
    for token in ids[end - SIZE : end]:
        found = found << _BITS | token
    return found & _RUN
