"""What planners have learnt about one target, shared by all calls; it holds no tokens of any text."""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import RLock
from typing import Any
from weakref import WeakSet

from draftwood.planning.beliefs import Beliefs
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel

_KNOWN = 0.15
"""Standard deviation (in logarithms) up to which a cost that no curve told counts as learnt."""


_every: WeakSet[Learned] = WeakSet()


class Learned:
    """Beliefs about sources and costs of passes on one target.

    Parameters
    ----------
    beliefs
        What is known of the sources; by default nothing.
    curve
        Cost of a pass as it was measured on this machine; None: the first passes tell.
    setting
        Model, number format, machine and the like: what costs depend on; None where nobody knows.

    Attributes
    ----------
    lock
        Held by planners while they read or learn: several threads may write with one target.
    """

    def __init__(
        self,
        beliefs: Beliefs | None = None,
        curve: CostCurve | None = None,
        setting: Mapping[str, Any] | None = None,
    ) -> None:
        self.beliefs = beliefs if beliefs is not None else Beliefs()
        self.curve = curve
        self.setting = setting
        self.lock = RLock()
        _every.add(self)
        self._costs: dict[int, CostModel] = {}
        self._taken: set[str] = set()

    def cost(self, rows: int) -> CostModel:
        """Return what is known of passes over so many texts at once; counts close to each other share it."""
        size = rows.bit_length()
        if size not in self._costs:
            nearest = min(self._costs, key=lambda known: abs(known - size), default=None)
            self._costs[size] = CostModel(self.curve) if nearest is None else self._costs[nearest].widened()
        return self._costs[size]

    def corrected(self) -> CostCurve | None:
        """Return the curve of passes over one text, as these have corrected it; None if nobody knows any of it."""
        model = self.cost(1)
        if not model.passes:
            return self.curve
        if self.curve is not None:
            points: dict[int, dict[int, float]] = {}
            for context, n, _ in self.curve.points():
                points.setdefault(context, {})[n] = model.seconds(n, context)
            return CostCurve(points)
        learnt = {n: seconds for n, seconds in model.points(0).items() if model.deviation(n) <= _KNOWN}
        return CostCurve.of(learnt) if learnt else None

    def take(self, name: str, beliefs: list[dict[str, Any]], curve: CostCurve | None) -> None:
        """Begin with what was kept under this name where nothing is known yet; a second time changes nothing."""
        if name in self._taken:
            return
        self._taken.add(name)
        self.beliefs.take(beliefs)
        if curve is not None and not any(model.passes for model in self._costs.values()):
            self.curve = curve
            self._costs.clear()


def _renew_locks() -> None:
    """Of a child of fork: a lock that another thread of its parent held stays held in it for ever."""
    for learned in _every:
        learned.lock = RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)
