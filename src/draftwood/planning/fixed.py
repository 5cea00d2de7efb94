"""Planners without a cost model: a fixed number of draft nodes per step, a probability threshold, or no drafts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.contracts import State
from draftwood.errors import LARGEST, number
from draftwood.planning.base import Policy, TreePlanner
from draftwood.planning.learned import Learned
from draftwood.planning.ranking import Ranking


class FixedPlanner(TreePlanner):
    """Scores at most ``nodes`` draft nodes per request and step, likeliest first; 0 is plain decoding.

    Nodes whose probability of being reached and accepted is below ``floor`` are left out. Lookahead nodes do not
    count.
    """

    name = "fixed"

    def __init__(
        self, nodes: int = 16, floor: float = 0.0, *, learned: Learned | None = None,
        policies: Sequence[Policy] = (),
    ) -> None:  # fmt: skip
        super().__init__(learned, policies)
        number(nodes, 0, LARGEST, "fixed:{} asks for fewer than no draft nodes: use 0 or more", whole=True)
        number(floor, 0, 1, "fixed: floor must lie between 0 and 1, not {}")
        self.nodes, self.floor = nodes, floor

    def wish(self, states: Sequence[State]) -> int:  # noqa: ARG002
        return self.nodes

    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:  # noqa: ARG002
        return [min(self.nodes, sum([worth >= self.floor for worth in r.worth])) for r in rankings]

    def trace(self, state: State, ranking: Ranking, count: int) -> dict[str, Any]:
        return super().trace(state, ranking, count) | {"nodes": self.nodes, "floor": self.floor}


class ThresholdPlanner(FixedPlanner):
    """Scores at most ``most`` candidates, with a probability of being reached and accepted of at least ``p``."""

    name = "threshold"

    def __init__(
        self, p: float = 0.25, most: int = 64, *, learned: Learned | None = None, policies: Sequence[Policy] = ()
    ) -> None:
        number(p, 0, 1, "threshold: p is {}: give a probability between 0 and 1")
        number(most, 0, LARGEST, "threshold: most is {}: use 0 draft nodes or more", whole=True)
        super().__init__(most, p, learned=learned, policies=policies)


class OffPlanner(FixedPlanner):
    """Plain decoding through the same loop: drafters read the text and are never asked for drafts."""

    name = "off"

    def __init__(self, *, learned: Learned | None = None, policies: Sequence[Policy] = ()) -> None:
        super().__init__(0, learned=learned, policies=policies)
