"""Merging what the sources propose and cutting it to a budget; shared by every planner."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from draftwood.contracts import Ints, Plan, State
from draftwood.tree import TokenTree, merge


def depth_limit(state: State) -> int:
    """Deepest draft node worth scoring: the pass itself adds one token, and no text outgrows its limit."""
    return max(0, state.remaining - 1)


def node_limit(state: State) -> int:
    """Most nodes that one pass over this request can hold beside the root."""
    return max(0, state.capabilities.max_pass - 1)


def merge_and_cut(state: State, proposals: Sequence[TokenTree], nodes: int, floor: float = 0.0) -> Plan:
    """Merge one request's proposals and keep the ``nodes`` draft nodes most likely to be reached and taken.

    Those are left out, too, of which this is less likely than ``floor``.

    Order is best first by path probability (a parent never comes after its child); probes come whole, as far
    as their ancestors are kept and the pass has room. A target without trees gets the best chain.
    """
    if not any(len(p) for p in proposals):
        return Plan(TokenTree.empty(), tuple(np.empty(0, dtype=np.int32) for _ in proposals))
    stamped = [p.from_source(i) if i or p.source.any() else p for i, p in enumerate(proposals)]
    tree, rows = merge(stamped)
    depth, room = depth_limit(state), node_limit(state)
    if tree.is_chain and not tree.n_probes:
        count = min(len(tree), nodes, depth, room, int(np.count_nonzero(tree.path_belief >= floor)))
        if count == len(tree):
            return Plan(tree, tuple(rows))
        kept = np.arange(count, dtype=np.int32)
    elif not state.capabilities.trees:
        kept = tree.best_chain()[: min(nodes, depth, room)]
        kept = kept[tree.path_belief[kept] >= floor]
    else:
        kept = _best(tree, nodes, depth, room, floor)
    if len(kept) == len(tree):
        return Plan(tree, tuple(rows))
    place = np.full(len(tree) + 1, -1, dtype=np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    return Plan(tree.take(kept), tuple(place[row] for row in rows))


def _best(tree: TokenTree, nodes: int, depth: int, room: int, floor: float) -> Ints:
    fits = tree.depth <= depth
    drafts = np.flatnonzero(fits & ~tree.probe & (tree.path_belief >= floor))
    order = np.argsort(-tree.path_belief[drafts], kind="stable")  # stable: parents stay before children
    keep = np.zeros(len(tree) + 1, dtype=np.bool_)
    keep[-1] = True  # the root, reached through parent -1
    keep[drafts[order[: min(nodes, room)]]] = True
    left = room - int(keep[:-1].sum())
    for node in np.flatnonzero(fits & tree.probe).tolist():  # parents come first, so one sweep closes the set
        if left and keep[tree.parents[node]]:
            keep[node] = True
            left -= 1
    return np.flatnonzero(keep[:-1]).astype(np.int32)
