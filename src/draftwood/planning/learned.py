"""What a planner has learnt about one target, carried from call to call; tokens of a text are not among it."""

from __future__ import annotations

from draftwood.planning.beliefs import Beliefs
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel


class Learned:
    """Beliefs about sources and costs of passes on one target.

    Parameters
    ----------
    beliefs
        What is known of the sources; by default nothing.
    curve
        Cost of a pass as it was measured on this machine; None: the first passes tell.
    """

    def __init__(self, beliefs: Beliefs | None = None, curve: CostCurve | None = None) -> None:
        self.beliefs = beliefs if beliefs is not None else Beliefs()
        self.curve = curve
        self._costs: dict[int, CostModel] = {}

    def cost(self, rows: int) -> CostModel:
        """Return what is known of passes over so many texts at once; counts close to each other share it."""
        size = rows.bit_length()
        if size not in self._costs:
            nearest = min(self._costs, key=lambda known: abs(known - size), default=None)
            self._costs[size] = CostModel(self.curve) if nearest is None else self._costs[nearest].widened()
        return self._costs[size]
