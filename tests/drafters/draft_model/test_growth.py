"""Which nodes are read, what becomes of copies, and when a draft ends."""

import numpy as np
import pytest

from draftwood.contracts import Prices
from draftwood.drafters.draft_model.drafter import DraftModelDrafter
from draftwood.drafters.draft_model.experience import (
    CLASSES,
    PRIOR,
    WIDEST,
    Experience,
    evidence_class,
    experience_with,
)
from draftwood.drafters.draft_model.growth import ROOT, Candidate, Growth, candidates, chosen
from draftwood.drafters.draft_model.noise_kernel import keyed_candidates
from draftwood.testing import ToyTarget
from draftwood.tree import NO_CLAIM, TokenTree
from draftwood.verify.noise import KeyedNoise

COSTS = [0.0, *[0.3 + 0.05 * n for n in range(1, WIDEST + 1)]]


def some(*pairs):
    return [Candidate(token, p, p) for token, p in pairs]


def grown(nodes=8, depth=8, **options):
    growth = Growth(nodes, depth, PRIOR, **options)
    growth.add_children(ROOT, some((3, 0.8), (5, 0.1)))
    return growth


def test_classes_cover_the_prior():
    assert len(PRIOR) == CLASSES
    found = {
        evidence_class(confidence, depth, copied=copied)
        for confidence in np.linspace(0, 1, 400).tolist() for depth in range(1, 20) for copied in (False, True)
    }  # fmt: skip
    assert found == set(range(CLASSES))
    assert (np.diff(PRIOR[:16]) > 0).all(), "a surer model is right more often"


def test_a_tree_has_the_likeliest_nodes_and_their_ancestors():
    growth = grown(nodes=3)
    growth.add_children(0, some((7, 0.9), (8, 0.05)))
    tree = growth.tree()
    assert tree.tokens.tolist() == [3, 5, 7]
    assert tree.parents.tolist() == [-1, -1, 0]
    np.testing.assert_allclose(tree.draft_prob, [0.8, 0.1, 0.9], rtol=1e-6)
    tree.check_integrity(16)
    assert grown(p_min=0.5).tree().tokens.tolist() == [3]


def test_copies_are_kept_where_the_model_goes_on_behind_them():
    growth = Growth(8, 8, PRIOR)
    growth.add_base(TokenTree.build([3, 4, 6], [-1, 0, -1], belief=[0.5, 0.5, 0.1]), 8)
    growth.add_children(ROOT, some((3, 0.9)))
    growth.add_children(1, some((9, 0.8)))
    tree = growth.tree()
    assert tree.tokens.tolist() == [3, 4, 9], "what nothing of its own hangs off is left out"
    assert tree.evidence[1] == NO_CLAIM
    assert tree.evidence[0] == evidence_class(0.9, 1, copied=True)
    assert tree.belief[0] > 0.9, "both propose it"


def test_a_pass_that_does_not_pay_is_not_made():
    growth = grown()
    cheap, dear = Prices(1.0, token=1.0), Prices(1.0, token=0.3)
    assert chosen([growth], 0.7, cheap, COSTS, 1, 8) == [[0, 1]]
    assert chosen([growth], 0.7, dear, COSTS, 1, 8) is None
    assert chosen([growth], 0.7, Prices(1.0, 1.0, node=0.5), COSTS, 1, 8) is None
    assert chosen([growth], 0.7, Prices(), COSTS, 1, 8) == [[0]], "without prices there is one node a pass"
    assert chosen([growth], 0.7, Prices(), COSTS, 8, 8) is None


def test_sure_copies_need_no_model():
    growth = Growth(8, 8, PRIOR)
    growth.add_base(TokenTree.build([3, 4], belief=[0.97, 0.97]), 8)
    assert chosen([growth], 0.7, Prices(1.0, token=0.5), COSTS, 0, 8) is None


def test_parents_are_read_before_their_children():
    growths = [Growth(8, 8, PRIOR) for _ in range(3)]
    for growth in growths:
        growth.add_base(TokenTree.build([3, 4, 5], belief=[0.6, 0.6, 0.6]), 8)
    picks = chosen(growths, 0.9, Prices(1.0, 1.0), [0.0] * (WIDEST + 1), 0, 8)
    assert picks == [[ROOT, 0, 1, 2]] * 3


def test_the_noise_of_the_text_picks_the_candidates():
    ids, probabilities = np.array([4, 7, 9], dtype=np.int32), np.array([0.5, 0.3, 0.2], dtype=np.float32)
    noise = KeyedNoise(3, 0, 1.0)
    taken = []
    for position in range(200):
        first = candidates(ids, probabilities, position, noise)[0]
        sums = np.log(probabilities.astype(np.float64)) + noise.gumbel(position, ids)
        assert first.token == ids[sums.argmax()]
        taken.append(first.token)
    assert abs(taken.count(4) / 200 - 0.5) < 0.15
    assert candidates(ids, np.zeros(3, dtype=np.float32), 0, noise) == []
    assert [one.token for one in candidates(ids, probabilities, 0, None, 2)] == [4, 7]


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("tokens", [1, 2, 24])
def test_the_kernel_finds_the_same_candidates(temperature, tokens):
    rng = np.random.default_rng(tokens)
    for seed in (0, 7, 1 << 60):
        noise = KeyedNoise(seed, 3, temperature)
        for position in (0, 5, 90_000):
            ids = rng.integers(0, 1 << 18, tokens).astype(np.int32)
            probabilities = rng.dirichlet(np.full(tokens, 0.2)).astype(np.float32)
            for row in (probabilities, np.where(probabilities > 0.1, probabilities, 0).astype(np.float32)):
                naive = candidates(ids, row, position, noise)
                fast = keyed_candidates(ids, row, position, noise)
                assert [one.token for one in fast] == [one.token for one in naive]
                np.testing.assert_allclose(fast, naive, rtol=1e-7)


def test_the_kernel_finds_nothing_in_a_broken_row():
    ids, noise = np.array([4, 7, 9], dtype=np.int32), KeyedNoise(1, 0, 1.0)
    for chance in (0.0, np.nan):
        assert keyed_candidates(ids, np.full(3, chance, dtype=np.float32), 0, noise) == []


def test_costs_follow_the_median_and_are_tried_again():
    known = Experience()
    assert known.costs() == [0.0] * (WIDEST + 1)
    for cost in (5.0, 0.4, 0.5):
        known.learn_pass(1, cost)
    assert known.costs()[1] == pytest.approx(0.4), "the fastest of the first"
    assert known.costs()[3] > known.costs()[1]
    known.learn_pass(1, 50.0)
    assert known.costs()[1] < 0.45, "one slow pass says little"
    for _ in range(8):
        known.prevent()
    assert known.costs()[1] == 0, "tried as if it took no time"
    known.learn_pass(1, 0.4)
    assert known.costs()[1] > 0.3


def test_a_long_unread_text_is_waited_for_longer():
    known = Experience()
    for _ in range(4):
        known.learn_pass(1, 3.0)
    for _ in range(100):
        known.prevent(unread=600)
    assert known.costs()[1] > 1
    for _ in range(8):
        known.prevent()
    assert known.costs()[1] == 0


def test_a_draft_ends_with_the_text():
    target = ToyTarget(order=1)
    drafter = DraftModelDrafter(target=target)
    session = drafter.open([1, 2, 3], None)
    assert session.draft(8, 0, drafter.prior).depth.max() > 1
    session.ends = frozenset(range(8))
    assert session.draft(8, 0, drafter.prior).depth.max() == 1
    session.ends = frozenset({4})
    tree = session.branch(TokenTree.build([3, 4, 5, 6], belief=[0.99] * 4), 8, 0, drafter.prior)
    assert not np.isin(tree.parents, np.flatnonzero(tree.tokens == 4)).any(), "nor are copies read"
    session.close()


def test_costs_are_told_apart_by_the_target_that_is_drafted_for():
    draft, one, other = Hashed(), Hashed(), Hashed()
    assert experience_with(draft, one) is experience_with(draft, one)
    assert experience_with(draft, one) is not experience_with(draft, other)
    assert experience_with(draft, one) is not experience_with(draft)


class Hashed(ToyTarget):
    """By which something can be looked up, as by models of both engines."""

    __hash__ = object.__hash__


def test_a_dear_model_is_left_alone_and_tried_once_in_a_while():
    target = Hashed()
    drafter = DraftModelDrafter(target=target)
    known = experience_with(drafter.found.target)
    for _ in range(4):
        known.learn_pass(1, 3.0)
    session = drafter.open([1, 2, 3], None)
    session.prices = Prices(1.0, 1.0)
    trees = [session.draft(4, 0, drafter.prior) for _ in range(9)]
    assert [len(tree) > 0 for tree in trees].count(True) == 1
    session.close()
    assert target.open_sessions == 0


def test_where_copies_are_long_and_sure_the_text_is_not_read():
    drafter = DraftModelDrafter(target=Hashed())
    known = experience_with(drafter.found.target)
    for width in range(1, 12):
        known.learn_pass(width, 0.2 * width)
        known.learn_pass(width, 0.2 * width)
    session = drafter.open([1, 2, 3], None)
    session.prices = Prices(1.0, 1.0)
    sure, unsure = (TokenTree.build([4] * 8, belief=[belief] * 8) for belief in (0.99, 0.3))
    assert not len(session.branch(sure, 4, 0, drafter.prior))
    assert session.reader.unread(3) == 3
    assert len(session.branch(unsure, 4, 0, drafter.prior))
    session.close()
