"""Whether a text repeats itself: its last three tokens stood in it before."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from draftwood.planning import repeats
from draftwood.planning.repeats import SIZE, Repeats


def naive(ids):
    end = tuple(ids[-SIZE:])
    return len(ids) >= SIZE and any(tuple(ids[i : i + SIZE]) == end for i in range(len(ids) - SIZE))


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(1, 5), max_size=20))
def test_a_text_that_grows_is_looked_at_as_a_whole(ids, steps):
    seen, length = Repeats(), 0
    for step in steps:
        length = min(len(ids), length + step)
        assert seen.at_end_of(ids[:length]) == naive(ids[:length])
    assert seen.at_end_of(ids) == naive(ids)


def test_a_text_that_was_cut_is_looked_at_anew():
    seen = Repeats()
    assert not seen.at_end_of([1, 2, 3, 4, 5, 6])
    assert not seen.at_end_of([1, 2, 3])
    assert seen.at_end_of([1, 2, 3, 9, 1, 2, 3])


def test_of_a_very_long_text_the_end_is_looked_at(monkeypatch):
    monkeypatch.setattr(repeats, "_MOST", 10)
    assert not Repeats().at_end_of([1, 2, 3, *range(20, 40), 1, 2, 3])
    assert Repeats().at_end_of([*range(20, 40), 1, 2, 3, 7, 1, 2, 3])
