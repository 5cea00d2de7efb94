"""The published rule of n-gram copying: score candidates whose probability exceeds a threshold."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.errors import UsageError
from draftwood.planning.base import Policy
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.learned import Learned


class ThresholdPlanner(FixedPlanner):
    """Scores the candidates whose cumulative probability is at least ``p``.

    Parameters
    ----------
    p
        Probability of a node and all above it, in [0, 1], as beliefs have it.
    most
        Most draft nodes per request, however likely.
    learned, policies
        As of every planner.

    Raises
    ------
    UsageError
        If ``p`` is no probability or ``most`` negative.
    """

    name = "threshold"

    def __init__(
        self, p: float = 0.25, most: int = 64, *, learned: Learned | None = None, policies: Sequence[Policy] = ()
    ) -> None:
        if not 0 <= p <= 1:
            raise UsageError(f"threshold: p is {p}: give a probability between 0 and 1")
        if most < 0:
            raise UsageError(f"threshold: most is {most}: use 0 draft nodes or more")
        super().__init__(most, p, learned=learned, policies=policies)
