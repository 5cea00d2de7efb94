"""The drafter ``ngram``: what it offers, in which order, and its options; its index is tested beside it."""

import numpy as np

from draftwood.drafters.ngram.drafter import NgramDrafter
from draftwood.drafters.ngram.kernel import BY_COUNT, CLASSES, FOLLOWED, MATCHED


def draft(drafter, text, nodes=16, accept_rates=None):
    session = drafter.open(text, None)
    return session.draft(nodes, 0, drafter.prior if accept_rates is None else accept_rates)


def test_the_classes_of_the_drafter_are_those_of_its_index():
    assert CLASSES == MATCHED + FOLLOWED + BY_COUNT == len(NgramDrafter().prior) == 660
    assert NgramDrafter().prior.dtype == np.float32


def test_a_long_match_is_a_chain():
    text = [*range(50, 90), 1, *range(50, 70)]
    tree = draft(NgramDrafter(), text, nodes=8)
    assert tree.is_chain
    assert tree.tokens.tolist() == list(range(70, 78))


def test_where_occurrences_disagree_a_draft_branches():
    text = [7, 1, 5, 9, 2, 5, 7, 1, 6, 9, 2, 6, 7, 1]
    tree = draft(NgramDrafter(frequent=0), text, nodes=2, accept_rates=np.full(CLASSES, 0.5, np.float32))
    assert sorted(tree.tokens.tolist()) == [5, 6]
    assert tree.parents.tolist() == [-1, -1]


def test_a_draft_rests_on_nothing_but_the_accept_rates():
    text = [7, 1, 5, 9, 2, 5, 7, 1, 6, 9, 2, 6, 7, 1]
    accept_rates = np.full(CLASSES, 0.01, np.float32)
    accept_rates[MATCHED + FOLLOWED :] = 0.9
    tree = draft(NgramDrafter(), text, nodes=4, accept_rates=accept_rates)
    assert (tree.evidence >= MATCHED).all()
    assert (tree.belief == np.float32(0.9)).all()


def test_further_texts_are_copied_from_too_and_survive_cutting():
    drafter = NgramDrafter(context=(tuple(range(30, 50)), (), (5, 6, 7)), frequent=0)
    session = drafter.open([1, 30, 31, 32, 33], None)
    assert session.draft(3, 0, drafter.prior).tokens.tolist() == [34, 35, 36]
    session.truncate(3)
    session.extend([5, 6])
    assert session.draft(1, 0, drafter.prior).tokens.tolist() == [7]
    assert "30" not in repr(drafter)
