"""Finds names of special tokens in a text, as llama.cpp does: the longest name first, wherever it stands."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence

_BLANKS = " \t\n\v\f\r"


class SpecialTokens:
    """Cuts texts at the names of special tokens.

    Parameters
    ----------
    names
        The name of every token.
    tokens
        Special ones, in the order in which they are looked for.
    takes_blanks
        Those that take the blanks behind them.
    """

    def __init__(self, names: Sequence[str], tokens: Sequence[int], takes_blanks: Collection[int]) -> None:
        self._tokens, self._takes_blanks = tokens, takes_blanks
        self._order = {names[token]: place for place, token in enumerate(tokens)}
        lengths: dict[str, set[int]] = {}
        for name in self._order:
            lengths.setdefault(name[0], set()).add(len(name))
        self._lengths = {first: tuple(sorted(found)) for first, found in lengths.items()}
        self._first = re.compile(f"[{re.escape(''.join(lengths))}]") if lengths else None

    def split(self, text: str) -> Iterator[str | int]:
        """Return the parts of a text: what lies between special tokens, and their ids."""
        begin = 0
        for start, (end, token) in sorted(self._chosen(text).items()):
            if begin < start:
                yield text[begin:start]
            yield token
            begin = end
        if begin < len(text):
            yield text[begin:]

    def _chosen(self, text: str) -> dict[int, tuple[int, int]]:
        """Return where special tokens begin, where what they take ends, and their ids."""
        chosen: dict[int, tuple[int, int]] = {}
        starts: list[int] = []  # of the chosen ones, in order
        for order, start, end in sorted(self._occurrences(text)):
            place = bisect_right(starts, start)
            limit = starts[place] if place < len(starts) else len(text)
            if end > limit or (place and chosen[starts[place - 1]][0] > start):
                continue  # a part of it is taken
            token = self._tokens[order]
            if token in self._takes_blanks:
                while end < limit and text[end] in _BLANKS:
                    end += 1
            starts.insert(place, start)
            chosen[start] = (end, token)
        return chosen

    def _occurrences(self, text: str) -> Iterator[tuple[int, int, int]]:
        if self._first is None:
            return
        known, lengths = self._order.get, self._lengths
        for match in self._first.finditer(text):
            start = match.start()
            for length in lengths[text[start]]:
                order = known(text[start : start + length])
                if order is not None and start + length <= len(text):
                    yield order, start, start + length
