"""Beliefs: labels from what a pass taught, and rates that learn from them."""

import weakref

import numpy as np
import pytest

from draftwood.contracts import Feedback
from draftwood.contracts.declaring import declared
from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.planning.beliefs import AcceptRates, Beliefs, labels
from draftwood.tree import NO_CLAIM, TokenTree, merge


def lesson(proposal, path, emitted, choice, rows=None, tree=None, source=0):
    where = np.arange(len(proposal), dtype=np.int32) if rows is None else np.array(rows, dtype=np.int32)
    scored = proposal if tree is None else tree
    taken = np.array(choice, dtype=np.int32)
    return Feedback(scored, proposal, where, tuple(path), tuple(emitted), taken, source=source)


def merged(*trees):
    """The trees as sources 0, 1, ... of a set, merged, and per source the rows."""
    return merge([tree.credited_to(i) for i, tree in enumerate(trees)])


def test_only_nodes_whose_parent_was_accepted_are_labels():
    tree = TokenTree.build([5, 6, 7, 8], [-1, -1, 0, 1], evidence=[0, 1, 2, 3])
    assert labels(lesson(tree, [0], [5, 9], [5, 9, -1, -1, -1])) == ([0, 1, 2], [True, False, False])


def test_nodes_that_were_pruned_are_labels_too():
    proposal = TokenTree.build([5, 6, 7], [-1, 0, 0], evidence=[0, 1, 2])
    scored = proposal.take(np.array([0]))
    found = labels(lesson(proposal, [0], [5, 7], [5, 7], rows=[0, -1, -1], tree=scored))
    assert found == ([0, 1, 2], [True, False, True])


def test_what_nobody_scored_says_nothing():
    proposal = TokenTree.build([5, 6], evidence=[0, 1])
    nothing = TokenTree.empty()
    assert labels(lesson(proposal, [], [5], [5], rows=[-1, -1], tree=nothing)) == ([0], [True])
    assert labels(lesson(nothing, [], [5], [5])) == ([], [])


def test_a_scored_node_is_a_label_of_the_source_whose_belief_it_carries_alone():
    one = TokenTree.build([5, 6], evidence=[0, 1], belief=[0.9, 0.2])
    other = TokenTree.build([5, 6, 7], [-1, 0, 0], evidence=[2, 3, 4], belief=[0.5, 0.3, 0.1])
    for order in ((one, other), (other, one)):
        tree, rows = merged(*order)
        places = {int(token): place for place, token in enumerate(tree.tokens.tolist())}
        choice = [5, *(7 if token == 5 else -1 for token in tree.tokens.tolist())]
        found = {
            proposal is one: labels(lesson(proposal, [places[5]], [5, 7], choice, row, tree, source))
            for source, (proposal, row) in enumerate(zip(order, rows, strict=True))
        }
        assert found == {True: ([0], [True]), False: ([3, 4], [False, True])}


def test_of_equal_beliefs_the_first_source_of_the_set_learns():
    both = TokenTree.build([5], belief=0.5, evidence=0), TokenTree.build([5], belief=0.5, evidence=1)
    tree, rows = merged(*both)
    taught = [lesson(p, [0], [5], [5, -1], rows[i], tree, i) for i, p in enumerate(both)]
    assert [labels(one) for one in taught] == [([0], [True]), ([], [])]


def test_pruned_nodes_are_labels_of_every_source_that_proposed_them():
    one = TokenTree.build([5, 6], evidence=[0, 1], belief=[0.9, 0.8])
    other = TokenTree.build([5, 6], evidence=[2, 3], belief=[0.5, 0.2])
    scored = one.take(np.array([0]))
    taught = [lesson(p, [0], [5, 6], [5, 6], [0, -1], scored, i) for i, p in enumerate((one, other))]
    assert [labels(each) for each in taught] == [([0, 1], [True, True]), ([3], [True])]


def test_a_node_without_a_claim_is_no_label_and_those_behind_it_are():
    others = TokenTree.build([5], evidence=0, belief=0.4)
    through = TokenTree.build([5, 6, 7], [-1, 0, 0], evidence=[NO_CLAIM, 1, 2], belief=[0.0, 0.6, 0.3])
    for order in ((others, through), (through, others)):
        tree, rows = merged(*order)
        at = [place for place, token in enumerate(tree.tokens.tolist()) if token in (5, 6)]
        choice = [5, *({5: 6, 6: 8}.get(token, -1) for token in tree.tokens.tolist())]
        which = order.index(through)
        assert labels(lesson(through, at, [5, 6, 8], choice, rows[which], tree, which)) == ([1, 2], [True, False])
        assert labels(lesson(others, at, [5, 6, 8], choice, rows[1 - which], tree, 1 - which)) == ([0], [True])
    pruned = lesson(through, [], [5], [5], [-1, -1, -1], TokenTree.empty(), 1)
    assert labels(pruned) == ([], [])


def test_probes_and_unknown_choices_are_no_labels():
    tree = TokenTree.build([5, 6, 7], [-1, -1, 0], evidence=[0, 1, 2], lookahead=[False, True, False])
    assert labels(lesson(tree, [0], [5], [5, -1, -1, -1])) == ([0], [True])  # the text ended with node 0


def test_a_rate_goes_from_its_prior_to_what_comes():
    rates = AcceptRates(np.array([0.5, 0.5], dtype=np.float32))
    assert rates.accept_rates.dtype == np.float32
    assert rates.accept_rates.tolist() == [0.5, 0.5]
    random = np.random.default_rng(0)
    for _ in range(2000):
        rates.learn([0, 1], [bool(random.random() < 0.1), bool(random.random() < 0.8)])
    assert rates.accept_rates == pytest.approx([0.1, 0.8], abs=0.06)


def test_twenty_labels_move_classes_that_were_never_seen():
    rates = AcceptRates(np.array([0.6, 0.3], dtype=np.float32))
    for _ in range(20):
        rates.learn([0], [False])
    assert rates.accept_rates[1] < 0.27
    assert 0 < rates.accept_rates[0] < 0.4


def test_a_change_of_topic_is_noticed_within_some_fifty_steps():
    rates = AcceptRates(np.full(30, 0.5, dtype=np.float32))
    random = np.random.default_rng(1)
    for truth in (0.9, 0.1):
        for _ in range(50):
            rates.learn([int(which) for which in random.integers(0, 30, 4)], (random.random(4) < truth).tolist())
        assert abs(float(rates.accept_rates.mean()) - truth) < 0.25


def test_accept_rates_stay_probabilities_whatever_comes():
    rates = AcceptRates(np.array([0.0, 1.0], dtype=np.float32))
    for right in (True, False):
        for _ in range(500):
            rates.learn([0, 1, 0, 1], [right] * 4)
            assert ((rates.accept_rates > 0) & (rates.accept_rates < 1)).all()


def test_greedy_and_sampled_requests_have_rates_of_their_own_and_equal_drafters_share_them():
    beliefs, one, twin, other = Beliefs(), NgramDrafter(), NgramDrafter(), NgramDrafter(length=8)
    assert beliefs.rates(declared(one), greedy=True) is beliefs.rates(declared(twin), greedy=True)
    assert beliefs.rates(declared(one), greedy=True) is not beliefs.rates(declared(one), greedy=False)
    assert beliefs.rates(declared(one), greedy=True) is not beliefs.rates(declared(other), greedy=True)
    assert (beliefs.accept_rates(declared(one), greedy=False) == one.prior).all()


def test_beliefs_keep_no_drafter_alive_and_remember_what_it_taught():
    beliefs, drafter = Beliefs(), NgramDrafter(context=((1, 2, 3),))
    rates, seen = beliefs.rates(declared(drafter), greedy=True), weakref.ref(drafter)
    del drafter
    assert seen() is None
    assert beliefs.rates(declared(NgramDrafter(context=((4, 5),))), greedy=True) is rates
