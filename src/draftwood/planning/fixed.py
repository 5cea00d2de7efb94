"""The simplest planner: the same number of draft nodes in every step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from draftwood.contracts import Ask, Drafter, Feedback, Plan, State
from draftwood.errors import UsageError
from draftwood.planning.beliefs import Beliefs
from draftwood.planning.budget import depth_limit, merge_and_cut, node_limit
from draftwood.tree import TokenTree

CHAIN_OF = 4
"""A target without trees gets the best chain of a tree of so many times its length: 2 to 4 % more per pass."""


@dataclass(frozen=True)
class FixedPlanner:
    """Score at most ``nodes`` draft nodes per request and step, after merging; probes whole.

    Which ones, beliefs decide, that it learns from every pass.

    Parameters
    ----------
    nodes
        0 is plain decoding.
    floor
        Nodes are left out that are less likely than this to be reached and taken: where a node more makes a pass
        dearer, the unlikely ones do not pay. 0 fills every pass.

    Raises
    ------
    UsageError
        If ``nodes`` is negative or ``floor`` no probability.
    """

    nodes: int = 16
    floor: float = 0.0
    beliefs: Beliefs = field(default_factory=Beliefs, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.nodes < 0:
            raise UsageError(f"fixed:{self.nodes} asks for fewer than no draft nodes: use 0 or more")
        if not 0 <= self.floor <= 1:
            raise UsageError(f"fixed: floor must lie between 0 and 1, not {self.floor}")

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        asks = []
        for state in states:
            nodes = min(self.nodes, depth_limit(state), node_limit(state))
            probes = node_limit(state) - nodes if state.capabilities.trees else 0
            if not state.capabilities.trees:  # one branch is kept, and the best of a bigger tree is a better one
                nodes *= CHAIN_OF
            asks.append([self._ask(d, state.greedy, nodes, probes) for d in state.drafters])
        return asks

    def _ask(self, drafter: Drafter | None, greedy: bool, nodes: int, probes: int) -> Ask:
        return Ask(nodes, probes, self.beliefs.odds(drafter, greedy=greedy)) if drafter else _NOTHING

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        pairs = zip(states, proposals, strict=True)
        return [merge_and_cut(state, trees, self.nodes, self.floor) for state, trees in pairs]

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        """Learn how often each source's reasons are good ones."""
        taught: dict[int, tuple[Drafter, bool, list[Feedback]]] = {}  # by rates: drafters of one kind share them
        for state, lessons in zip(states, feedback, strict=True):
            for drafter, lesson in zip(state.drafters, lessons, strict=True):
                if drafter:
                    key = id(self.beliefs.rates(drafter, greedy=state.greedy))
                    taught.setdefault(key, (drafter, state.greedy, []))[2].append(lesson)
        for drafter, greedy, some in taught.values():
            self.beliefs.learn(drafter, some, greedy=greedy)


_NOTHING = Ask(0, 0, TokenTree.empty().belief)
