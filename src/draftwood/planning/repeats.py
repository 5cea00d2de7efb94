"""Whether a text repeats itself just now: the cheapest sign that copying drafters have something to propose."""

from __future__ import annotations

from collections.abc import Sequence

SIZE = 3  # tokens that must have occurred before
_MOST = 1 << 15  # tokens of a text that are looked at, the latest when it was first seen: 2 MB
_BITS = 21  # of a token's id, so that three make one number; larger vocabularies may find repeats that are none


class Repeats:
    """The runs of `SIZE` tokens in one text, which grows."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._length = 0

    def at_end_of(self, ids: Sequence[int]) -> bool:
        """Return whether the last `SIZE` of these tokens, prompt included, stood in the text before."""
        length = len(ids)
        if length < self._length:  # it was cut
            self._seen, self._length = set(), 0
        first = max(self._length, length - _MOST)
        for end in range(max(first, SIZE), length):
            self._seen.add(_joined(ids, end))
        self._length = length
        return length >= SIZE and _joined(ids, length) in self._seen


def _joined(ids: Sequence[int], end: int) -> int:
    found = 0
    for token in ids[end - SIZE : end]:
        found = found << _BITS | token
    return found
