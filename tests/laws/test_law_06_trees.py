"""Law 6. Scoring a tree equals scoring each of its root-to-leaf chains; the order of siblings does not matter; a
batch equals its members alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.drafter_list import EVERY, SHARING, with_settings
from tests.helpers import GREEDY, PROMPT, TARGETS, Still, TwiceAtMost, texts, trees, write, write_batch

from draftwood.contracts import Sampling
from draftwood.decoding.request import Request
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.learned import Learned
from draftwood.testing import ToyTarget
from draftwood.tree import TokenTree


def rows_of(target, tree, root=3, prompt=PROMPT):
    """All rows of one pass, [1 + nodes, vocab]."""
    ((session, _),) = target.open([prompt])
    (scores,) = target.score([(session, root, tree)])
    session.close()
    return np.array([scores.raw(row) for row in range(1 + len(tree))])


@examples(max_examples=100)
@given(tree=trees(max_size=16))
def test_a_tree_scores_like_each_of_its_chains(tree):
    target = ToyTarget(vocab_size=4, order=6)
    rows = rows_of(target, tree)
    assert rows[0].tolist() == target.scores_after([*PROMPT, 3]).tolist()
    for leaf in tree.leaves.tolist():
        path = tree.path(leaf)
        chain = rows_of(target, TokenTree.build(tree.tokens[path]))
        assert rows[[0, *(1 + node for node in path)]].tolist() == chain.tolist()
    for node, text in enumerate(texts(tree)):
        assert rows[1 + node].tolist() == target.scores_after([*PROMPT, 3, *text]).tolist()


@examples(max_examples=100)
@given(tree=trees(max_size=16), random=st.randoms(use_true_random=False))
def test_the_order_of_siblings_does_not_matter(tree, random):
    target = ToyTarget(vocab_size=4, order=6)
    order: list[int] = []
    waiting = [node for node in range(len(tree)) if tree.parents[node] < 0]
    while waiting:  # any order in which parents come before their children
        node = waiting.pop(random.randrange(len(waiting)))
        order.append(node)
        waiting += np.flatnonzero(tree.parents == node).tolist()
    place = {node: at for at, node in enumerate(order)}
    shuffled = TokenTree.build(
        tree.tokens[order],
        [place.get(int(parent), -1) for parent in tree.parents[order]],
        belief=tree.belief[order],
        lookahead=tree.lookahead[order],
    )
    shuffled.check_integrity()
    rows, again = rows_of(target, tree), rows_of(target, shuffled)
    assert again[0].tolist() == rows[0].tolist()
    assert again[1:].tolist() == rows[1:][order].tolist()


@examples(max_examples=50)
@given(
    batch=st.lists(
        st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=9), trees(max_size=9)), min_size=1, max_size=5
    ),
    variant=st.sampled_from(sorted(TARGETS)),
)
def test_a_pass_over_a_batch_scores_like_its_members_alone(batch, variant):
    target = ToyTarget(vocab_size=4, order=6, **TARGETS[variant])
    if not target.trees:
        batch = [(prompt, TokenTree.build(tree.tokens)) for prompt, tree in batch]
    opened = target.open([prompt for prompt, _ in batch])
    passes = [(session, 2, tree) for (session, _), (_, tree) in zip(opened, batch, strict=True)]
    for scores, (_, first), (prompt, tree) in zip(target.score(passes), opened, batch, strict=True):
        assert first.raw(0).tolist() == target.scores_after(prompt).tolist()
        alone = rows_of(target, tree, root=2, prompt=prompt)
        assert [scores.raw(row).tolist() for row in range(1 + len(tree))] == alone.tolist()


@pytest.mark.parametrize(("drafters", "variant"), with_settings(TARGETS, "trees"))
def test_requests_written_together_are_written_as_alone(drafters, variant):
    """Ragged prompts, limits, ends and settings; the text and every count of every step."""
    target = ToyTarget(order=2, **TARGETS[variant])
    sampled = Sampling(1.0, top_p=0.9, seed=4)

    def requests():
        return [
            Request(PROMPT, 20),
            Request((7,) * 40, 3, GREEDY, sequence=2),
            Request((4, 4), 20, sampled, [TwiceAtMost()]),
            Request(PROMPT, 20, sampled, sequence=1),
            Request((1, 2), 20, end_ids=frozenset({0, 3})),
            Request((5,), 1),
        ]

    made = EVERY[drafters](target, GREEDY)
    together = write_batch(target, made, requests(), FixedPlanner(learned=Learned(Still())))
    alone = [
        write_batch(target, made, [request], FixedPlanner(learned=Learned(Still())))[0] for request in requests()
    ]
    for one, other in zip(together, alone, strict=True):
        assert (one.ids, one.finish) == (other.ids, other.finish)
        if drafters in SHARING:
            continue
        assert one.sources == other.sources
        counts = [
            [(s.context, s.drafted, s.lookahead_scored, s.accepted, s.emitted) for s in w.steps]
            for w in (one, other)
        ]
        assert counts[0] == counts[1]


@pytest.mark.parametrize(("drafters", "variant"), with_settings(TARGETS, "trees"))
def test_who_shares_a_pass_does_not_matter_for_a_text(drafters, variant):
    """The goodput planner divides one pass among the rows: what each gets depends on the others, no token does."""
    target = ToyTarget(order=2, **TARGETS[variant])
    sampled = Sampling(1.0, top_p=0.9, seed=4)
    requests = [Request(PROMPT, 20), Request((7,) * 40, 3, sequence=2), Request((4, 4), 20, sampled)]
    made = EVERY[drafters](target, GREEDY)
    together = write_batch(target, made, requests, GoodputPlanner())
    alone = [write_batch(target, made, [request], GoodputPlanner())[0] for request in requests]
    assert [w.ids for w in together] == [w.ids for w in alone]


def test_a_batch_is_one_pass_per_step():
    target = ToyTarget()
    write_batch(target, [], [Request(PROMPT, limit) for limit in (3, 9, 6)])
    assert target.passes == 8
    write(target, limit=9)
    assert target.passes == 16
