"""The static tree of Token Recycling."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftwood.drafters.load import load
from draftwood.drafters.recycling.static import PLACES, fill
from draftwood.testing import ToyTarget
from draftwood.testing.checks import run


def test_the_papers_tree_has_eighty_places_each_behind_one_of_its_own():
    assert len(PLACES) == len(set(PLACES)) == 80
    assert all(place[:-1] in {"", *PLACES[:i]} for i, place in enumerate(PLACES))


@given(nodes=st.integers(0, 100), vocab=st.integers(1, 12))
def test_the_static_tree_takes_what_follows_the_last_token_by_rank(nodes, vocab):
    def ranked(path):
        last = path[-1] if path else 0
        return [((last + rank + 1) % vocab, rank) for rank in range(min(8, vocab))]

    tree = fill(ranked, nodes)
    paths = [""]
    for token, parent, rank in tree:
        above = paths[parent + 1]
        paths.append(above + str(rank))
        last = tree[parent][0] if parent >= 0 else 0
        assert token == (last + rank + 1) % vocab
    assert paths[1:] == [place for place in PLACES[:nodes] if all(int(rank) < vocab for rank in place)]


def test_the_static_tree_of_one_request():
    target = ToyTarget(vocab_size=12, order=2, sharpness=3)
    plain, _ = run(target, [], [1, 2, 3], limit=60)
    for nodes in (1, 8, 80):
        drafted, steps = run(target, load("recycling:tree=static"), [1, 2, 3], limit=60, nodes=nodes)
        assert drafted == plain
        assert len(steps) < 59
