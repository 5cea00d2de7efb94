"""The naive twin of `SuffixAutomaton`: it reads the whole text each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

FLOORS = (1, 2, 3, 4, 6, 10, 20)
RECENT = 3
LEVELS = 4


class NaiveSuffix:
    """All that `SuffixAutomaton` promises, in plain words; with no ``refresh`` always the latest occurrence."""

    def __init__(self, ids: Iterable[int] = (), *, refresh: int | None = 16) -> None:
        self.text = [int(i) for i in ids]
        self.refresh = refresh

    def __len__(self) -> int:
        return len(self.text)

    def append(self, ids: Iterable[int]) -> None:
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
        """Was the suffix of this length among the ``refresh`` classes told that they end at ``end``?"""
        earlier = {self._common_suffix(before, end) for before in range(end)}
        return self.refresh is None or sum(other >= length for other in earlier) <= self.refresh

    def grow(
        self, accept_rates: Sequence[float], nodes: int, *, depth: int, branches: int, least: int = 1
    ) -> list[tuple[int, int, int]]:  # fmt: skip
        """Return the tree's (token, parent, class) per node; strings that more than 32 tokens followed not cut."""
        paths: list[list[int]] = []
        tree: list[tuple[int, int, int]] = []
        waiting = self._offers([], -1, 1.0, accept_rates, branches, least)
        while waiting and len(tree) < nodes:
            best = max(waiting, key=lambda offer: offer[0])  # the first of equal ones
            waiting.remove(best)
            likely, parent, token, evidence = best
            tree.append((token, parent, evidence))
            paths.append([*(paths[parent] if parent >= 0 else []), token])
            if len(paths[-1]) < depth:
                waiting += self._offers(paths[-1], len(tree) - 1, likely, accept_rates, branches, least)
        return tree if depth > 0 else []

    def _offers(
        self, path: list[int], parent: int, likely: float, accept_rates: Sequence[float], branches: int, least: int
    ) -> list[tuple[float, int, int, int]]:  # fmt: skip
        """(chance, parent, token, class) of what may follow the text and ``path``."""
        chosen: dict[int, int] = {}
        for level, (length, places) in enumerate(self._strings([*self.text, *path])):
            if length < least or len(chosen) >= branches or level == LEVELS:
                break
            string = self.text[places[0] - length : places[0]]
            followers = sorted({self.text[place] for place in places}, key=lambda t: -self._ends([*string, t])[-1])
            new = [token for token in followers if token not in chosen]
            added = bool(chosen)
            for rank, token in enumerate(new):
                once = len(self._ends([*string, token])) == 1
                kind = 4 - 2 * (token == followers[0]) + once + (once and token != followers[0] and rank >= RECENT)
                kind = int(not once) if len(followers) == 1 else kind
                row = max(r for r, floor in enumerate(FLOORS) if floor <= length)
                if len(chosen) < branches:
                    chosen[token] = 49 + 5 * min(row, 2) + kind - 2 if added else 7 * row + kind
        return [(likely * float(accept_rates[c]), parent, token, c) for token, c in chosen.items()]

    def _strings(self, whole: list[int]) -> Iterator[tuple[int, list[int]]]:
        """The suffixes of ``whole`` that were followed in the text, the longest of each set of places: (length,
        places of the following tokens)."""
        before = 0
        for length in range(len(whole), 0, -1):
            string = whole[-length:]
            every = self._ends(string)
            places = [end + 1 for end in every if end + 1 < len(self.text)]
            if len(every) > before and places:
                before = len(every)
                yield length, places

    def _ends(self, string: list[int]) -> list[int]:
        """Where the string ends in the text."""
        size = len(string)
        return [end for end in range(size - 1, len(self.text)) if self.text[end + 1 - size : end + 1] == string]

    def truncate(self, length: int) -> None:
        del self.text[length:]

    def copy(self) -> Self:
        return type(self)(self.text, refresh=self.refresh)
