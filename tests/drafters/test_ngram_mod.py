"""ngram-mod and its shared pool against llama.cpp's rules."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, feedback, play
from tests.helpers import in_threads
from tests.oracles.llama_cpp import SLOTS, NaiveMod, NaivePool

from draftwood.drafters.llama_cpp.ngram_mod import DEPTHS, FULL, PRIOR, NgramModDrafter
from draftwood.drafters.load import load

SMALL = {"n_match": 3, "n_min": 0, "n_max": 8}


def make(**options):
    return NgramModDrafter(**(SMALL | options))


def draft(session, nodes=100):
    return session.draft(nodes, 0, PRIOR).tokens.tolist()


def used(drafter):
    return drafter.pool.used


@settings(max_examples=30)
@given(script=SCRIPTS, n=st.sampled_from([1, 2, 3, 5, 33, 40]), least=st.integers(0, 6), most=st.integers(0, 9))
def test_ngram_mod_drafts_what_the_reference_drafts(script, n, least, most):
    pool = NaivePool(n)
    play(script, NgramModDrafter(n, least, most), NaiveMod(pool, least, most))


def test_as_in_the_worked_example():
    """n = 12, prompt of 36: 24 insertions, then 21 at a history of 57, and 21 at 78."""
    chance = random.Random(5)
    text = [chance.randrange(50_000) for _ in range(120)]
    drafter = NgramModDrafter(n_match=12)
    session = drafter.open(text[:36], None)
    assert used(drafter) == 24
    session.begin_answer(text[36:37])
    grown = {}
    for length in range(37, 99):  # of the text; the history is one token shorter
        before = used(drafter)
        session.draft(64, 0, drafter.prior)
        if used(drafter) > before:
            grown[length - 1] = used(drafter) - before
        session.learn(feedback([text[length]]))
    assert grown == {57: 21, 78: 21}


def test_slots_collide():
    drafter = NgramModDrafter(n_match=1, n_min=0, n_max=2)
    drafter.open([5, 7, 8], None)
    session = drafter.open([1], None)
    session.begin_answer([5 + SLOTS])
    assert draft(session) == [7, 8]


def bad_steps(session, drafter, count, tail=(1, 2, 3)):
    for _ in range(count):
        tree = session.draft(64, 0, drafter.prior)
        assert len(tree)
        session.learn(feedback([900, *tail], tree, 0))


def test_five_bad_drafts_empty_everybodys_pool():
    drafter = make()
    other = drafter.open([5, 6, 7, 8, 5, 6], None)
    other.begin_answer([7])
    session = drafter.open([1, 2, 3, 4] * 3 + [1, 2], None)
    session.begin_answer([3])
    bad_steps(session, drafter, 4)
    assert draft(other) == [8, 5, 6]
    bad_steps(session, drafter, 1)
    assert used(drafter) == 0
    assert draft(other) == []  # and it does not insert its prompt again
    assert draft(session)[:4] == [900, 1, 2, 3]  # this one does, at a history of more than 32 tokens
    assert draft(other) == []


def test_share_is_of_the_draft_before_the_cut():
    drafter = make()
    session = drafter.open([1, 2, 3, 4] * 3 + [1, 2], None)
    session.begin_answer([3])
    for _ in range(5):
        tree = session.draft(1, 0, drafter.prior)
        assert len(tree) == 1
        session.learn(feedback([4, 1, 2, 3], tree, 1))  # all of what was scored, an eighth of what was drafted
    assert used(drafter) == 0


def test_full_pool_forgets_the_prompt_that_was_just_read():
    drafter = make()
    other = drafter.open([5, 6, 7, 8, 5, 6, 7], None)
    drafter.pool.used = int(SLOTS * FULL) + 1
    prompt = [1, 2, 3, 4, 1, 2]
    session = drafter.open(prompt, None)
    assert used(drafter) == 0
    session.begin_answer([3])
    assert draft(session) == []
    for _ in range(30):
        session.learn(feedback([1]))
        session.draft(8, 0, drafter.prior)
    session.learn(feedback([2, 3]))
    assert draft(session)[0] == 1  # what came after the prompt is in the pool, the prompt's own 4 is not
    other.begin_answer([8])
    assert draft(other) == []


def test_classes_tell_the_depth():
    drafter = make(n_max=64)
    text = list(range(1, 90))
    drafter.open(text, None)
    tree = drafter.open(text[:5], None).draft(40, 0, PRIOR)
    assert tree.tokens.tolist() == text[5:45]
    depths = [max(d for d, floor in enumerate(DEPTHS) if floor <= depth) for depth in range(1, 41)]
    assert tree.evidence.tolist() == depths
    assert tree.belief.tolist() == PRIOR[depths].tolist()
    assert len(PRIOR) == len(DEPTHS)


def test_threads_share_a_drafter_and_its_pool():
    drafter = make(n_match=4)
    texts = [[random.Random(seed).randrange(50) + 100 * seed for _ in range(400)] for seed in range(4)]

    def write(text):
        session = drafter.open(text[:5], None)
        for i in range(5, len(text), 5):
            session.draft(8, 0, drafter.prior)
            session.learn(feedback(text[i : i + 5]))
        session.truncate(0)
        session.extend(text)  # inserts all of it
        session.close()
        again = drafter.open(text[:200], None)
        again.begin_answer(text[200:201])
        assert draft(again) == text[201:209]

    in_threads(write, *texts)
    keys = {tuple(t[i : i + 4]) for t in texts for i in range(len(t) - 4)}
    assert used(drafter) == len(keys)


def test_defaults_are_those_of_llama_cpp():
    assert load("ngram-mod") == (NgramModDrafter(24, 48, 64),)
    assert repr(load("ngram-mod:n_match=3:n_min=0:n_max=5")[0]) == "NgramModDrafter(n_match=3, n_min=0, n_max=5)"
