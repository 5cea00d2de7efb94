"""What it takes when the width of passes changes."""

from __future__ import annotations

import math
from typing import Any, Self

from draftwood.planning import KEEP_LATELY

_MOST = 0.5  # plain passes: more comes from something else


class SwitchCost:
    """An average of the seconds by which plain passes after wide ones took longer than others.

    llama.cpp plans its work anew when the width changes: 0.5 to 1 ms where a plain pass takes 5.5.
    """

    def __init__(self) -> None:
        self.after = 0.0  # seconds
        self._share = 0.5  # of the passes with a draft, how many are followed by a plain one

    @property
    def charge(self) -> float:
        """Seconds that a pass with a draft is expected to add to the next one."""
        return self._share * max(0.0, self.after)

    def learn(self, *, plain: bool, excess: float, expected: float) -> None:
        """Record the pass after one with a draft: whether it was plain, by how many seconds it took longer than
        ``expected``.
        """
        self._share = KEEP_LATELY * self._share + (1 - KEEP_LATELY) * plain
        if plain and math.isfinite(excess):
            clipped = min(_MOST * expected, max(-_MOST * expected, excess))
            self.after = KEEP_LATELY * self.after + (1 - KEEP_LATELY) * clipped

    def state(self) -> list[float]:
        """Return what was learnt, JSON-ready, for `restored`."""
        return [float(f"{self.after:.6g}"), round(self._share, 6)]

    @classmethod
    def restored(cls, state: Any) -> Self:
        """Return what an earlier process has learnt; `ValueError` if it is damaged."""
        cost = cls()
        after, share = map(float, state)
        if not math.isfinite(after) or not 0 <= share <= 1:
            raise ValueError("the learnt cost of a change of width is damaged")
        cost.after, cost._share = after, share
        return cost
