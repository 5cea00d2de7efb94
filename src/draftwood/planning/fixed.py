"""The simplest planner: the same number of draft nodes in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import Policy, TreePlanner
from draftwood.planning.learned import Learned
from draftwood.planning.ranking import Ranking


class FixedPlanner(TreePlanner):
    """Scores at most ``nodes`` draft nodes per request and step, after merging; probes whole.

    The likeliest ones are taken, by acceptance rates that are learnt from every pass.

    Parameters
    ----------
    nodes
        0 is plain decoding.
    floor
        Nodes with a smaller probability of being reached and accepted are left out; 0 leaves none out.
    learned, policies
        As of every planner.

    Raises
    ------
    UsageError
        If ``nodes`` is negative or ``floor`` no probability.
    """

    name = "fixed"

    def __init__(
        self,
        nodes: int = 16,
        floor: float = 0.0,
        *,
        learned: Learned | None = None,
        policies: Sequence[Policy] = (),
    ) -> None:
        super().__init__(learned, policies)
        if nodes < 0:
            raise UsageError(f"fixed:{nodes} asks for fewer than no draft nodes: use 0 or more")
        if not 0 <= floor <= 1:
            raise UsageError(f"fixed: floor must lie between 0 and 1, not {floor}")
        self.nodes, self.floor = nodes, floor

    def wish(self, states: Sequence[State]) -> int:  # noqa: ARG002
        return self.nodes

    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:  # noqa: ARG002
        return [min(self.nodes, int(np.count_nonzero(r.worth >= self.floor))) for r in rankings]

    def trace(self, state: State, ranking: Ranking, count: int, rows: int) -> dict[str, Any]:
        return super().trace(state, ranking, count, rows) | {"nodes": self.nodes, "floor": self.floor}


class OffPlanner(FixedPlanner):
    """Drafts nothing: plain decoding through the same loop; drafters are not asked and still read the text."""

    name = "off"

    def __init__(self, *, learned: Learned | None = None, policies: Sequence[Policy] = ()) -> None:
        super().__init__(0, learned=learned, policies=policies)
