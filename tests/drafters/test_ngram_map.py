"""ngram-map-k and ngram-map-k4v against llama.cpp's rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, feedback, play
from tests.oracles.llama_cpp import NaiveMap

from draftwood.drafters.llama_cpp.copying import PRIOR, NgramMapK4vDrafter, NgramMapKDrafter
from draftwood.drafters.load import load
from draftwood.errors import UsageError


@given(script=SCRIPTS, n=st.integers(1, 4), m=st.integers(1, 6), hits=st.none() | st.integers(1, 3))
def test_they_draft_what_the_reference_drafts(script, n, m, hits):
    play(script, made(n, m, hits), NaiveMap(n, m, hits))


class Told:
    """A session written to word by word: n=2, m=3 unless said otherwise."""

    def __init__(self, prompt, make=NgramMapKDrafter, **options):
        options = {"size_n": 2, "size_m": 3} | options
        self.session = make(**options).open(list(prompt)[:-1], None)
        self.session.begin_answer(list(prompt)[-1:])

    def draft(self, nodes=50):
        self.tree = self.session.draft(nodes, 0, PRIOR)
        return self.tree.tokens.tolist()

    def write(self, *emitted, accepted=0, kept=None):
        self.session.learn(feedback(emitted, self.tree, accepted, kept))

    def turn(self, keep, prompt, first):
        self.session.truncate(keep)
        self.session.extend(prompt)
        self.session.begin_answer([first])


def test_never_finds_the_end_of_the_prompt():
    """The last n + m + 1 starts of the prompt are in neither range, however long the text grows."""
    told = Told([9, 8, 7, 6, 5, 4, 1, 2, 3, 3, 3, 9])  # prompt of 11: starts 5 and later are lost
    for _ in range(12):
        told.draft()
        told.write(20)
    told.draft()
    told.write(1, 2)
    assert told.draft() == []
    told.write(8, 7)
    assert told.draft() == [6, 5, 4]


def test_ratchet_counts_a_draft_cut_by_the_budget_as_short():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft(1) == [3]
    told.write(3, 30, 1, 2, accepted=1)
    assert told.draft() == [3]


def test_draft_of_which_nothing_was_scored_is_not_accepted():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft() == [3, 4, 5]
    told.write(30, 1, 2, kept=0)
    assert told.draft() == [3, 4, 5]


def test_collision_loses_an_n_gram_for_good():
    """With n = 1 the slot is the token modulo 2 ** 18: the first comer keeps it."""
    twin = (1 << 18) + 5
    told = Told([9, 1, 5, 2, 3, 4, twin, 6, 7, 8, 9, 9, 9, 9, 9], size_n=1, size_m=3)
    told.draft()
    for _ in range(3):
        told.write(5, accepted=len(told.tree))
        assert told.draft() == []
        told.write(twin)
        assert told.draft() == [6, 7, 8]


def test_min_hits_counts_lookups_and_is_held_in_16_bits():
    for hits, drafts in (
        (1, [[3, 4, 5], [3, 4, 5]]),
        (2, [[], [3, 4, 5]]),
        (50, [[], []]),
        (1 << 16, [[3, 4, 5]]),
    ):
        told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2], NgramMapK4vDrafter, min_hits=hits)
        assert [told.draft() for _ in drafts] == drafts


def test_k4v_copies_from_the_match_whatever_won():
    """History V1, V1, V2: the majority is V1, the proposal is V2."""
    v1, v2 = [3, 3, 3], [4, 4, 4]
    prompt = [9, 1, 2, *v1, 1, 2, *v1, 1, 2, *v2, 9, 8, 7, 6, 5, 9, 1, 2]
    assert Told(prompt, NgramMapK4vDrafter).draft() == v2


def test_after_a_shrunken_history_is_silent_where_the_reference_aborts():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft() == [3, 4, 5]
    told.session.truncate(8)
    assert told.draft() == []
    told.session.extend([3, 4, 5, 1, 2, 3, 4])  # a turn: begin
    assert told.draft() == []  # the newest token is in the prompt still
    told.session.begin_answer([5])
    told.draft()
    told.write(1, 2)
    assert told.draft() == [3, 4, 5]


def test_longer_prompt_of_another_text_is_not_indexed_where_the_old_was():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 40, 41, 42, 43, 44, 45, 46])
    assert told.draft() == []
    told.turn(0, [50, 51, 52, 53, 54, 55, 56, 57, *range(60, 80), 50], 51)
    assert told.draft() == []  # (50, 51) stands at 0; and positions up to the old mark are not read again
    told.write(52, 53)
    assert told.draft() == []
    told.write(68, 69)
    assert told.draft() == [70, 71, 72]


def made(n, m, hits):
    return NgramMapKDrafter(n, m) if hits is None else NgramMapK4vDrafter(n, m, hits)


@pytest.mark.parametrize("value", [-1, 0, 1 << 31])
def test_min_hits_out_of_range(value):
    with pytest.raises(UsageError, match=f"min_hits must lie between 1 and 2147483647, not {value}"):
        NgramMapK4vDrafter(min_hits=value)
    assert load("ngram-map-k4v:min_hits=3") == (NgramMapK4vDrafter(12, 48, 3),)
