"""What the drafters propose for one request: merged into one tree and ordered by probability."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, chain, islice
from operator import ge, truediv
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ints, Plan, State
from draftwood.tree import TokenTree, ascending, constant, merge, sealed


def depth_limit(state: State) -> int:
    """Return the depth of the deepest draft node worth scoring; a pass adds one token to the accepted ones."""
    left = state.remaining - 1
    return left if left > 0 else 0


def node_limit(state: State) -> int:
    """Return how many nodes one pass over this request can hold in addition to the root."""
    return max(0, state.capabilities.max_pass - 1)


class Ranking(NamedTuple):
    """One request's candidates, in the order in which they are worth scoring."""

    tree: TokenTree  # all proposals, merged
    node_map: tuple[Ints, ...]  # per drafter, the index in ``tree`` of each of its nodes
    # Draft nodes that may be scored, parents first; without tree passes those of the best chain.
    order: Sequence[int]
    worth: list[float]  # probability of each to be reached and accepted
    depth: int  # limits of the pass: depth of the tree, and number of nodes
    room: int
    n_lookahead: int  # lookahead nodes that may be scored: none on a target without trees
    in_order: bool = False  # whether ``order`` is that of the nodes in ``tree``

    @classmethod
    def of(cls, tree: TokenTree, worth: list[float]) -> Self:
        """Return the ranking of the only proposal, which is `in_order`, within the limits of the pass."""
        count = len(worth)
        return cls(tree, (ascending(count),), range(count), worth, count, count, 0, in_order=True)

    def cut(self, nodes: int) -> Plan:
        """Return the plan of the first ``nodes`` candidates, with lookahead nodes after them as far as there is
        room.
        """
        tree, kept = self.tree, self.order[: max(0, nodes)]
        if self.n_lookahead:
            kept = self._with_lookahead(kept)
        count = len(kept)
        if count == len(tree):
            return Plan(tree, self.node_map)
        if not count:
            return Plan(TokenTree.empty(), tuple([constant(-1, len(row)) for row in self.node_map]))
        if self.in_order and not self.n_lookahead:  # a drafter that grows its tree best first
            return Plan(tree.head(count), tuple([_cut(row, count) for row in self.node_map]))
        kept = sorted(kept)
        place = np.full(len(tree), -1, dtype=np.int32)
        place[kept] = ascending(count)
        return Plan(tree.take(kept), tuple([place[row] for row in self.node_map]))

    def _with_lookahead(self, kept: Sequence[int]) -> list[int]:
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
        found: list[int] = np.flatnonzero(keep[:-1]).tolist()
        return found


def never_rises(worth: Sequence[float]) -> bool:
    """Whether nodes of these path beliefs come best first, as in trees that our drafters grow."""
    return all(map(ge, worth, islice(worth, 1, None)))


def rank(state: State, proposals: Sequence[TokenTree]) -> Ranking:
    """Merge one request's proposals (a tree per drafter of its set) and order the nodes by path probability."""
    depth, room = depth_limit(state), node_limit(state)
    speaking = [i for i, proposal in enumerate(proposals) if len(proposal)]
    if not speaking:
        return nothing_ranked(len(proposals))._replace(depth=depth, room=room)
    tree, rows = merge([proposals[i].credited_to(i) for i in speaking])
    node_map = [_NONE] * len(proposals)
    for i, row in zip(speaking, rows, strict=True):
        node_map[i] = row
    trees, n_lookahead, worth = state.capabilities.trees, tree.n_lookahead, tree.path_belief.tolist()
    count = len(worth)
    # A drafter that grows its tree best first proposes nodes in this order; none is deeper than their number.
    if not n_lookahead and (tree.is_chain or (trees and count <= depth and never_rises(worth))):
        most = min(count, depth, room)
        return Ranking(tree, tuple(node_map), range(most), worth[:most], depth, room, 0, in_order=True)
    if trees:
        order = _best_first(tree, worth, depth)[:room]
    else:
        order, n_lookahead = tree.best_chain().tolist()[: min(depth, room)], 0
    worth = [worth[node] for node in order]
    return Ranking(tree, tuple(node_map), order, worth, depth, room, n_lookahead)


def pooled(rankings: Sequence[Ranking], most: int) -> tuple[list[float], NDArray[np.intp] | None]:
    """Return the probabilities of all requests' candidates, best first, and the index of each one's request."""
    if len(rankings) == 1:
        return rankings[0].worth[:most], None
    every = [r.worth[:most] for r in rankings]
    worth = np.array(list(chain.from_iterable(every)))
    order = np.argsort(-worth, kind="stable")
    owner = np.repeat(np.arange(len(rankings)), [len(some) for some in every])[order]
    return worth[order].tolist(), owner


def gain(mine: Sequence[Sequence[bool]], rankings: Sequence[Ranking], times: Sequence[float], best: int) -> float:
    """Return how many seconds longer this step's expected tokens take without the drafters marked in ``mine``.

    ``mine``: per request and drafter; ``times``: the seconds of a step by the number of candidates scored; it
    scores ``best`` of them.
    """
    rows = len(rankings)
    every, others = list[float](), list[float]()
    for own, ranking in zip(mine, rankings, strict=True):
        kept: set[int] = set()
        for is_mine, places in zip(own, ranking.node_map, strict=True):
            if not is_mine:
                kept.update(places.tolist())
        every += ranking.worth
        others += [chance for node, chance in zip(ranking.order, ranking.worth, strict=True) if node in kept]
    if rows > 1:
        every.sort(reverse=True)
        others.sort(reverse=True)
    without = min(map(truediv, times, accumulate(others, initial=float(rows))))
    return (rows + sum(every[:best])) * without - times[best]


def _cut(row: Ints, count: int) -> Ints:
    """Return ``row`` where all nodes from ``count`` on are pruned."""
    return _first_of(len(row), count) if row is ascending(len(row)) else np.where(row < count, row, -1)


@lru_cache(maxsize=1024)
def _first_of(nodes: int, count: int) -> Ints:
    row = np.arange(nodes, dtype=np.int32)
    row[count:] = -1
    return sealed(row)


@lru_cache
def nothing_ranked(drafters: int) -> Ranking:
    """Return the ranking of a step in which no drafter proposes anything."""
    return Ranking(TokenTree.empty(), (_NONE,) * drafters, (), [], 0, 0, 0)


def _best_first(tree: TokenTree, worth: Sequence[float], depth: int) -> list[int]:
    """Return the draft nodes of at most this depth, likeliest first, of equals parents first."""
    drafts: Sequence[int] = range(len(tree))
    if tree.n_lookahead or len(tree) > depth:
        drafts = np.flatnonzero(~tree.lookahead & (tree.depth <= depth)).tolist()
    return sorted(drafts, key=worth.__getitem__, reverse=True)


_NONE: Ints = ascending(0)
