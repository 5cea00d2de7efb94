"""What a pass with a draft adds to the plain pass behind it: llama.cpp plans its work anew when the width changes.

On llama.cpp this is 0.5 to 1 ms where a plain pass takes 5.5, in the transformers engine nothing.
"""

from __future__ import annotations

import math
from typing import Any, Self

_KEEP = 0.95  # weight of earlier passes in the averages
_MOST = 0.5  # plain passes: more comes from something else


class SwitchCost:
    """An average of the seconds by which plain passes behind wide ones took longer than others."""

    def __init__(self) -> None:
        self.behind = 0.0  # seconds
        self._share = 0.5  # of the passes with a draft, how many have a plain one behind them

    @property
    def charge(self) -> float:
        """Seconds that a pass with a draft is expected to add to the next one."""
        return self._share * max(0.0, self.behind)

    def learn(self, *, plain: bool, excess: float, expected: float) -> None:
        """Record the pass behind one with a draft: whether it was plain, by how many seconds it took longer than
        ``expected``.
        """
        self._share = _KEEP * self._share + (1 - _KEEP) * plain
        if plain and math.isfinite(excess):
            clipped = min(_MOST * expected, max(-_MOST * expected, excess))
            self.behind = _KEEP * self.behind + (1 - _KEEP) * clipped

    def state(self) -> list[float]:
        """Return what was learnt, JSON-ready, for `restored`."""
        return [float(f"{self.behind:.6g}"), round(self._share, 6)]

    @classmethod
    def restored(cls, state: Any) -> Self:
        """Return what an earlier process has learnt; `ValueError` if it is damaged."""
        cost = cls()
        behind, share = map(float, state)
        if not math.isfinite(behind) or not 0 <= share <= 1:
            raise ValueError("the learnt cost of a change of width is damaged")
        cost.behind, cost._share = behind, share
        return cost
