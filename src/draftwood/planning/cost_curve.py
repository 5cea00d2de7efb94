"""What one pass costs: seconds over how many tokens it scores, at a context length.

``draftwood profile`` measures it. The curve is neither flat nor straight (it has cliffs where kernels change), so
it is kept as measured, with straight lines between its points.
"""

from __future__ import annotations

import json
import logging
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import RecordError, UsageError

log = logging.getLogger("draftwood")

FORMAT = 1
"""Of the files that `load` reads."""
_BESIDE = ("prefill", "sampling", "memory", "tree")
"""Rows of a profile that say something else than what a pass costs."""
_WIDEST = 1 << 20
"""Bounds the table of a curve; no engine scores as many tokens at once."""


class CostCurve:
    """Seconds of one pass over n tokens, the root included, at a context length. Immutable.

    Between points in n and between contexts the curve runs straight; beyond the last point it goes on as steep
    as before, never downwards; before the first one it is flat.

    Parameters
    ----------
    points
        Context length -> {n -> seconds}. One context makes a curve that does not depend on it.

    Raises
    ------
    UsageError
        Without points, or if one is no measurement: n below 1, negative contexts, seconds not above 0.
    """

    def __init__(self, points: Mapping[int, Mapping[int, float]]) -> None:
        if not points or not all(points.values()):
            raise UsageError("a cost curve needs at least one point, as in 1=31 (31 ms for a pass over 1 token)")
        self._points = {c: {n: float(points[c][n]) for n in sorted(points[c])} for c in sorted(points)}
        for context, n, seconds in self.points():
            if context < 0 or not 1 <= n <= _WIDEST or not 0 < seconds < math.inf:
                raise UsageError(
                    f"a pass over {n} tokens at context {context} cannot take {seconds} s: measure it again"
                )
        self._contexts = list(self._points)
        self._first, self._last = self._contexts[0], self._contexts[-1]
        widest = max(n for _, n, _ in self.points())
        # Every context's value at each n, so that asking, which happens in every step, is two lookups.
        self._dense = np.array([_straight(line, widest) for line in self._points.values()])
        self._lists: list[list[float]] = self._dense.tolist()
        self._widest = widest
        self._slopes = [_slope(line) for line in self._points.values()]

    @classmethod
    def of(cls, points: Mapping[int, float]) -> Self:
        """Make a curve that does not depend on the context from n -> seconds."""
        return cls({0: points})

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"1=31,4=30,16=53,64=151"``: tokens = milliseconds, at any context.

        Raises
        ------
        UsageError
            Naming the piece that cannot be read.
        """
        points: dict[int, float] = {}
        for piece in text.split(","):
            size, _, milliseconds = piece.partition("=")
            try:
                n, seconds = int(size), float(milliseconds) / 1000
            except ValueError:
                n, seconds = 0, 0.0
            if not 1 <= n <= _WIDEST or not 0 < seconds < math.inf:
                raise UsageError(
                    f"cost curve piece {piece.strip()!r} cannot be read: write tokens=milliseconds, as in 1=31"
                )
            if n in points:
                raise UsageError(
                    f"cost curve piece {piece.strip()!r}: {n} tokens were given before; leave one out"
                )
            points[n] = seconds
        return cls.of(points)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the file that ``draftwood profile -o FILE`` wrote.

        Raises
        ------
        UsageError
            If it cannot be opened.
        RecordError
            If it is no profile or broken, naming the line.
        """
        points: dict[int, dict[int, float]] = {}
        for number, row in read_profile(path):
            if row["row"] != "pass":
                continue
            try:
                context, n, seconds = index(row["context"]), index(row["n"]), float(row["median_s"])
                CostCurve({context: {n: seconds}})
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(
                    f"{path}, line {number}: this pass row is broken ({_said(error)}); measure it again "
                    "with draftwood profile"
                ) from error
            points.setdefault(context, {})[n] = seconds
        if not points:
            raise RecordError(
                f"{path} holds no pass rows, so it is no profile: give the file that draftwood profile -o "
                "NEW.jsonl writes"
            )
        return cls(points)

    def seconds(self, n: int, context: int = 0) -> float:
        """Return the seconds of a pass over ``n`` tokens (the root included) at this context length."""
        if context <= self._first or len(self._lists) == 1:
            return self._at(0, n)
        right = min(bisect_right(self._contexts, context), len(self._contexts) - 1)
        low, high = self._at(right - 1, n), self._at(right, n)
        before, after = self._contexts[right - 1], self._contexts[right]
        found = low + (high - low) * (context - before) / (after - before)
        return max(found, high) if context > after else found

    def many(self, n: Sequence[int] | NDArray[Any], context: int = 0) -> NDArray[np.float64]:
        """Return the same for each of ``n``, float64[len(n)]."""
        sizes = np.asarray(n)
        if context <= self._first or len(self._lists) == 1:
            return self._row(0, sizes)
        right = min(bisect_right(self._contexts, context), len(self._contexts) - 1)
        low, high = self._row(right - 1, sizes), self._row(right, sizes)
        before, after = self._contexts[right - 1], self._contexts[right]
        found = low + (high - low) * (context - before) / (after - before)
        return np.maximum(found, high) if context > after else found

    @property
    def contexts(self) -> tuple[int, ...]:
        """The measured context lengths, ascending."""
        return tuple(self._contexts)

    def points(self) -> Iterator[tuple[int, int, float]]:
        """Yield what was measured: (context, n, seconds), ascending."""
        for context, line in self._points.items():
            yield from ((context, n, seconds) for n, seconds in line.items())

    def to_json(self) -> dict[str, list[list[float]]]:
        """Return a JSON-ready dictionary: context -> [[n, seconds], ...]."""
        return {str(c): [[n, seconds] for n, seconds in line.items()] for c, line in self._points.items()}

    @classmethod
    def from_json(cls, found: Mapping[str, Sequence[Sequence[float]]]) -> Self:
        """Read what `to_json` gave; raises `UsageError` for anything else."""
        try:
            return cls({int(c): {int(n): float(s) for n, s in line} for c, line in found.items()})
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"this is no cost curve ({_said(error)}): write it with to_json") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CostCurve) and self._points == other._points

    def __hash__(self) -> int:
        return hash(tuple(self.points()))

    def __repr__(self) -> str:
        return f"CostCurve({self._points})"

    def _at(self, which: int, n: int) -> float:
        if n <= self._widest:
            return self._lists[which][max(n, 0)]
        return self._lists[which][-1] + (n - self._widest) * self._slopes[which]

    def _row(self, which: int, sizes: NDArray[Any]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = self._dense[which, np.clip(sizes, 0, self._widest)]
        return found + np.maximum(sizes - self._widest, 0) * self._slopes[which]


def read_profile(path: str | Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and row of a profile's file, its header first.

    Raises
    ------
    UsageError
        If the file cannot be opened.
    RecordError
        If it is no profile or broken, naming the line.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"the profile {path} cannot be read ({error.strerror}): check its name") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{path} is no text: give a file of draftwood profile -o") from error
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            kind = row["row"]
        except (ValueError, KeyError, TypeError) as error:
            if 1 < number == len(lines) and not text.endswith("\n"):  # as in all files of rows
                log.warning("%s ends in a record that was cut off (line %d): it is left out", path, number)
                return
            raise RecordError(
                f"{path}, line {number}: this is no row of a profile; name a file of draftwood profile -o"
            ) from error
        if number == 1 and (kind, row.get("verb"), row.get("format")) != ("header", "profile", FORMAT):
            raise RecordError(
                f"{path}, line 1: this is no profile of format {FORMAT}: give the file that draftwood profile -o "
                "NEW.jsonl writes"
            )
        if number > 1 and kind not in ("pass", *_BESIDE):
            raise RecordError(
                f"{path}, line {number}: nobody knows rows of kind {kind!r}; written by another version?"
            )
        yield number, row


def _straight(line: Mapping[int, float], widest: int) -> NDArray[np.float64]:
    """Seconds at 0 .. widest: straight between the points, flat before the first, as steep beyond the last."""
    sizes, seconds = np.array(list(line)), np.array(list(line.values()))
    all_sizes = np.arange(widest + 1)
    return np.interp(all_sizes, sizes, seconds) + np.maximum(all_sizes - sizes[-1], 0) * _slope(line)


def _slope(line: Mapping[int, float]) -> float:
    """Seconds per token beyond the last point: those of the last segment, never downwards."""
    if len(line) < 2:
        return 0.0
    (before, low), (after, high) = list(line.items())[-2:]
    return max(0.0, (high - low) / (after - before))


def _said(error: Exception) -> str:
    if isinstance(error, KeyError):
        return f"{error} is missing"
    return str(error).partition(":")[0] or type(error).__name__
