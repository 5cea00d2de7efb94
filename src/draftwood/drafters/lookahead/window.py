"""The two-dimensional window of lookahead decoding: guesses at the next tokens, from the last few passes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from numpy.typing import NDArray

VARIANTS = ("authors", "llama.cpp")

Text = Sequence[int] | NDArray[Any]


def most_nodes(width: int, size: int) -> int:
    """Most nodes of a window, warming up included: then a narrow one has more nodes than later."""
    # Full it has size - 1 levels of width columns; with f + 1 levels, size - 2 - f columns more. Column 0 of the
    # first level is the root.
    return max((f + 1) * (width + size - 2 - f) - 1 for f in range(size - 1))


class Window:
    """Guesses in levels and columns: ``levels[j][c]`` is a guess at the token ``j + c`` places after the root.

    Level 0 is a chain, whose column 0 stands for the root; each column of a deeper level continues the same column
    of the level above. Scoring the last level gives the next one, as an iteration of Jacobi decoding does. For the
    second and further tokens of a step, the variant of the ``authors`` drops a column each and draws a new one,
    that of ``llama.cpp`` drops the first level and copies the next one to the end.

    The ``options`` are a `LookaheadDrafter`'s. It has a level less than an n-gram has tokens.
    """

    def __init__(self, options: Any) -> None:
        self._options = options
        self.levels: list[list[int]] = []
        self._random = random.Random(options.seed)
        self._fresh = True

    @property
    def full(self) -> bool:
        """Whether the passes of warming up are done, two fewer than an n-gram has tokens."""
        return len(self.levels) == self._options.ngram - 1

    def start(self, text: Text) -> None:
        """Begin again with a first level of random guesses."""
        self._random = random.Random(self._options.seed)
        self._fresh = True
        self.levels = [[0, *self._drawn(self._options.window + self._options.ngram - 3, text)]]

    def _drawn(self, count: int, text: Text) -> list[int]:
        if size := self._options.vocabulary:
            return [self._random.randrange(size) for _ in range(count)]
        if not len(text):
            return [0] * count
        return [int(text[self._random.randrange(len(text))]) for _ in range(count)]

    @property
    def tokens(self) -> list[int]:
        """The nodes to score, level by level."""
        first, *others = self.levels
        return first[1:] + [token for level in others for token in level]

    @property
    def parents(self) -> list[int]:
        """Parent of each node, -1 for the root."""
        return _parents(len(self.levels), len(self.levels[0]))

    def guesses(self, rows: Sequence[int], best: Sequence[int]) -> list[int]:
        """Return the level that a pass adds, from the row of each node in the pass and the ``best`` token of each
        row; row 0 is the root's.
        """
        return [best[row] for row in [0, *rows][-len(self.levels[0]) :]]

    def ngrams(self, root: int, guesses: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Yield per column of a full window its first token and the guesses after it."""
        first, *others = self.levels
        heads = [root, *first[1:]]  # the model saw the root in column 0
        yield from zip(heads, zip(*others, guesses, strict=True), strict=True)

    def move(self, guesses: list[int], emitted: int, text: Text) -> None:
        """Add a level of guesses, and move past the ``emitted`` tokens at the end of the text."""
        self._fresh = False
        steps, full, width = self._steps(emitted), self.full, len(self.levels[0])
        self.levels = [*self.levels, guesses]
        if not full:
            self._forward(steps, width - 1, text)
            return
        del self.levels[0]
        if self._options.variant == "llama.cpp":
            for _ in range(steps - 1):
                above = self.levels[1:]
                self.levels = [*above, (above or self.levels)[0]]
        else:
            self._forward(steps - 1, width, text)

    def skip(self, emitted: int, text: Text) -> None:
        """Move past emitted tokens without new guesses; a window that was never scored stays as it is."""
        if not self._fresh:
            self._forward(self._steps(emitted), len(self.levels[0]), text)

    def _steps(self, emitted: int) -> int:
        return min(1, emitted) if self._options.forward_one else emitted

    def _forward(self, columns: int, width: int, text: Text) -> None:
        if columns or width < len(self.levels[0]):
            kept = [level[columns : columns + width] for level in self.levels]
            kept[0] = kept[0] or [0]  # the root's column is never drawn
            self.levels = [level + self._drawn(width - len(level), text) for level in kept]


@lru_cache(maxsize=256)
def _parents(levels: int, width: int) -> list[int]:
    parents = list(range(-1, width - 2))  # column c of the first level is node c - 1
    for level in range(1, levels):
        above = width * (level - 1) - 1  # of the level above, where its column 0 is, or would be
        parents += range(above, above + width)
    return parents
