"""What a head knows of one text, whatever engine computes it: its pairs, and the nodes grown behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

State = TypeVar("State")
"""What a head made of a pair, [width], in an engine's own kind of array."""


class HeadText(Generic[State]):
    """Pairs of a text, each a hidden state and the token behind it, and grown nodes.

    Attributes
    ----------
    positions
        Of the states of the committed pairs, ascending; some may be missing between them.
    lines
        Of each grown node, its ancestors and itself.
    """

    def __init__(self) -> None:
        self.positions: list[int] = []
        self.lines: list[list[int]] = []
        self._last: State | None = None  # what the head made of the last committed pair
        self._made: list[State] = []  # and of each grown node

    @property
    def length(self) -> int:
        """Committed pairs."""
        return len(self.positions)

    @property
    def nodes(self) -> int:
        """Grown nodes."""
        return len(self._made)

    def commit(self, positions: Sequence[int], last: State) -> None:
        """Keep pairs that were just read; ``last`` is what the head made of the last one."""
        self.positions += positions
        self._last = last

    def forget_grown(self) -> None:
        """Drop all grown nodes."""
        self._made, self.lines = [], []

    def truncate(self, position: int) -> None:
        """Drop pairs whose state lies at this position or behind it."""
        self.forget_grown()
        while self.positions and self.positions[-1] >= position:
            self.positions.pop()
            self._last = None  # what the head made of the one before is not known any more

    def begin(self, parents: Sequence[int]) -> tuple[list[State], list[int]]:
        """Begin new nodes; returns the states that the head reads for them, and their positions.

        ``parents`` are places of nodes grown before; -1 is the last committed pair.
        """
        assert self._last is not None
        end, first, states = self.positions[-1] + 1, len(self.lines), []
        for node, parent in enumerate(parents, first):
            states.append(self._made[parent] if parent >= 0 else self._last)
            self.lines.append([*(self.lines[parent] if parent >= 0 else ()), node])
        return states, [end + len(line) - 1 for line in self.lines[first:]]

    def finish(self, made: Sequence[State]) -> None:
        """Take what the head made of the new nodes."""
        self._made += made

    def take(self, other: HeadText[State]) -> None:
        """Begin with the pairs of another text."""
        self.positions, self._last = list(other.positions), other._last
