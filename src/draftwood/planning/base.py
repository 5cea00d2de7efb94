"""What all planners share: beliefs, the order of candidates, policies. How many are scored, each decides."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from draftwood.contracts import Ask, Declaration, Feedback, Plan, State
from draftwood.planning.learned import Learned
from draftwood.planning.ranking import Ranking, depth_limit, node_limit, rank
from draftwood.tree import NO_CLAIM, TokenTree

CHAIN_OF = 4
"""A target without trees gets the best chain of a tree of so many times its length: 2 to 4 % more per pass."""


class Policy(Protocol):
    """A reason to draft less than a planner would; the smallest answer of all wins.

    What it keeps of a request is its own affair; it must let go of it with the request. It never raises.
    """

    @property
    def name(self) -> str:
        """As typed after the planner."""
        ...

    def limit(self, state: State, rows: int) -> int | None:
        """Most draft nodes of this request now, of ``rows`` that share the pass; None: no opinion.

        Asked twice in a step, with the same answer.
        """
        ...

    def sources(self, state: State) -> Sequence[bool] | None:
        """Which sources of the set may draft now; None: all of them."""
        ...

    def learn(self, state: State) -> None:
        """Take in the step that was made; the request's `Step` tells all but the planner's own seconds."""
        ...

    def why(self) -> str:
        """What made it answer as it did last, for people: ``43.0 °C``."""
        ...


class TreePlanner(ABC):
    """Asks sources, ranks what they propose, scores as much as the subclass says and the policies allow.

    Planner and session in one: what a step leaves for the next call of its own session is written to the copy that
    `open` makes; everything else is shared by all sessions, and read and written behind the lock of ``learned``.

    Parameters
    ----------
    learned
        Goes on with this; by default with nothing.
    policies
        Each may limit each request.
    """

    name: ClassVar[str]

    def __init__(self, learned: Learned | None = None, policies: Sequence[Policy] = ()) -> None:
        self.learned = learned if learned is not None else Learned()
        self.policies = tuple(policies)
        self._wished = 0  # draft nodes of a request, before policies; of this session's step

    def open(self) -> Self:
        """Return a session: it shares what was learnt, and keeps its steps to itself."""
        return copy.copy(self)

    @abstractmethod
    def wish(self, states: Sequence[State]) -> int:
        """Draft nodes worth asking a source for, for each request."""

    @abstractmethod
    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:
        """How many candidates of each ranking to score."""

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        with self.learned.lock:
            self._wished = self.wish(states)
            return [self._ask(state, len(states)) for state in states]

    def _ask(self, state: State, rows: int) -> list[Ask]:
        nodes = min(self._wished, depth_limit(state), node_limit(state))
        if self.policies:
            limit, _ = self._limit(state, rows)
            nodes = nodes if limit is None else min(nodes, limit)
        if not nodes:
            return [NOTHING] * len(state.drafters)
        lookahead_nodes = node_limit(state) - nodes if state.capabilities.trees else 0
        if not state.capabilities.trees:  # one branch is kept, and the best of a bigger tree is a better one
            nodes *= CHAIN_OF
        allowed = self._allowed(state) if self.policies else None
        return [
            self.ask_one(drafter, state, nodes, lookahead_nodes)
            if drafter is not None and (allowed is None or allowed[i])
            else NOTHING
            for i, drafter in enumerate(state.drafters)
        ]

    def _limit(self, state: State, rows: int) -> tuple[int | None, tuple[Policy, ...]]:
        """The smallest answer of all policies, and who gave it."""
        answers = [(policy.limit(state, rows), policy) for policy in self.policies]
        least = min((limit for limit, _ in answers if limit is not None), default=None)
        return least, tuple(policy for limit, policy in answers if limit is not None and limit == least)

    def _allowed(self, state: State) -> Sequence[bool] | None:
        """Which sources every policy lets draft; None: all."""
        masks = [mask for policy in self.policies if (mask := policy.sources(state)) is not None]
        return [all(ones) for ones in zip(*masks, strict=True)] if masks else None

    def ask_one(self, drafter: Declaration, state: State, nodes: int, lookahead_nodes: int) -> Ask:
        """Return what one source is asked for."""
        return Ask(nodes, lookahead_nodes, self.learned.beliefs.accept_rates(drafter, greedy=state.greedy))

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        with self.learned.lock:
            return self._plan(states, proposals)

    def _plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        rankings = [
            rank(state, [self._believed(d, state, tree) for d, tree in zip(state.drafters, trees, strict=True)])
            for state, trees in zip(states, proposals, strict=True)
        ]
        if self.policies:
            rankings = [
                self._held(state, ranking, len(states)) for state, ranking in zip(states, rankings, strict=True)
            ]
        counts = self.choose(states, rankings)
        for state, ranking, count in zip(states, rankings, counts, strict=True):
            if state.traced:
                state.step.trace = {"plan": self.trace(state, ranking, count, len(states))}
        return [ranking.cut(count) for ranking, count in zip(rankings, counts, strict=True)]

    def _held(self, state: State, ranking: Ranking, rows: int) -> Ranking:
        """The ranking as far as policies let it go; the step records who held it."""
        limit, policies = self._limit(state, rows)
        if limit is None:
            return ranking
        if limit < max(len(ranking.order), min(self._wished, ranking.depth, ranking.room)):
            state.step.held = tuple(policy.name for policy in policies)
        return replace(ranking, order=ranking.order[:limit], worth=ranking.worth[:limit])

    def _believed(self, drafter: Declaration | None, state: State, tree: TokenTree) -> TokenTree:
        """The tree as believed here: whatever it claims, its classes have rates of their own."""
        if drafter is None or not len(tree):
            return tree
        belief = self.learned.beliefs.accept_rates(drafter, greedy=state.greedy)[tree.evidence]
        if drafter.needs.base_tree:
            belief = np.where(tree.evidence == NO_CLAIM, np.float32(0), belief)
        return tree if belief.tobytes() == tree.belief.tobytes() else replace(tree, belief=belief)

    def trace(self, state: State, ranking: Ranking, count: int, rows: int) -> dict[str, Any]:
        """Return what there is to say of this choice, JSON-ready, for `Step.trace`."""
        self._limit(state, rows)  # policies give the reasons of the request that they were asked about last
        self._allowed(state)
        return {
            "planner": self.name,
            "rows": rows,
            "asked": max((own.asked for own in state.step.by_source), default=0),
            "candidates": len(ranking.order),
            "chosen": count,
            "policies": [[policy.name, policy.why()] for policy in self.policies],
        }

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        """Learn how often each source's reasons are good ones, and let the policies see the step."""
        with self.learned.lock:
            self._learn(states, feedback)

    def _learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        beliefs = self.learned.beliefs
        taught: dict[
            int, tuple[Declaration, bool, list[Feedback]]
        ] = {}  # by rates: drafters of one kind share them
        for state, lessons in zip(states, feedback, strict=True):
            for drafter, lesson in zip(state.drafters, lessons, strict=True):
                if drafter:
                    key = id(beliefs.rates(drafter, greedy=state.greedy))
                    taught.setdefault(key, (drafter, state.greedy, []))[2].append(lesson)
            for policy in self.policies:
                policy.learn(state)
        for drafter, greedy, some in taught.values():
            beliefs.learn(drafter, some, greedy=greedy)


NOTHING = Ask(0, 0, TokenTree.empty().belief)
