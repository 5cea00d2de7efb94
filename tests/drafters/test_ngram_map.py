"""ngram-map-k and ngram-map-k4v against llama.cpp's rules."""

from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, feedback, play
from tests.oracles.llama_cpp import NaiveMap

from draftwood.drafters.llama_cpp.copying import PRIOR, NgramMapK4vDrafter, NgramMapKDrafter


@given(script=SCRIPTS, n=st.integers(1, 4), m=st.integers(1, 6), hits=st.none() | st.integers(1, 3))
def test_ngram_maps_draft_what_the_reference_drafts(script, n, m, hits):
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


def test_after_a_shrunken_history_is_silent_where_the_reference_aborts():
    told = Told([9, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2])
    assert told.draft() == [3, 4, 5]
    told.session.truncate(8)
    assert told.draft() == []
    told.session.extend([3, 4, 5, 1, 2, 3, 4])  # a turn: begin
    assert told.draft() == []  # the newest token is in the prompt still


def made(n, m, hits):
    return NgramMapKDrafter(n, m) if hits is None else NgramMapK4vDrafter(n, m, hits)
