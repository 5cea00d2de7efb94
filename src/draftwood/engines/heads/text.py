"""What a head knows of one text, whatever engine computes it: its pairs, and the nodes that grow after them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from draftwood.contracts import Floats, Ints

State = TypeVar("State")
"""What a head made of a pair, [width], in an engine's own kind of array."""
Request = tuple[Any, Sequence[int], Sequence[int]]
"""A `GrowingText`, and tokens and parents of new nodes."""
Rows = TypeVar("Rows")


class GrownTree(NamedTuple):
    """A tree that a head has grown in one call.

    ``columns`` int32[3, n] has tokens, parents and evidence classes, ``numbers`` float32[3, n] beliefs, the head's
    own probabilities, and how likely nodes are reached and right; ``beliefs`` are in the best child of each node
    that was read, the text's end first. Its passes took ``seconds``.
    """

    columns: Ints
    numbers: Floats
    beliefs: list[float]
    seconds: float


class HeadText:
    """Pairs of a text, each a hidden state and the token after it. ``positions`` are those of the states: they
    ascend, and some may be missing."""

    def __init__(self) -> None:
        self.positions: list[int] = []

    @property
    def length(self) -> int:
        """Committed pairs."""
        return len(self.positions)

    def truncate(self, position: int) -> None:
        """Drop pairs whose state lies at this position or after it."""
        while self.positions and self.positions[-1] >= position:
            self.positions.pop()


class GrowingText(HeadText, Generic[State]):
    """The same with grown nodes. ``lines`` has of each node its ancestors, the oldest first, and itself."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[list[int]] = []
        self._last: State | None = None  # what the head made of the last committed pair
        self._made: list[State] = []  # and of each grown node

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
        before = self.length
        self.forget_grown()
        super().truncate(position)
        if self.length < before:
            self._last = None  # what the head made of the one before is not known any more

    def begin(self, parents: Sequence[int]) -> tuple[list[State], list[int]]:
        """Begin new nodes; returns the states that the head reads for them, and their positions. ``parents`` are
        places of nodes grown before; -1 is the last committed pair."""
        assert self._last is not None
        end, first, states = self.positions[-1] + 1, len(self.lines), []
        for node, parent in enumerate(parents, first):
            states.append(self._made[parent] if parent >= 0 else self._last)
            self.lines.append([*(self.lines[parent] if parent >= 0 else ()), node])
        return states, [end + len(line) - 1 for line in self.lines[first:]]

    def finish(self, made: Sequence[State]) -> None:
        """Take what the head made of the new nodes."""
        self._made += made

    def take(self, other: GrowingText[State]) -> None:
        """Begin with the pairs of another text."""
        self.positions, self._last = list(other.positions), other._last


def grown(
    requests: Sequence[Request], one_pass: Callable[[Sequence[Request]], Sequence[Rows]]
) -> list[list[Rows]]:
    """Run passes over new nodes; returns for each request what the passes gave for it, in order. A node whose
    parent is new as well waits for what the head makes of the parent."""
    found: list[list[Rows]] = [[] for _ in requests]
    at = [0] * len(requests)
    while left := [i for i, (_, tokens, _) in enumerate(requests) if at[i] < len(tokens)]:
        some = []
        for i in left:
            text, tokens, parents = requests[i]
            waiting = (n for n in range(at[i], len(parents)) if parents[n] >= text.nodes)
            end = next(waiting, len(parents))
            some.append((text, tokens[at[i] : end], parents[at[i] : end]))
            at[i] = end
        for i, rows in zip(left, one_pass(some), strict=True):
            found[i].append(rows)
    return found


class ReducedScores:
    """Scores of a vocabulary of some of the target's tokens: ``ids`` int32[v] has the token of each place."""

    def __init__(self, scores: Any, ids: Ints) -> None:
        self._scores, self._ids = scores, ids

    def top_k(self, k: int) -> tuple[Ints, Floats]:
        """Ids int32[rows, k] and probabilities float32[rows, k], among these tokens, as `Scores.top_k`."""
        places, probabilities = self._scores.top_k(k)
        return np.asarray(self._ids[places], dtype=np.int32), probabilities
