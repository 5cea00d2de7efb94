"""The base of all planners, which asks drafters, ranks candidates and applies policies, and what a policy is."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from draftwood.contracts import Ask, Declaration, Feedback, Plan, Planner, PlannerSession, Prices, State
from draftwood.planning.learned import Learned
from draftwood.planning.ranking import Ranking, depth_limit, node_limit, nothing_ranked, rank
from draftwood.tree import NO_CLAIM, TokenTree

_CHAIN_OF = 4  # for a target without trees drafters are asked for four times the nodes; the best chain is scored
_TOGETHER = 6
"""Passes with drafts whose labels are learnt together; fewer at first and at a text's end. Learning makes the
rates be computed anew, with caches of the processor that the pass has emptied."""
_Lessons = dict[tuple[str, bool], tuple[Declaration, list[Feedback]]]  # of a pass, by label and whether greedy
NOTHING = Ask(0, 0, TokenTree.empty().belief)
_UNKNOWN = Prices()
RESTING = NOTHING._replace(resting=True)


@dataclass(frozen=True, slots=True)
class Limit:
    """What a policy allows one request in one step, and why."""

    nodes: int | None = None  # most draft nodes; None: no limit
    drafters: Sequence[bool] | None = None  # which drafters of the set may be asked; None: all of them
    why: str = ""  # the reason in a few words, as in "43.0 °C"


class Policy(Protocol):
    """Makes a planner draft less; never raises, holds requests weakly. Of several the smallest limit counts."""

    @property
    def name(self) -> str:
        """The name that users type after the planner's."""
        ...

    def limit(self, state: State, rows: int, nodes: int) -> Limit:
        """Return what this request may draft in the step that begins, in which ``rows`` requests share the pass
        and the planner and the policies before ask for ``nodes`` draft nodes; called once per step.
        """
        ...

    def learn(self, state: State) -> None:
        """Learn from the finished step, whose record is complete except for the planner's own seconds."""
        ...


class TreePlanner(Planner, PlannerSession):
    """Asks drafters, ranks what they propose, and scores as much as the subclass says and the policies allow.

    It is planner and session in one: `open` returns a shallow copy. All copies share ``learned`` (acceptance rates
    and pass times; by default nothing is known) and hold its lock.
    """

    name: ClassVar[str]
    prices = _UNKNOWN
    """What a token is worth in the step that begins, for drafters that run passes of their own."""

    def __init__(self, learned: Learned | None = None, policies: Sequence[Policy] = ()) -> None:
        self.learned = learned or Learned()
        self.policies = tuple(policies)
        self._untold: list[_Lessons] = []  # what beliefs have not learnt yet
        # Of this session's step: the draft nodes of a request before policies, the limits by request and policy.
        self._wished = 0
        self._limits: list[list[Limit]] = []

    def open(self) -> Self:
        session = copy.copy(self)
        session._untold = []
        return session

    @abstractmethod
    def wish(self, states: Sequence[State]) -> int:
        """Return how many draft nodes to ask each drafter for, per request."""

    @abstractmethod
    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:
        """Return how many candidates of each ranking to score."""

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        with self.learned.lock:
            self._wished, self._limits = self.wish(states), []
            return [self._ask(state, len(states)) for state in states]

    def _ask(self, state: State, rows: int) -> list[Ask]:
        if not (self._wished or self.policies):
            return [NOTHING] * len(state.drafters)
        room = node_limit(state)
        nodes = min(self._wished, depth_limit(state), room)
        limits = []
        for policy in self.policies:
            limits.append(limit := policy.limit(state, rows, nodes))
            nodes = nodes if limit.nodes is None else min(nodes, limit.nodes)
        self._limits.append(limits)
        if not nodes:
            return [NOTHING] * len(state.drafters)
        trees = state.capabilities.trees
        lookahead_nodes, nodes = (room - nodes, nodes) if trees else (0, nodes * _CHAIN_OF)
        asked: list[Declaration | None] = list(state.drafters)
        for limit in limits:
            if limit.drafters is not None:
                asked = [one if may else None for one, may in zip(asked, limit.drafters, strict=False)]
        return [NOTHING if one is None else self.ask_one(one, state, nodes, lookahead_nodes) for one in asked]

    def ask_one(self, drafter: Declaration, state: State, nodes: int, lookahead_nodes: int) -> Ask:
        """Return what one drafter is asked for."""
        rates = self.learned.beliefs.accept_rates(drafter, greedy=state.greedy)
        return Ask(nodes, lookahead_nodes, rates, prices=self.prices if drafter.needs.prices else _UNKNOWN)

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        with self.learned.lock:
            return self._plan(states, proposals)

    def _plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        if self.policies or any([len(tree) for trees in proposals for tree in trees]):
            rankings = [
                rank(
                    state, [self._believed(d, state, tree) for d, tree in zip(state.drafters, trees, strict=True)]
                )
                for state, trees in zip(states, proposals, strict=True)
            ]
        else:  # as in most steps of a text from which nothing can be copied
            rankings = [nothing_ranked(len(trees)) for trees in proposals]
        if self.policies:
            rankings = list(map(self._held, states, rankings, self._limits))
        counts = self.choose(states, rankings)
        for i, (state, ranking, count) in enumerate(zip(states, rankings, counts, strict=True)):
            if state.traced:
                said = self.trace(state, ranking, count)
                if self.policies:
                    said["policies"] = [
                        [policy.name, limit.why]
                        for policy, limit in zip(self.policies, self._limits[i], strict=True)
                    ]
                state.step.trace = {"plan": said}
        return [ranking.cut(count) for ranking, count in zip(rankings, counts, strict=True)]

    def _held(self, state: State, ranking: Ranking, limits: Sequence[Limit]) -> Ranking:
        """Return the ranking cut to what the policies allow; `Step.held` names the policies that cut it."""
        least = min((limit.nodes for limit in limits if limit.nodes is not None), default=None)
        if least is None:
            return ranking
        if least < max(len(ranking.order), min(self._wished, ranking.depth, ranking.room)):
            state.step.held = tuple(
                policy.name for policy, limit in zip(self.policies, limits, strict=True) if limit.nodes == least
            )
        return ranking._replace(order=ranking.order[:least], worth=ranking.worth[:least])

    def _believed(self, drafter: Declaration | None, state: State, tree: TokenTree) -> TokenTree:
        """Return the tree with learnt acceptance rates in place of those that the drafter claims."""
        if drafter is None or tree.is_grown or not len(tree):
            return tree
        accept_rates = self.learned.beliefs.accept_rates(drafter, greedy=state.greedy)
        belief = accept_rates[tree.evidence]
        if drafter.needs.base_tree:
            belief = np.where(tree.evidence == NO_CLAIM, np.float32(0), belief)
        return tree if belief.tobytes() == tree.belief.tobytes() else replace(tree, belief=belief)

    def trace(self, state: State, ranking: Ranking, count: int) -> dict[str, Any]:
        """Return what explains this choice, JSON-ready, for `Step.trace`."""
        return {
            "planner": self.name,
            "asked": max((own.asked for own in state.step.by_source), default=0),
            "candidates": len(ranking.order),
            "chosen": count,
            "policies": [],
        }

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        """Learn how often each drafter's nodes were right, and let the policies see the step."""
        untold, ended = self._untold, False
        taught: _Lessons = {}
        for state, lessons in zip(states, feedback, strict=True):
            for drafter, lesson in zip(state.drafters, lessons, strict=True) if lessons else ():
                if drafter is not None and len(lesson.proposal):  # drafters of one label share rates
                    taught.setdefault((drafter.label, state.greedy), (drafter, []))[1].append(lesson)
            if self.policies:
                with self.learned.lock:
                    for policy in self.policies:
                        policy.learn(state)
            ended = ended or state.step.finish is not None
        if taught:
            untold.append(taught)
        if untold:
            with self.learned.lock:
                if ended or len(untold) >= self._enough(untold):
                    self._untold = []
                    for passed in untold:
                        for (_, greedy), (drafter, some) in passed.items():
                            self.learned.beliefs.learn(drafter, some, greedy=greedy)

    def _enough(self, untold: Sequence[_Lessons]) -> int:
        """Return how many passes to learn from at once: few while a drafter's prior may be wrong."""
        passes = [
            self.learned.beliefs.rates(drafter, greedy=greedy).passes
            for some in untold
            for (_, greedy), (drafter, _) in some.items()
        ]
        return min(_TOGETHER, 1 + min(passes) // 4)
