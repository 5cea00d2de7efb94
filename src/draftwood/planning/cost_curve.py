"""The measured cost of a pass: seconds by how many tokens it scores and by context length, as ``draftwood
profile`` measures it. It has cliffs where kernels change, so the measured points are joined by straight lines.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Self

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import UsageError

_GUESSED_CONTEXT = 40_000  # tokens of context to which one token attends in the time of a plain pass, guessed
_MANY = 16
_TINY = 0.01  # least share of a token of context, of its guess
_WIDEST = 1 << 20  # tokens of a pass: bounds the curve's table; no engine scores as many at once


class CostCurve:
    """Seconds of one pass over n tokens (the root included) at a context length. Immutable.

    It is made from ``points``, context length -> {n -> seconds}, and interpolated linearly. Below the first point
    it is flat; beyond the last it goes on with the slope of the last segment, but never falls. `UsageError`
    without points, and for an n below 1, a negative context, or seconds that are not above 0.
    """

    def __init__(self, points: Mapping[int, Mapping[int, float]]) -> None:
        if not points or not all(points.values()):
            raise UsageError("a cost curve needs at least one point, as in 1=31 (31 ms for a pass over 1 token)")
        self._points = {c: {n: float(points[c][n]) for n in sorted(points[c])} for c in sorted(points)}
        for context, n, seconds in self.points():
            if context < 0 or not _is_cost(n, seconds):
                place = f"a pass over {n} tokens at context {context}"
                raise UsageError(f"{place} cannot take {seconds} s: measure it again")
        self.contexts = tuple(self._points)  # the measured context lengths, ascending
        self._widest = max(n for _, n, _ in self.points())
        self._slopes = [_slope(line) for line in self._points.values()]
        # By context, the seconds of passes over 0 to ``widest`` tokens, as they are looked up in every step.
        self._lines: list[list[float]] = [_tabulated(x, self._widest).tolist() for x in self._points.values()]

    @classmethod
    def of(cls, points: Mapping[int, float]) -> Self:
        """Make a curve that does not depend on the context from n -> seconds."""
        return cls({0: points})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"1=31,4=30,16=53"`` (tokens=milliseconds, at any context); `UsageError` names a wrong piece."""
        points: dict[int, float] = {}
        for piece in text.split(","):
            size, _, milliseconds = piece.partition("=")
            try:
                n, seconds = int(size), float(milliseconds) / 1000
            except ValueError:
                n, seconds = 0, 0.0
            wrong = f"cost curve piece {piece.strip()!r}"
            if not _is_cost(n, seconds):
                raise UsageError(f"{wrong} cannot be read: write tokens=milliseconds, as in 1=31")
            if n in points:
                raise UsageError(f"{wrong}: {n} tokens were given before; leave one out")
            points[n] = seconds
        return cls.of(points)

    def seconds(self, n: int, context: int = 0) -> float:
        """Return the seconds of a pass over ``n`` tokens (the root included) at this context length."""
        where, share = self._between(context)
        low = self._one(where, n)
        if not share:
            return low
        high = self._one(where + 1, n)
        found = low + (high - low) * share
        return max(found, high) if share > 1 else found

    def _between(self, context: int) -> tuple[int, float]:
        """Return the measured context before this one, and which share of the way to the next one it lies."""
        last = len(self.contexts) - 1
        if context <= self.contexts[0] or not last:
            return 0, 0.0
        right = min(bisect_right(self.contexts, context), last)
        before, after = self.contexts[right - 1], self.contexts[right]
        return right - 1, (context - before) / (after - before)

    def _one(self, which: int, n: int) -> float:
        return self._lines[which][min(n, self._widest)] + max(n - self._widest, 0) * self._slopes[which]

    def many(self, count: int, context: int = 0) -> NDArray[np.float64]:
        """Return what `seconds` gives for 0 to ``count - 1`` tokens, float64[count]."""
        where, share = self._between(context)
        sizes = np.arange(count)
        at, beyond = np.minimum(sizes, self._widest), np.maximum(sizes - self._widest, 0)
        low, high = [
            np.array(self._lines[which])[at] + beyond * self._slopes[which]
            for which in (where, where + 1 if share else where)
        ]
        found: NDArray[np.float64] = low + (high - low) * share
        return np.maximum(found, high) if share > 1 else found

    def context_shares(self) -> tuple[float, float]:
        """Return the seconds that a token of context adds to a pass, and to each token of it.

        They are those of passes over 1 and 16 tokens at the shortest and the longest context; with one context
        only, guesses.
        """
        first, last = self.contexts[0], self.contexts[-1]
        plain = self.seconds(1, first) / _GUESSED_CONTEXT
        if first == last:
            return 0.5 * plain, plain
        one, many = [(self.seconds(n, last) - self.seconds(n, first)) / (last - first) for n in (1, _MANY)]
        of_token = max((many - one) / (_MANY - 1), _TINY * plain)
        return max(one - of_token, _TINY * plain), of_token

    def points(self) -> Iterator[tuple[int, int, float]]:
        """Yield what was measured: (context, n, seconds), ascending."""
        for context, line in self._points.items():
            yield from ((context, n, seconds) for n, seconds in line.items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostCurve) and self._points == other._points

    def __repr__(self) -> str:
        return f"CostCurve({self._points})"


def _is_cost(n: int, seconds: float) -> bool:
    return 1 <= n <= _WIDEST and 0 < seconds < math.inf


def _tabulated(line: Mapping[int, float], widest: int) -> NDArray[np.float64]:
    """Return the seconds of passes over 0 to ``widest`` tokens."""
    sizes, seconds = np.array(list(line)), np.array(list(line.values()))
    all_sizes = np.arange(widest + 1)
    return np.interp(all_sizes, sizes, seconds) + np.maximum(all_sizes - sizes[-1], 0) * _slope(line)


def _slope(line: Mapping[int, float]) -> float:
    """Return the seconds per token beyond the last point: those of the last segment, at least 0."""
    if len(line) < 2:
        return 0.0
    (before, low), (after, high) = list(line.items())[-2:]
    return max(0.0, (high - low) / (after - before))
