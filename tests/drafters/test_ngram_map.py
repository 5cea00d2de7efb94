"""ngram-map-k and ngram-map-k4v: mended against a plain retelling, faithful against llama.cpp's rules."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, feedback, play
from tests.oracles import ngram_chain as naive_ngram_chain
from tests.oracles.ngram_map import NaiveMap

from draftwood.drafters.llama_cpp.copying import MARGIN, VALUES, NgramMapK4vDrafter, NgramMapKDrafter, Rules
from draftwood.drafters.load import load
from draftwood.errors import UsageError
from draftwood.testing import check_drafter

BOTH = [NgramMapKDrafter, NgramMapK4vDrafter]
RATES = [float(p) for p in np.linspace(0.9, 0.2, 32, dtype=np.float32)]


def draft(session, nodes=16):
    return session.draft(nodes, 0, np.array(RATES, dtype=np.float32)).tokens.tolist()


# --- mended ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BOTH)
@settings(max_examples=200, deadline=None)
@given(
    text=st.lists(st.integers(0, 2), max_size=60),
    nodes=st.integers(0, 14),
    n=st.integers(1, 4),
    m=st.integers(1, 9),
    hits=st.integers(1, 4),
)
def test_the_tree_is_what_followed_the_key(make, text, nodes, n, m, hits):
    drafter = make(size_n=n, size_m=m, min_hits=hits)
    tree = drafter.open(text, None).draft(nodes, 0, np.array(RATES, dtype=np.float32))
    tree.check_integrity(3)
    kind = {"margin": MARGIN} if make is NgramMapKDrafter else {"kinds": VALUES, "newest": False}
    expected = naive_ngram_chain.followers(text, nodes, RATES, Rules(n, n, m, hits, **kind))
    found = zip(tree.tokens.tolist(), tree.parents.tolist(), tree.evidence.tolist(), strict=True)
    assert list(found) == expected
    assert tree.is_chain == all(parent == node - 1 for node, (_, parent, _) in enumerate(expected))


def test_k_drafts_the_newest_and_k4v_the_commonest():
    text = [1, 2, 3, 3, 1, 2, 3, 3, 1, 2, 4, 4, 1, 2]
    assert draft(NgramMapKDrafter(size_n=2, size_m=2).open(text, None)) == [4, 4]
    assert draft(NgramMapK4vDrafter(size_n=2, size_m=2).open(text, None)) == [3, 3]


def test_k4v_hangs_the_others_beside_a_winner_that_is_not_clear():
    text = [1, 2, 3, 3, 1, 2, 4, 4, 1, 2]
    tree = NgramMapK4vDrafter(size_n=2, size_m=2).open(text, None).draft(9, 0, np.array(RATES, dtype=np.float32))
    branches = {tuple(tree.tokens[tree.path(leaf)].tolist()) for leaf in tree.leaves.tolist()}
    assert branches == {(3, 3), (4, 4)}
    assert not tree.is_chain


def test_k_drafts_as_far_as_the_key_held_good_before_and_a_margin():
    shared, tail = list(range(10, 20)), list(range(100, 160))
    text = [1, 2, *shared, *tail, 1, 2, *shared, *(t + 100 for t in tail), 1, 2]
    drafter = NgramMapKDrafter(size_n=2)
    assert len(draft(drafter.open(text, None), 64)) == len(shared) + MARGIN
    assert len(draft(drafter.open(text[: len(text) // 2 + 2], None), 64)) == 48  # once only: nothing known


@pytest.mark.parametrize("make", BOTH)
def test_a_draft_that_failed_does_not_shorten_the_next(make):
    session = make(size_n=2, size_m=8).open([1, 2, *range(10, 30), 1, 2], None)
    for token in (50, 51, 52):
        tree = session.draft(8, 0, np.array(RATES, dtype=np.float32))
        assert tree.tokens[:1].tolist() != [token]
        session.learn(feedback([token, 1, 2], tree, 0))
        assert len(session.draft(8, 0, np.array(RATES, dtype=np.float32))) >= 3


@pytest.mark.parametrize("make", BOTH)
def test_min_hits_counts_occurrences_of_the_key(make):
    text = [1, 2, 3, 9, 1, 2, 3, 8, 1, 2]
    assert [bool(draft(make(size_n=2, min_hits=h).open(text, None))) for h in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize("make", BOTH)
def test_keys_of_one_token_more_are_not_found(make):
    assert draft(make(size_n=3).open([1, 2, 3, 7, 2, 3], None)) == []
    assert draft(make(size_n=2).open([1, 2, 3, 7, 2, 3], None))[:1] == [7]


@pytest.mark.parametrize("make", BOTH)
def test_another_text_after_the_common_prefix_is_learnt_anew(make):
    session = make(size_n=2).open([1, 2, 3, 4, 5, 6, 7, 8], None)
    session.truncate(3)
    session.extend([9, 9, 1, 2])
    assert draft(session)[:3] == [3, 9, 9]
    session.extend([5, 6])
    assert draft(session) == []


@pytest.mark.parametrize("make", BOTH)
def test_step_by_step_is_as_at_once(make):
    chance = random.Random(2)
    text = [chance.randrange(4) for _ in range(2500)]
    drafter = make(size_n=3, size_m=6)
    session = drafter.open(text[:4], None)
    for begin in range(4, len(text), 4):
        session.learn(feedback(text[begin : begin + 4]))
        if begin % 60 < 4:
            assert draft(session) == draft(drafter.open(text[: begin + 4], None))


def test_of_very_many_occurrences_the_newest_count():
    text = [1, 2, 3] * 30 + [1, 2, 4] * 64 + [1, 2]
    assert draft(NgramMapK4vDrafter(size_n=2, size_m=1).open(text, None)) == [4]


# --- faithful --------------------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(script=SCRIPTS, n=st.integers(1, 4), m=st.integers(1, 6), hits=st.none() | st.integers(1, 3))
def test_faithful_drafts_what_the_reference_drafts(script, n, m, hits):
    drafter = (
        NgramMapKDrafter(n, m, faithful=True) if hits is None else NgramMapK4vDrafter(n, m, hits, faithful=True)
    )
    play(script, drafter, NaiveMap(n, m, hits))


@pytest.mark.parametrize("hits", [None, 1])
def test_the_scripts_bring_drafts(hits):
    drafter = NgramMapKDrafter(2, 4, faithful=True) if hits is None else NgramMapK4vDrafter(2, 4, faithful=True)
    assert sum(play((seed, 3, 40), drafter, NaiveMap(2, 4, hits)) for seed in range(8)) > 10


class Told:
    """A faithful session written to word by word: n=2, m=3 unless said otherwise."""

    def __init__(self, prompt, make=NgramMapKDrafter, **options):
        options = {"size_n": 2, "size_m": 3} | options
        self.session = make(**options, faithful=True).open(list(prompt)[:-1], None)
        self.session.begin_answer(list(prompt)[-1:])

    def draft(self, nodes=50):
        self.tree = self.session.draft(nodes, 0, np.full(32, 0.5, dtype=np.float32))
        return self.tree.tokens.tolist()

    def write(self, *emitted, accepted=0, kept=None):
        self.session.learn(feedback(emitted, self.tree, accepted, kept))

    def turn(self, keep, prompt, first):
        self.session.truncate(keep)
        self.session.extend(prompt)
        self.session.begin_answer([first])


def test_faithful_needs_2n_plus_m_tokens_of_history():
    assert Told([9, 1, 2, 3, 4, 5, 6, 7]).draft() == []
    short, enough = [9, 1, 2, 3, 4, 1, 2], [9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2]
    assert Told(short).draft() == []
    assert Told(enough).draft() == [3, 4, 5]


def test_faithful_never_finds_the_end_of_the_prompt():
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


def test_faithful_ratchet_shortens_for_good():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft() == [3, 4, 5]
    told.write(3, 4, 30, 31, 1, 2, accepted=2)
    assert told.draft() == [3, 4]
    told.write(30, 32, 1, 2, accepted=0)
    for _ in range(3):
        assert told.draft() == []
        told.write(3, 4, 5, 1, 2)


def test_faithful_ratchet_counts_a_draft_cut_by_the_budget_as_short():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft(1) == [3]
    told.write(3, 30, 1, 2, accepted=1)
    assert told.draft() == [3]


def test_faithful_draft_of_which_nothing_was_scored_is_not_accepted():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft() == [3, 4, 5]
    told.write(30, 1, 2, kept=0)
    assert told.draft() == [3, 4, 5]


def test_faithful_match_is_frozen_at_the_newest_of_the_first_pass():
    told = Told([9, 1, 2, 3, 3, 3, 1, 2, 4, 4, 4, 7, 7, 7, 7, 7, 1, 2])
    assert told.draft() == [4, 4, 4]
    told.write(5, 5, 5, 5, 5, 5, 5, 1, 2, accepted=3)
    assert told.draft() == [4, 4, 4]  # though 5, 5, 5 came since


def test_faithful_collision_loses_an_n_gram_for_good():
    """With n = 1 the slot is the token modulo 2 ** 18: whoever came first keeps it."""
    twin = (1 << 18) + 5
    told = Told([9, 1, 5, 2, 3, 4, twin, 6, 7, 8, 9, 9, 9, 9, 9], size_n=1, size_m=3)
    told.draft()
    for _ in range(3):
        told.write(5, accepted=len(told.tree))
        assert told.draft() == []
        told.write(twin)
        assert told.draft() == [6, 7, 8]


def test_faithful_k_ignores_min_hits():
    assert Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2], min_hits=50).draft() == [3, 4, 5]
    assert Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2], NgramMapK4vDrafter, min_hits=50).draft() == []


def test_faithful_min_hits_is_held_in_16_bits():
    assert Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2], NgramMapK4vDrafter, min_hits=1 << 16).draft() == [3, 4, 5]


def test_faithful_min_hits_counts_lookups():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2], NgramMapK4vDrafter, min_hits=2)
    assert told.draft() == []
    assert told.draft() == [3, 4, 5]


def test_faithful_k4v_copies_from_the_match_whatever_won():
    """History V1, V1, V2: the majority is V1, the proposal is V2."""
    v1, v2 = [3, 3, 3], [4, 4, 4]
    prompt = [9, 1, 2, *v1, 1, 2, *v1, 1, 2, *v2, 9, 8, 7, 6, 5, 9, 1, 2]
    assert Told(prompt, NgramMapK4vDrafter).draft() == v2


def test_faithful_k4v_is_silent_without_a_majority_of_two_thirds():
    v1, v2 = [3, 3, 3], [4, 4, 4]
    prompt = [9, 1, 2, *v1, 1, 2, *v2, 9, 8, 7, 6, 5, 9, 1, 2]
    assert Told(prompt, NgramMapK4vDrafter).draft() == []


def test_faithful_k4v_counts_its_frozen_match_at_every_hit():
    v1, v2 = [3, 3, 3], [4, 4, 4]
    told = Told([9, 1, 2, *v1, 1, 2, *v2, 9, 8, 7, 6, 5, 9, 1, 2], NgramMapK4vDrafter)
    assert told.draft() == []
    told.write(1, 2)
    assert told.draft() == v2  # 2 to 1 now, by counting the same occurrence again


def test_faithful_after_a_shrunken_history_is_silent_where_the_reference_aborts():
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


def test_faithful_longer_prompt_of_another_text_is_not_indexed_where_the_old_was():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 40, 41, 42, 43, 44, 45, 46])
    assert told.draft() == []
    told.turn(0, [50, 51, 52, 53, 54, 55, 56, 57, *range(60, 80), 50], 51)
    assert told.draft() == []  # (50, 51) stands at 0; and positions up to the old mark are not read again
    told.write(52, 53)
    assert told.draft() == []
    told.write(68, 69)
    assert told.draft() == [70, 71, 72]


# --- both ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("text", [[], [1], [1, 1], (1, 1), np.array([1, 1])])
def test_hardly_any_text(make, faithful, text):
    session = make(size_n=1, size_m=1, faithful=faithful).open(text, None)
    assert draft(session, 1) == ([] if faithful or len(text) < 2 else [1])
    session.truncate(0)
    assert draft(session) == []
    session.close()
    session.close()


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize("options", [{}, {"size_n": 2}, {"size_n": 1, "size_m": 3, "min_hits": 2}])
def test_they_keep_the_contract(make, options):
    check_drafter(make(**options), prompt=[1, 2, 3, 1, 2, 3, 1, 2])
    check_drafter(make(**options))


def test_the_faithful_k_keeps_the_contract():
    check_drafter(NgramMapKDrafter(2, 4, faithful=True), prompt=[1, 2, 3, 1, 2, 3, 1, 2, 3, 3, 1, 2])


@pytest.mark.parametrize("make", BOTH)
def test_options_out_of_range(make):
    for key, value in (("size_n", 0), ("size_n", 1025), ("size_m", 0), ("size_m", 1025), ("min_hits", 0)):
        with pytest.raises(UsageError, match=rf"{make.name}: {key} must lie between 1 and \d+, not {value}"):
            make(**{key: value})


@pytest.mark.parametrize("make", BOTH)
def test_defaults_are_those_of_llama_cpp(make):
    assert load(make.name) == (make(12, 48, 1),)
    assert load(f"{make.name}:size_n=3:size_m=5:faithful=true")[0] == make(3, 5, faithful=True)
