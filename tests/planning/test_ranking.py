"""Cutting to a budget, against the plainest best-first pruning there is."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.helpers import texts
from tests.planning.states import PROPOSALS, STATES, FakeState

from draftwood.planning.ranking import rank
from draftwood.tree import TokenTree, merge


def merge_and_cut(state, proposals, nodes):
    return rank(state, proposals).cut(nodes)


def kept_by_the_oracle(tree: TokenTree, nodes: int, depth: int, room: int) -> set[tuple[int, ...]]:
    """Take the likeliest draft whose parent is taken, again and again; then probes in order while they fit."""
    ways = texts(tree)
    likely = [float(np.prod(tree.belief[tree.path(node)])) for node in range(len(tree))]
    taken: list[int] = []

    def open_to(node: int) -> bool:
        return node not in taken and tree.depth[node] <= depth and tree.parents[node] in (-1, *taken)

    while len(taken) < min(nodes, room):
        ready = [node for node in range(len(tree)) if open_to(node) and not tree.lookahead[node]]
        if not ready:
            break
        taken.append(max(ready, key=lambda node: (likely[node], -node)))
    for node in range(len(tree)):
        if open_to(node) and tree.lookahead[node] and len(taken) < room:
            taken.append(node)
    return {ways[node] for node in taken}


@given(state=STATES, proposals=PROPOSALS, nodes=st.integers(0, 12))
def test_the_likeliest_are_kept_within_every_limit(state, proposals, nodes):
    plan = merge_and_cut(state, proposals, nodes)
    merged, _ = merge([tree.credited_to(i) for i, tree in enumerate(proposals)])
    plan.tree.check_integrity(3)
    assert set(texts(plan.tree)) == kept_by_the_oracle(merged, nodes, state.remaining - 1, state.max_pass - 1)
    assert len(plan.tree) - plan.tree.n_lookahead <= nodes
    assert len(plan.tree) <= state.max_pass - 1
    assert plan.tree.depth.max(initial=0) <= state.remaining - 1


@given(state=STATES, proposals=PROPOSALS, nodes=st.integers(0, 12))
def test_the_rows_say_where_each_proposal_went(state, proposals, nodes):
    plan = merge_and_cut(state, proposals, nodes)
    kept = texts(plan.tree)
    reached = set()
    for tree, rows in zip(proposals, plan.node_map, strict=True):
        assert rows.dtype == np.int32
        for text, row in zip(texts(tree), rows.tolist(), strict=True):
            assert (row == -1) == (text not in kept)
            assert row == -1 or kept[row] == text
        reached |= set(rows.tolist())
    assert reached - {-1} == set(range(len(kept))), "every scored node was proposed by somebody"


@given(
    beliefs=st.lists(st.floats(0, 1, width=32) | st.just(1.0), min_size=1, max_size=16),
    nodes=st.integers(0, 16),
    data=st.data(),
)
def test_whatever_the_beliefs_no_node_is_kept_without_its_parent(beliefs, nodes, data):
    """Rounding included: a child must never be thought likelier than the node above it."""
    up = [data.draw(st.integers(max(-1, i - 3), i - 1)) for i in range(len(beliefs))]
    tree = TokenTree.build(list(range(len(beliefs))), up, belief=beliefs)
    plan = merge_and_cut(FakeState(), [tree], nodes)
    assert len(plan.tree) == min(nodes, len(beliefs))
    assert set(texts(plan.tree)) <= set(texts(tree))
    # All that was left out is no likelier than what was kept, up to the rounding of a float32.
    (rows,) = plan.node_map
    left, kept = tree.path_belief[rows < 0], tree.path_belief[rows >= 0]
    if len(left) and len(kept):
        assert left.max() <= kept.min()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("depth", [1000, 5])  # 1000: no node is too deep, which is looked up another way
def test_of_equal_nodes_the_parent_comes_first(seed, depth):
    rng = np.random.default_rng(seed)
    up = [int(rng.integers(max(-1, i - 40), i)) for i in range(200)]
    belief = np.where(rng.random(200) < 0.95, 1.0, 0.5)
    tree = TokenTree.build(list(range(200)), up, belief=belief.tolist())
    ranking = rank(FakeState(remaining=depth + 1), [tree])
    seen = {-1}
    for node in ranking.order:
        assert up[node] in seen, "a parent comes before its child"
        seen.add(node)
    assert len(seen) == 1 + np.count_nonzero(tree.depth <= depth)
    for node, after in pairwise(ranking.order):
        likely, less = tree.path_belief[node], tree.path_belief[after]
        assert likely > less or (likely == less and node < after), "of equals the earlier"


# --- targets of chains ---------------------------------------------------------------------------------------


@given(
    proposals=PROPOSALS, nodes=st.integers(0, 6), remaining=st.integers(1, 6), max_pass=st.sampled_from([1, 3, 99])
)
def test_a_target_of_chains_gets_the_best_chain(proposals, nodes, remaining, max_pass):
    state = FakeState(remaining=remaining, trees=False, max_pass=max_pass)
    plan = merge_and_cut(state, proposals, nodes)
    merged, _ = merge([tree.credited_to(i) for i, tree in enumerate(proposals)])
    best = merged.best_chain()
    assert plan.tree.is_chain
    assert not plan.tree.lookahead.any()
    assert plan.tree.tokens.tolist() == merged.tokens[best[: min(nodes, remaining - 1, max_pass - 1)]].tolist()


# --- limits, and the cases that are quick --------------------------------------------------------------------


def test_nothing_proposed_is_a_plain_step():
    plan = merge_and_cut(FakeState(), [TokenTree.empty()] * 2, 16)
    assert plan.tree is TokenTree.empty()
    assert [rows.tolist() for rows in plan.node_map] == [[], []]
    assert merge_and_cut(FakeState(), [], 16).node_map == ()


@pytest.mark.parametrize(("nodes", "length"), [(0, 0), (3, 3), (9, 5)])
def test_a_single_chain_is_cut_at_its_end(nodes, length):
    chain = TokenTree.build([1, 2, 3, 4, 5], belief=[0.1, 0.9, 0.1, 0.9, 0.1])
    plan = merge_and_cut(FakeState(), [chain], nodes)
    assert plan.tree.tokens.tolist() == [1, 2, 3, 4, 5][:length]
    assert plan.node_map[0].tolist() == list(range(length)) + [-1] * (5 - length)


def test_sources_are_numbered_by_their_place_in_the_set():
    chains = [TokenTree.build([token], source=41) for token in (1, 2, 3)]
    assert merge_and_cut(FakeState(), chains, 16).tree.source.tolist() == [0, 1, 2]
    assert merge_and_cut(FakeState(), chains[:1], 16).tree.source.tolist() == [0]
    assert chains[0].source.tolist() == [41]
