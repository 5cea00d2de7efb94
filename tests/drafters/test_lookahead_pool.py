"""The n-grams of lookahead decoding."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.lookahead_runs import session_after

from draftwood.drafters.load import load
from draftwood.planning.fixed import FixedPlanner
from draftwood.testing import ToyTarget


def pool(options="", text=()):
    (drafter,) = load(f"lookahead:ngram=3{options}")
    return drafter.open(list(text), None).collected


@given(
    added=st.lists(st.tuples(st.integers(0, 2), st.tuples(*[st.integers(0, 2)] * 2)), max_size=60),
    guesses=st.integers(1, 4),
)
def test_a_pool_keeps_the_latest_of_each_first_token(added, guesses):
    found = pool(f":guesses={guesses}")
    for first, ngram in added:
        found.add(first, ngram)
    for first in range(3):
        latest = []
        for ngram in (ngram for key, ngram in reversed(added) if key == first):
            if ngram not in latest:
                latest.append(ngram)
        assert list(found.followers.get(first, {})) == latest[:guesses][::-1]


def test_a_pool_is_bounded_in_all(monkeypatch):
    monkeypatch.setattr("draftwood.drafters.lookahead.drafter.MOST", 10)
    found = pool(":guesses=4")
    found.add(99, (8, 8))
    for first in range(30):
        for number in range(3):
            found.add(first, (number, number))
        found.add(99, (7, 7))
    assert sum(map(len, found.followers.values())) <= 10
    assert list(found.followers)[-2:] == [29, 99]
    assert list(found.followers[99]) == [(8, 8), (7, 7)]  # a first token met again and again outlives the others
    text = list(range(100))
    long = pool(text=text)
    assert list(long.followers) == text[-10:-2]
    long.read([5])
    assert (99, 5) in long.followers[98]


def test_the_documents_example_of_three_guesses():
    (drafter,) = load("lookahead:ngram=4")
    session = drafter.open([ord(letter) for letter in "ABC"], None)
    for guess in ("DEF", "DFE", "DFG"):
        session.collected.add(ord("C"), tuple(map(ord, guess)))
    tree = session.draft(9, 0, drafter.prior)
    path, node = "", -1
    for letter in "DEF":
        node = tree.child(node, ord(letter))
        path += chr(tree.tokens[node])
    assert path == "DEF"
    assert len(tree) == 6  # of nine tokens: D is shared by all, F by two


def test_the_documents_layout_of_one_pass():
    """W = 5, N = 4 and G = 2: the input, 14 tokens of the window, 6 of guesses."""
    (drafter,) = load("lookahead:window=5:ngram=4:guesses=2:vocabulary=30")
    target = ToyTarget(30)
    session = session_after(5, target, [drafter], [1, 2, 3], FixedPlanner(6))
    session.collected.add(int(session.text[-1]), (1, 2, 3))
    session.collected.add(int(session.text[-1]), (2, 3, 4))
    tree = session.draft(6, 64, drafter.prior)
    assert (len(tree) - tree.n_lookahead, tree.n_lookahead) == (6, 14)
    assert not tree.lookahead[:6].any()


def test_the_n_grams_of_the_text_are_drafted_at_once_where_they_are_asked_for():
    (drafter,) = load("lookahead:ngram=4")
    session = drafter.open([1, 2, 3, 4, 9, 1, 2, 5, 6, 1], None)
    tree = session.draft(9, 0, drafter.prior)
    assert {tuple(tree.tokens[tree.path(leaf)].tolist()) for leaf in tree.leaves.tolist()} == {
        (2, 3, 4),
        (2, 5, 6),
    }
    assert len(tree) == 5  # the beginning that they share is one node
    assert session.match_length == 1
    assert len(session.draft(0, 0, drafter.prior)) == 0
    (without,) = load("lookahead:ngram=4:prompt=false")
    assert len(without.open([1, 2, 3, 4, 1], None).draft(9, 0, without.prior)) == 0


@given(text=st.lists(st.integers(0, 3), min_size=1, max_size=40), nodes=st.integers(1, 20), seed=st.integers(0, 9))
def test_drafts_grow_best_first_by_the_accept_rates(text, nodes, seed):
    (drafter,) = load("lookahead:ngram=4:window=20")
    accept_rates = np.random.default_rng(seed).uniform(0.05, 0.95, len(drafter.prior)).astype(np.float32)
    session = drafter.open(text, None)
    whole, part = (session.draft(n, 0, accept_rates) for n in (400, nodes))
    whole.check_integrity(4)
    assert len(set(zip(whole.parents.tolist(), whole.tokens.tolist(), strict=True))) == len(whole)
    assert (np.diff(whole.path_belief) <= 1e-6).all()
    assert part.tokens.tolist() == whole.tokens[:nodes].tolist()
    np.testing.assert_array_equal(whole.belief, accept_rates[whole.evidence])
