"""What the drafters propose for one request: merged into one tree and ordered by probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import ge

import numpy as np

from draftwood.contracts import Floats, Ints, Plan, State
from draftwood.tree import TokenTree, merge


def depth_limit(state: State) -> int:
    """Return the depth of the deepest draft node worth scoring; a pass adds one token besides accepted ones."""
    return max(0, state.remaining - 1)


def node_limit(state: State) -> int:
    """Return how many nodes one pass over this request can hold besides the root."""
    return max(0, state.capabilities.max_pass - 1)


@dataclass(frozen=True, slots=True)
class Ranking:
    """One request's candidates, in the order in which they are worth scoring."""

    tree: TokenTree  # all proposals, merged
    node_map: tuple[Ints, ...]  # per drafter, the index in ``tree`` of each of its nodes
    order: Ints  # draft nodes that may be scored, parents first; without tree passes those of the best chain
    worth: Floats  # probability of each to be reached and accepted
    depth: int  # limits of the pass: depth of the tree, and number of nodes
    room: int
    n_lookahead: int  # lookahead nodes that may be scored: none on a target without trees

    def cut(self, nodes: int) -> Plan:
        """Return the plan of the first ``nodes`` candidates, with lookahead nodes behind them as far as there is
        room.
        """
        tree, kept = self.tree, self.order[: max(0, nodes)]
        if self.n_lookahead:
            kept = self._with_lookahead(kept)
        if len(kept) == len(tree):
            return Plan(tree, self.node_map)
        count = len(kept)
        if not count:
            return Plan(TokenTree.empty(), tuple(_pruned(len(row)) for row in self.node_map))
        kept = np.sort(kept)
        if kept[-1] == count - 1:  # a drafter that grows its tree best first proposes nodes in this order
            return Plan(tree.head(count), tuple(np.where(row < count, row, -1) for row in self.node_map))
        place = np.full(len(tree) + 1, -1, dtype=np.int32)
        place[kept] = np.arange(len(kept), dtype=np.int32)
        return Plan(tree.take(kept), tuple(place[row] for row in self.node_map))

    def _with_lookahead(self, kept: Ints) -> Ints:
        tree = self.tree
        keep = np.zeros(len(tree) + 1, dtype=np.bool_)
        keep[-1] = True  # the root, reached through parent -1
        keep[kept] = True
        left = self.room - len(kept)
        lookahead_nodes = np.flatnonzero(tree.lookahead & (tree.depth <= self.depth))
        for node in lookahead_nodes.tolist():  # parents come first, so one sweep closes the set
            if left and keep[tree.parents[node]]:
                keep[node] = True
                left -= 1
        return np.flatnonzero(keep[:-1]).astype(np.int32)


def rank(state: State, proposals: Sequence[TokenTree]) -> Ranking:
    """Merge one request's proposals (a tree per drafter of its set) and order the nodes by path probability."""
    depth, room = depth_limit(state), node_limit(state)
    if not any(len(p) for p in proposals):
        return replace(nothing_ranked(len(proposals)), depth=depth, room=room)
    stamped = [p.from_source(i) if i or p.source.any() else p for i, p in enumerate(proposals)]
    tree, rows = merge(stamped)
    worth = tree.path_belief
    if tree.is_chain and not tree.n_lookahead:
        order = _first(min(len(tree), depth, room))
    elif not state.capabilities.trees:
        order = tree.best_chain()[: min(depth, room)]
    else:
        order = _best_first(tree, depth)[:room]
    n_lookahead = tree.n_lookahead if state.capabilities.trees else 0
    return Ranking(tree, tuple(rows), order, worth[order], depth, room, n_lookahead)


@lru_cache(maxsize=256)
def _first(nodes: int) -> Ints:
    return _read_only(np.arange(nodes, dtype=np.int32))


@lru_cache(maxsize=256)
def _pruned(nodes: int) -> Ints:
    return _read_only(np.full(nodes, -1, dtype=np.int32))


def _read_only(array: Ints) -> Ints:
    array.flags.writeable = False
    return array


@lru_cache
def nothing_ranked(drafters: int) -> Ranking:
    """Return the ranking of a step in which no drafter proposes anything."""
    return Ranking(TokenTree.empty(), (_NONE,) * drafters, _NONE, _NO_WORTH, 0, 0, 0)


@lru_cache
def nothing_planned(drafters: int) -> Plan:
    """Return the plan of such a step: a pass over the root alone."""
    return Plan(TokenTree.empty(), (_NONE,) * drafters)


def _best_first(tree: TokenTree, depth: int) -> Ints:
    if len(tree) <= depth and not tree.n_lookahead:
        worth = tree.path_belief.tolist()
        if all(map(ge, worth, worth[1:])):  # a drafter that grows its tree best first proposes nodes in this order
            return _first(len(tree))
        return np.argsort(-tree.path_belief, kind="stable").astype(np.int32)  # stable: parents before children
    drafts = np.flatnonzero(~tree.lookahead & (tree.depth <= depth)).astype(np.int32)
    return drafts[np.argsort(-tree.path_belief[drafts], kind="stable")]


_NONE: Ints = np.empty(0, dtype=np.int32)
_NO_WORTH: Floats = np.empty(0, dtype=np.float32)
_NONE.flags.writeable = _NO_WORTH.flags.writeable = False  # all steps share them
