"""ngram-mod: the shared pool, mended against a plain retelling, faithful against llama.cpp's rules."""

from __future__ import annotations

import dataclasses
import random
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.drafters.reference import SCRIPTS, feedback, play
from tests.oracles.ngram_pool import NaiveMod, NaivePool

from draftwood.drafters.llama_cpp.ngram_mod import DEPTHS, FULL, RUNS, NgramModDrafter
from draftwood.drafters.llama_cpp.ngram_pool import SLOTS
from draftwood.drafters.load import load
from draftwood.errors import UsageError
from draftwood.testing import check_drafter

SMALL = {"n_match": 3, "n_min": 0, "n_max": 8}


def make(faithful=False, **options):
    return NgramModDrafter(**(SMALL | options), faithful=faithful)


def draft(session, nodes=100):
    return session.draft(nodes, 0, np.linspace(0.1, 0.9, 28, dtype=np.float32)).tokens.tolist()


def used(drafter):
    return int(drafter.pool.used[0])


# --- mended ----------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.lists(st.integers(0, 2), max_size=60), min_size=1, max_size=3),
    nodes=st.integers(1, 9),
    n=st.integers(1, 5),
    least=st.integers(0, 9),
    most=st.integers(0, 9),
)
def test_it_follows_all_that_was_read(texts, nodes, n, least, most):
    drafter, pool = NgramModDrafter(n, least, most), NaivePool(n, keyed=True)
    sessions = [drafter.open(text[:4], None) for text in texts]
    for session, text in zip(sessions, texts, strict=True):
        session.extend(text[4:])
    for text in texts:
        for start in range(len(text[:4]) - n):
            pool.insert(text, start)
    for text in texts:
        for start in range(max(0, len(text[:4]) - n), len(text) - n):
            pool.insert(text, start)
    for session, text in zip(sessions, texts, strict=True):
        wanted = min(nodes, most)
        hits = pool.follow(text, wanted) if len(text) >= n else []
        assert draft(session, nodes) == (hits if len(hits) >= min(least, wanted) else [])
    assert used(drafter) == len(pool.entries)


def test_a_token_is_in_the_pool_as_soon_as_it_is_known():
    drafter = make()
    session = drafter.open([1, 2, 3], None)
    for token in (4, 5, 1, 2):
        session.learn(feedback([token]))
    assert draft(session) == []
    session.learn(feedback([3]))
    assert draft(session) == [4, 5, 1, 2, 3, 4, 5, 1]
    assert used(drafter) == 5


def test_requests_help_each_other_and_other_drafters_do_not():
    drafter = make()
    writer = drafter.open([1, 2, 3, 4, 5, 6], None)
    reader = drafter.open([1, 2, 3], None)
    assert draft(reader) == [4, 5, 6]
    writer.close()
    assert draft(reader) == [4, 5, 6]
    assert draft(make().open([1, 2, 3], None)) == []
    assert draft(dataclasses.replace(drafter).open([1, 2, 3], None)) == []


def test_fewer_hits_than_n_min_are_no_draft_unless_fewer_are_asked_for():
    text = [1, 2, 3, 4, 5, 6]
    drafter = make(n_min=4)
    drafter.open(text, None)
    session = drafter.open([1, 2, 3], None)
    assert draft(session) == []
    assert draft(session, 3) == [4, 5, 6]
    assert draft(session, 4) == []


def test_n_max_limits_and_0_silences():
    loop = [1, 2, 3] * 5
    assert len(draft(make(n_max=7).open(loop, None))) == 7
    assert draft(make(n_max=0).open(loop, None)) == []
    assert draft(make(n_max=2, n_min=50).open(loop, None)) == [1, 2]


def test_bad_drafts_of_one_request_empty_nothing():
    drafter = make()
    session, other = drafter.open([1, 2, 3] * 4, None), drafter.open([5, 6, 7, 8, 5, 6, 7], None)
    for _ in range(8):
        tree = session.draft(8, 0, drafter.prior)
        session.learn(feedback([9, 1, 2, 3], tree, 0))
    assert draft(other)[:4] == [8, 5, 6, 7]
    assert draft(session)[0] == 9


def test_a_full_pool_is_emptied_and_every_open_request_comes_back():
    drafter = make()
    session = drafter.open([1, 2, 3, 4, 1, 2, 3], None)
    stranger = drafter.open([6, 6, 6, 7, 7, 7], None)
    stranger.close()
    before = used(drafter)
    drafter.pool.used[0] = int(SLOTS * FULL) + 1  # as if very much had been read
    new = drafter.open([5, 6, 7, 8], None)
    assert used(drafter) == 1
    assert draft(session)[0] == 4
    assert draft(drafter.open([5, 6, 7], None)) == [8]
    assert draft(drafter.open([6, 6, 6], None)) == []
    assert used(drafter) == before - 3 + 1
    new.close()


def test_a_collision_of_slots_is_no_hit():
    drafter = NgramModDrafter(n_match=1, n_min=0)
    drafter.open([5, 7], None)
    assert draft(drafter.open([5], None)) == [7]
    assert draft(drafter.open([5 + SLOTS], None)) == []
    assert draft(NgramModDrafter(1, 0, faithful=True).open([5, 7, 5, 5 + SLOTS], None)) != []


def test_classes_tell_how_long_the_pool_was_right_and_the_depth():
    drafter = make(n_max=64)
    text = list(range(1, 90))
    drafter.open(text, None)
    for read, run in ((3, 0), (4, 1), (7, 4), (40, 37)):
        session = drafter.open(text[:read], None)
        tree = session.draft(40, 0, drafter.prior)
        assert tree.tokens.tolist() == text[read : read + 40]
        assert session.match_length == 3 + run
        row = max(r for r, floor in enumerate(RUNS) if floor <= run)
        depths = [max(d for d, floor in enumerate(DEPTHS) if floor <= depth) for depth in range(1, 41)]
        assert tree.evidence.tolist() == [7 * row + depth for depth in depths]
        assert tree.belief.tolist() == drafter.prior[tree.evidence].tolist()
    assert len(drafter.prior) == len(RUNS) * len(DEPTHS)


def test_truncate_fork_and_close():
    drafter = make()
    session = drafter.open([1, 2, 3, 4, 1, 2, 3], None)
    twin = session.fork()
    twin.truncate(3)
    twin.extend([9, 1, 2, 3])
    assert draft(twin)[0] == 9
    assert draft(session)[0] == 9  # the pool is one, and the latest wins
    twin.close()
    twin.close()
    assert draft(twin) == []
    session.truncate(0)
    assert draft(session) == []


def test_threads_share_it():
    drafter = make(n_match=4)
    texts = [[random.Random(seed).randrange(50) + 100 * seed for _ in range(400)] for seed in range(8)]
    failures = []

    def write(text):
        session = drafter.open(text[:5], None)
        for i in range(5, len(text), 5):
            session.draft(8, 0, drafter.prior)
            session.learn(feedback(text[i : i + 5]))
        session.close()
        again = drafter.open(text[:200], None)
        if draft(again) != text[200:208]:
            failures.append(text[0])

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    keys = {tuple(t[i : i + 4]) for t in texts for i in range(len(t) - 4)}
    assert used(drafter) == len(keys)


# --- faithful --------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(script=SCRIPTS, n=st.sampled_from([1, 2, 3, 5, 33, 40]), least=st.integers(0, 6), most=st.integers(0, 9))
def test_faithful_drafts_what_the_reference_drafts(script, n, least, most):
    pool = NaivePool(n)
    play(script, NgramModDrafter(n, least, most, faithful=True), NaiveMod(pool, least, most))


def test_the_scripts_bring_drafts():
    drafter = NgramModDrafter(2, 2, 6, faithful=True)
    assert sum(play((seed, 3, 40), drafter, NaiveMod(NaivePool(2), 2, 6)) for seed in range(1)) > 5


def test_faithful_as_in_the_worked_example():
    """n = 12, prompt of 36: 24 insertions, then 21 at a history of 57, and 21 at 78."""
    chance = random.Random(5)
    text = [chance.randrange(50_000) for _ in range(120)]
    drafter = NgramModDrafter(n_match=12, faithful=True)
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


def test_faithful_with_its_defaults_inserts_every_9_tokens():
    text = list(range(1000, 1200))
    drafter = NgramModDrafter(faithful=True)
    session = drafter.open(text[:36], None)
    session.begin_answer(text[36:37])
    counts = [used(drafter)]
    for length in range(37, 70):
        session.draft(64, 0, drafter.prior)
        counts.append(used(drafter))
        session.learn(feedback([text[length]]))
    assert counts[0] == 12
    history = range(36, 69)
    grown = {h: b - a for h, a, b in zip(history, counts, counts[1:], strict=False) if b > a}
    assert grown == {45: 9, 54: 9, 63: 9}


@pytest.mark.parametrize(("length", "insertions"), [(0, 0), (11, 0), (12, 0), (13, 1), (36, 24)])
def test_faithful_prompt_of_n_tokens_inserts_nothing(length, insertions):
    drafter = NgramModDrafter(n_match=12, faithful=True)
    drafter.open(list(range(length)), None)
    assert used(drafter) == insertions


def test_faithful_needs_n_min_hits_in_a_row():
    text = list(range(60))
    for least, proposed in ((20, True), (21, False), (0, True)):
        drafter = NgramModDrafter(n_match=4, n_min=least, n_max=64, faithful=True)
        drafter.open(text[:30], None)
        session = drafter.open(text[:9], None)
        session.begin_answer([9])
        assert draft(session) == (text[10:30] if proposed else [])
    drafter = NgramModDrafter(n_match=4, n_min=1000, n_max=8, faithful=True)
    drafter.open(text[:30], None)
    session = drafter.open(text[:9], None)
    session.begin_answer([9])
    assert draft(session) == text[10:18]  # never more than n_max are needed


def test_faithful_slots_collide():
    drafter = NgramModDrafter(n_match=1, n_min=0, n_max=2, faithful=True)
    drafter.open([5, 7, 8], None)
    session = drafter.open([1], None)
    session.begin_answer([5 + SLOTS])
    assert draft(session) == [7, 8]


def bad_steps(session, drafter, count, tail=(1, 2, 3)):
    for _ in range(count):
        tree = session.draft(64, 0, drafter.prior)
        assert len(tree)
        session.learn(feedback([900, *tail], tree, 0))


def test_faithful_five_bad_drafts_empty_everybodys_pool():
    drafter = make(faithful=True)
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


def test_faithful_bad_drafts_are_counted_across_requests_until_a_good_one():
    drafter = make(faithful=True)
    prompt = [1, 2, 3, 4] * 3 + [1, 2]
    session = drafter.open(prompt, None)
    session.begin_answer([3])
    bad_steps(session, drafter, 4)
    session.truncate(0)
    session.extend(prompt)  # a turn
    session.begin_answer([3])
    bad_steps(session, drafter, 1)
    assert used(drafter) == 0

    drafter = make(faithful=True)
    session = drafter.open(prompt, None)
    session.begin_answer([3])
    bad_steps(session, drafter, 4)
    tree = session.draft(64, 0, drafter.prior)
    session.learn(feedback([*tree.tokens[:2].tolist(), 900, 1, 2, 3], tree, 2))  # 2 of 8: just enough
    bad_steps(session, drafter, 4)
    assert used(drafter) > 0


def test_faithful_share_is_of_the_draft_before_the_cut():
    drafter = make(faithful=True)
    session = drafter.open([1, 2, 3, 4] * 3 + [1, 2], None)
    session.begin_answer([3])
    for _ in range(5):
        tree = session.draft(1, 0, drafter.prior)
        assert len(tree) == 1
        session.learn(feedback([4, 1, 2, 3], tree, 1))  # all of what was scored, an eighth of what was drafted
    assert used(drafter) == 0


def test_faithful_full_pool_forgets_the_prompt_that_was_just_read():
    drafter = make(faithful=True)
    other = drafter.open([5, 6, 7, 8, 5, 6, 7], None)
    drafter.pool.used[0] = int(SLOTS * FULL) + 1
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


def test_faithful_occupancy_of_exactly_a_quarter_is_not_too_full():
    drafter = make(faithful=True)
    drafter.open([1, 2], None)
    drafter.pool.used[0] = int(SLOTS * FULL) - 1
    drafter.open([1, 2, 3, 4], None)
    assert used(drafter) == SLOTS // 4
    drafter.open([1, 2, 3, 4, 5], None)
    assert used(drafter) == 0


# --- both ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("faithful", [False, True])
@pytest.mark.parametrize("text", [[], [1], (1, 1), np.array([1, 1, 1])])
def test_hardly_any_text(faithful, text):
    session = make(faithful=faithful, n_match=4).open(text, None)
    assert draft(session) == []
    session.extend([])
    session.truncate(0)
    assert draft(session, 0) == draft(session, 5) == []


@pytest.mark.parametrize("options", [{}, {"faithful": True}])
def test_it_keeps_the_contract(options):
    check_drafter(NgramModDrafter(**options), prompt=[1, 2, 3, 1, 2])
    check_drafter(NgramModDrafter(**options), prompt=list(range(8)) * 3)


@pytest.mark.parametrize(
    "options",
    [{"n_match": 0}, {"n_match": 1025}, {"n_min": -1}, {"n_min": 1025}, {"n_max": -1}, {"n_max": 1025}],
)
def test_options_out_of_range(options):
    key, value = next(iter(options.items()))
    with pytest.raises(UsageError, match=rf"ngram-mod: {key} must lie between [01] and 1024, not {value}"):
        NgramModDrafter(**options)


def test_defaults_are_those_of_llama_cpp():
    assert load("ngram-mod") == (NgramModDrafter(24, 48, 64),)
    (drafter,) = load("ngram-mod:n_match=3:n_min=0:n_max=5:faithful=true")
    assert drafter == NgramModDrafter(3, 0, 5, faithful=True)
    assert repr(drafter) == "NgramModDrafter(n_match=3, n_min=0, n_max=5, faithful=True)"


def test_nothing_is_allocated_before_a_request():
    drafter = NgramModDrafter()
    assert drafter.pool.occupancy == 0
    assert drafter.pool.nbytes == 0
    drafter.open([], None)
    assert drafter.pool.nbytes == 2 * 4 * SLOTS
