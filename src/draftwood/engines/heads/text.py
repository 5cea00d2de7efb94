"""What a head knows of one text: its pairs, and a tree that grows after them."""

from __future__ import annotations

from typing import NamedTuple

from draftwood.contracts import Floats, Ints


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
