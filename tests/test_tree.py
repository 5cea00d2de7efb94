"""TokenTree: every derived view, taking and merging, against twins in the plainest words."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwood.errors import IntegrityError
from draftwood.tree import TokenTree, merge
from tests.helpers import texts, trees

#  root ─┬─ 0:[5] ─┬─ 2:[6] ─── 4:(9)      round: a lookahead node
#        └─ 1:[7]  └─ 3:[8]
TREE = TokenTree.build(
    [5, 7, 6, 8, 9],
    [-1, -1, 0, 0, 2],
    belief=[0.5, 0.25, 0.5, 0.25, 1.0],
    lookahead=[False, False, False, False, True],
)


# --- making one ----------------------------------------------------------------------------------------------


def test_without_parents_it_is_a_chain_and_scalars_are_spread():
    chain = TokenTree.build([3, 1, 4], belief=0.5, source=2, evidence=7)
    chain.check_integrity()
    assert chain.is_chain
    assert chain.parents.tolist() == [-1, 0, 1]
    assert chain.belief.tolist() == [0.5] * 3
    assert chain.source.tolist() == [2] * 3
    assert chain.evidence.tolist() == [7] * 3
    assert np.isnan(chain.draft_prob).all()
    assert not chain.lookahead.any()
    assert chain.n_lookahead == 0


def test_the_empty_tree():
    empty = TokenTree.empty()
    empty.check_integrity()
    assert len(empty) == 0
    assert empty is TokenTree.empty()
    for view in (empty.depth, empty.path_belief, empty.leaves, empty.best_chain()):
        assert view.tolist() == []
    assert empty.ancestor_mask.shape == (0, 0)
    assert empty.positions(7).tolist() == [7]
    assert empty.child(-1, 3) == -1
    assert empty.path(-1) == []


def test_a_tree_cannot_be_changed_and_shows_its_nodes():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TREE.tokens = np.zeros(5)
    assert repr(TREE) == "TokenTree(tokens=[5, 7, 6, 8, 9], parents=[-1, -1, 0, 0, 2])"


# --- derived views -------------------------------------------------------------------------------------------


@given(tree=trees(max_size=20), position=st.integers(0, 1000))
def test_depth_positions_paths_mask_and_leaves(tree, position):
    paths = [tree.path(node) for node in range(len(tree))]
    for node, path in enumerate(paths):
        assert path[-1] == node
        assert tree.parents[path[0]] == -1
        assert tree.parents[path[1:]].tolist() == path[:-1]
    assert tree.depth.tolist() == [len(path) for path in paths]
    assert tree.depth.dtype == np.int32
    assert tree.positions(position).tolist() == [position, *(position + len(path) for path in paths)]
    sees = [[other in path for other in range(len(tree))] for path in paths]
    assert tree.ancestor_mask.tolist() == sees
    above = {node for path in paths for node in path[:-1]}
    assert tree.leaves.tolist() == [node for node in range(len(tree)) if node not in above]


@given(tree=trees(max_size=20))
def test_path_belief_is_the_product_on_the_way(tree):
    products = [float(np.prod(tree.belief[tree.path(node)])) for node in range(len(tree))]
    assert tree.path_belief.tolist() == products
    assert tree.path_belief.dtype == np.float32


@given(st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), max_size=20), st.booleans())
def test_no_child_is_likelier_to_be_reached_than_its_parent(beliefs, is_chain):
    """Not by rounding either: best-first order must put parents first."""
    accept_rates = [1.0 if sure else belief for belief, sure in beliefs]
    up = (
        None
        if is_chain
        else [-1, *(max(0, i - 1 - i % 2) for i in range(1, len(accept_rates)))][: len(accept_rates)]
    )
    tree = TokenTree.build([0] * len(accept_rates), up, belief=accept_rates)
    reached = np.append(tree.path_belief, np.float32(1))
    assert (reached[:-1] <= reached[tree.parents]).all()


@given(tree=trees(vocab_size=3), node=st.integers(-1, 9), token=st.integers(0, 3))
def test_child_is_the_first_draft_that_carries_the_token(tree, node, token):
    fits = [
        n
        for n in range(len(tree))
        if tree.parents[n] == node and tree.tokens[n] == token and not tree.lookahead[n]
    ]
    assert tree.child(node, token) == (fits[0] if fits else -1)


@given(tree=trees())
def test_best_chain_follows_the_child_believed_in_most(tree):
    chain, node = [], -1
    while below := [n for n in range(len(tree)) if tree.parents[n] == node and not tree.lookahead[n]]:
        node = max(below, key=lambda n: (tree.belief[n], -n))  # the first of equals
        chain.append(node)
    assert tree.best_chain().tolist() == chain


# --- taking nodes --------------------------------------------------------------------------------------------


@given(tree=trees(), data=st.data())
def test_take_keeps_the_columns_and_the_ways_to_the_nodes(tree, data):
    wanted = data.draw(st.sets(st.integers(0, len(tree) - 1))) if len(tree) else set()
    nodes = np.array(sorted({up for node in wanted for up in tree.path(node)}), dtype=np.int32)
    taken = tree.take(nodes)
    taken.check_integrity()
    assert texts(taken) == [texts(tree)[node] for node in nodes]
    for column in ("belief", "source", "evidence", "draft_prob", "lookahead"):
        assert getattr(taken, column).tolist() == getattr(tree, column)[nodes].tolist()
    assert taken.is_chain == (taken.parents.tolist() == list(range(-1, len(nodes) - 1)))


@given(tree=trees(), data=st.data())
def test_the_head_is_what_take_gives_of_the_first_nodes(tree, data):
    count = data.draw(st.integers(0, len(tree)))
    head, taken = tree.head(count), tree.take(np.arange(count))
    head.check_integrity()
    assert texts(head) == texts(taken)
    assert head.is_chain == taken.is_chain
    assert [getattr(head, c).tolist() for c in ("belief", "source", "evidence", "lookahead")] == [
        getattr(taken, c).tolist() for c in ("belief", "source", "evidence", "lookahead")
    ]


# --- merging -------------------------------------------------------------------------------------------------


@given(data=st.data(), count=st.integers(1, 4))
def test_merging_makes_equal_siblings_one_and_loses_nothing(data, count):
    given_trees = [data.draw(trees(vocab_size=3, source=i)) for i in range(count)]
    tree, rows = merge(given_trees)
    tree.check_integrity()
    merged = texts(tree)
    if not (count == 1 and given_trees[0].is_chain):
        assert len(set(merged)) == len(merged), "no equal siblings are left"
    assert set(merged) == {text for one in given_trees for text in texts(one)}
    for one, row in zip(given_trees, rows, strict=True):
        assert row.dtype == np.int32
        assert [merged[place] for place in row] == texts(one)


@given(data=st.data(), count=st.integers(1, 4))
def test_a_merged_node_is_a_draft_if_any_was_and_the_best_of_those_speaks_for_it(data, count):
    given_trees = [data.draw(trees(vocab_size=3, source=i)) for i in range(count)]
    tree, rows = merge(given_trees)
    for node in range(len(tree)):
        proposed = [
            (one, at)
            for one, row in zip(given_trees, rows, strict=True)
            for at in range(len(one))
            if row[at] == node
        ]
        drafts = [(one, at) for one, at in proposed if not one.lookahead[at]]
        assert tree.lookahead[node] == (not drafts)
        one, at = max(drafts or proposed, key=lambda it: it[0].belief[it[1]])  # the first of equals
        for column in ("tokens", "belief", "source", "evidence", "draft_prob"):
            assert getattr(tree, column)[node] == getattr(one, column)[at]


@pytest.mark.parametrize("nothing", [[], [TokenTree.empty()], [TokenTree.empty()] * 3])
def test_merging_nothing(nothing):
    tree, rows = merge(nothing)
    assert len(tree) == 0
    assert [row.tolist() for row in rows] == [[]] * len(nothing)


# --- checking itself -----------------------------------------------------------------------------------------


@given(tree=trees())
def test_a_sound_tree_passes(tree):
    tree.check_integrity()
    tree.check_integrity(4)


def grown(*columns, locked=True, **more):
    tree = TokenTree.build(*columns, **more)
    tree = tree.locked() if locked else tree
    return TokenTree.grown(**{f.name: getattr(tree, f.name) for f in dataclasses.fields(tree)})


@given(tree=trees(vocab_size=20), count=st.integers(0, 9))
def test_a_grown_tree_and_its_head_stay_grown(tree, count):
    other, _ = merge([TokenTree.build(tree.tokens, tree.parents, belief=tree.belief)])
    found = grown(other.tokens, other.parents, belief=other.belief)
    for one in (found, found.head(count), found.credited_to(3), found.head(count).credited_to(1)):
        assert one.is_grown
        assert one.locked() is one
        one.check_integrity(20)
        assert one.path_belief.tolist() == dataclasses.replace(one).path_belief.tolist()
    assert not dataclasses.replace(found, belief=found.belief).is_grown


def column(name, value):
    return dataclasses.replace(TREE, **{name: value})


@pytest.mark.parametrize(
    ("tree", "sentence"),
    [
        (column("tokens", TREE.tokens.astype(np.int64)), r"tokens must be int32\[5\]"),
        (column("parents", TREE.parents[:4]), r"parents must be int32\[5\]"),
        (column("belief", TREE.belief.tolist()), r"belief must be float32\[5\]"),
        (column("source", TREE.source.astype(np.int16)), r"source must be int32\[5\]"),
        (column("evidence", TREE.evidence[:, None]), r"evidence must be int32\[5\]"),
        (column("draft_prob", None), r"draft_prob must be float32\[5\]"),
        (column("lookahead", TREE.lookahead.astype(np.int8)), r"lookahead must be bool\[5\]"),
        (TokenTree.build([1, 1], [1, -1]), "a parent must be -1 or come before its child"),
        (TokenTree.build([1], [0]), "a parent must be -1 or come before its child"),
        (TokenTree.build([1], [-2]), "a parent must be -1 or come before its child"),
        (TokenTree.build([-1]), "token ids must lie in"),
        (TokenTree.build([10]), r"token ids must lie in \[0, 10\)"),
        (TokenTree.build([1], belief=1.01), "beliefs must be probabilities"),
        (TokenTree.build([1], belief=-0.01), "beliefs must be probabilities"),
        (TokenTree.build([1], belief=np.nan), "beliefs must be probabilities"),
        (TokenTree.build([1, 2], lookahead=[True, False]), "children of lookahead nodes"),
        (column("lookahead", np.array([True, False, True, False, True])), "children of lookahead nodes"),
        (grown([1, 2], locked=False), "tokens must be read-only"),
        (grown([1, 1], [-1, -1]), "siblings must differ"),
    ],
)
def test_an_unsound_tree_is_named(tree, sentence):
    with pytest.raises(IntegrityError, match=sentence):
        tree.check_integrity(10)
