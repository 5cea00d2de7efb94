"""The naive twin of `SuffixAutomaton`: it reads the whole text each time. For tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np
from numpy.typing import NDArray


class NaiveSuffix:
    """Everything that `SuffixAutomaton` promises, each promise in its plainest words.

    Parameters
    ----------
    ids
        The text to begin with.
    refresh
        As in `SuffixAutomaton`; None promises the latest occurrence outright.
    """

    def __init__(self, ids: Iterable[int] = (), *, refresh: int | None = 16) -> None:
        self.text = [int(i) for i in ids]
        self.refresh = refresh

    def __len__(self) -> int:
        return len(self.text)

    def append(self, ids: Iterable[int]) -> None:
        """Read more text."""
        self.text += (int(i) for i in ids)

    def match(self) -> tuple[int, int]:
        """Length of the longest suffix that occurred before, and where it ended then (0, -1 without)."""
        last = len(self.text) - 1
        common = [self._common_suffix(end, last) for end in range(last)]
        length = max(common, default=0)
        if length == 0:
            return 0, -1
        occurrences = [end for end in range(last) if common[end] == length]
        return length, max(end for end in occurrences if self._refreshed(end, length))

    def _common_suffix(self, end: int, last: int) -> int:
        """Length of the longest common suffix of the texts that end with index ``end < last``."""
        length = 0
        while length <= end and self.text[end - length] == self.text[last - length]:
            length += 1
        return length

    def _refreshed(self, end: int, length: int) -> bool:
        """Was the suffix of this length among those told that they end at ``end``, when the text ended there?

        Suffixes share a class while they occur equally often. New ones make the first class, and it always
        knows; each length of an earlier occurrence starts a class of its own.
        """
        earlier = {self._common_suffix(before, end) for before in range(end)}
        return self.refresh is None or sum(other >= length for other in earlier) <= self.refresh

    def copy_after(self, end: int, count: int) -> NDArray[np.int32]:
        """Return what followed index ``end``, going on with the copy itself where the text ends; int32[count]."""
        grown = list(self.text)
        for k in range(count):
            grown.append(grown[end + 1 + k])
        return np.array(grown[len(self.text) :], dtype=np.int32)

    def truncate(self, length: int) -> None:
        """Cut the text to its first ``length`` tokens."""
        del self.text[length:]

    def copy(self) -> Self:
        """Return an independent copy."""
        return type(self)(self.text, refresh=self.refresh)
