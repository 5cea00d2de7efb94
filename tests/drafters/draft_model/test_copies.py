"""How far a draft model believes what other drafters propose for the next token."""

from copy import copy

import numpy as np
import pytest

from draftwood.drafters.draft_model.experience import PRIOR
from draftwood.drafters.draft_model.growth import ROOT, Growth
from draftwood.drafters.draft_model.session import Copies
from draftwood.tree import TokenTree

PROPOSAL = TokenTree.build([3, 4, 6], [-1, 0, -1], belief=[0.6, 0.5, 0.3])


def after(copies, tokens, proposal=PROPOSAL):
    text = []
    for token in tokens:
        copies.promise(len(text), proposal)
        text.append(token)
        copies.learn(np.array(text, dtype=np.int32))
    return copies


def test_trust_falls_with_promises_that_are_not_kept():
    assert Copies().trust == 1
    lost = [after(Copies(), [9] * n).trust for n in range(0, 40, 4)]
    assert lost == sorted(lost, reverse=True)
    assert lost[-1] < 0.2


@pytest.mark.parametrize("token", [3, 6])
def test_any_proposed_next_token_keeps_the_promise(token):
    assert after(Copies(), [token] * 20).trust == 1


def test_trust_comes_back():
    bad = after(Copies(), [9] * 20)
    before = bad.trust
    assert after(bad, [3] * 40).trust > 2 * before


def test_a_promise_is_looked_at_once_and_only_if_the_text_goes_on():
    copies = Copies()
    copies.promise(3, PROPOSAL)
    copies.learn(np.array([9, 9, 9], dtype=np.int32))
    assert copies.trust == 1
    copies.learn(np.array([9, 9, 9, 9], dtype=np.int32))
    once = copies.trust
    copies.learn(np.array([9, 9, 9, 9], dtype=np.int32))
    assert copies.trust == once < 1
    twin = copy(copies)
    copies.promise(4, PROPOSAL)
    copies.truncate(4)
    copies.learn(np.array([9, 9, 9, 9, 9], dtype=np.int32))
    assert copies.trust == once == twin.trust, "a cut forgets the promise"


def test_less_trust_makes_a_reading_of_the_root_bring_more():
    def gain(trust):
        growth = Growth(8, 8, PRIOR)
        growth.add_base(PROPOSAL, 8, trust)
        return next(gain for _, gain, node in growth.worth_reading(0.9, 8) if node == ROOT)

    assert gain(0.3) > 2 * gain(1.0) > 0
