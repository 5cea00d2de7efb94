"""The drafter ``prediction`` against its naive twin, and what a user expects of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.helpers import feedback, go_on, opened
from tests.oracles.prediction import NaiveAlignment

from draftwood.contracts import Sampling
from draftwood.decoding.request import Request
from draftwood.drafters.prediction.drafter import PRIOR, PredictionDrafter
from draftwood.engines.replay import ReplayTarget
from draftwood.testing import check_drafter

RATES = np.array(PRIOR, dtype=np.float32)
TEXT = st.lists(st.integers(0, 3), max_size=30)


def draft(session, nodes=16):
    tree = session.draft(nodes, 0, RATES)
    tree.check_integrity()
    return tree


def best(session, nodes=16):
    """Tokens of the best chain."""
    tree = draft(session, nodes)
    return tree.tokens[tree.best_chain()].tolist()


def offered(session, nodes=16):
    """Tokens proposed right after the text."""
    tree = draft(session, nodes)
    return tree.tokens[tree.parents < 0].tolist()


def drafted(text, *answer, prompt=(1000, 1001)):
    session = PredictionDrafter(texts=(tuple(text),)).open(prompt, None)
    session.learn(feedback(*answer))
    return session


def passes(prompt, answer, texts):
    """How many steps the answer took."""
    target = ReplayTarget(prompt, answer)
    drafter = PredictionDrafter(texts=tuple(map(tuple, texts)))
    request = Request(list(prompt), len(answer), Sampling())
    with opened(target, [drafter], request) as row:
        written = go_on(target, row, 16)
        assert written.ids == list(answer)
        return len(written.steps)


# --- against the twin ----------------------------------------------------------------------------------------


def check_against_twin(texts, answer, window, nodes, accept_rates, floor):
    drafter = PredictionDrafter(texts=tuple(map(tuple, texts)), window=window, floor=floor)
    session, naive = drafter.open([9, 9], None), NaiveAlignment(texts, window)
    believed = [float(p) for p in accept_rates]
    for at in range(len(answer) + 1):
        if at:
            session.learn(feedback(answer[at - 1]))
            naive.follow(answer[at - 1])
        tree = session.draft(nodes, 0, accept_rates)
        tree.check_integrity()
        tokens, parents, evidence = naive.draft(nodes, believed, floor) if naive.starts and texts else ([], [], [])
        assert tree.tokens.tolist() == tokens
        assert tree.parents.tolist() == parents
        assert tree.evidence.tolist() == evidence
        assert tree.belief.tolist() == accept_rates[tree.evidence].tolist()


@given(
    texts=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=14), max_size=2),
    answer=TEXT,
    window=st.sampled_from([4, 8, 256]),
    nodes=st.integers(0, 20),
    seed=st.integers(0, 3),
    floor=st.sampled_from([0.0, 0.01, 0.3]),
)
def test_trees_are_those_of_the_naive_twin(texts, answer, window, nodes, seed, floor):
    accept_rates = RATES if not seed else np.random.default_rng(seed).random(len(PRIOR)).astype(np.float32)
    check_against_twin(texts, answer, window, nodes, accept_rates, floor)


@st.composite
def edited(draw):
    """A text of many words, and another that has some of its spans replaced, left out, moved or repeated."""
    text = draw(st.lists(st.integers(0, 30), min_size=20, max_size=120))
    answer, at = [], 0
    while at < len(text):
        keep, drop = draw(st.integers(1, 20)), draw(st.integers(0, 4))
        answer += text[at : at + keep]
        answer += draw(st.lists(st.integers(0, 40), max_size=3))
        at += keep + drop
        if draw(st.integers(0, 9)) == 0:
            at = draw(st.integers(0, len(text)))
        if len(answer) > 200:
            break
    assume(max(map(text.count, text)) <= 30)  # the kernel looks at so many places, the twin at all
    return text, answer


@settings(max_examples=30)
@given(both=edited(), window=st.sampled_from([8, 64]), nodes=st.sampled_from([4, 16, 40]))
def test_trees_are_those_of_the_naive_twin_on_edited_texts(both, window, nodes):
    check_against_twin([both[0]], both[1], window, nodes, RATES, 0.01)


@pytest.mark.parametrize("seed", range(4))
def test_trees_are_those_of_the_naive_twin_on_long_texts(seed):
    """What counts only after dozens of tokens: a lost cursor, long matches, places outside the window.

    Odd seeds have phrases that come again and again, so that several places match for long.
    """
    rng = np.random.default_rng(seed)
    text = rng.integers(0, int(rng.choice([40, 400])), 220).tolist()
    if seed % 2:
        phrases = [rng.integers(0, 60, int(rng.integers(3, 9))).tolist() for _ in range(12)]
        text = [token for which in rng.integers(0, 12, 40) for token in phrases[which]]
    answer = []
    while len(answer) < 260:
        at, length = int(rng.integers(len(text))), int(rng.choice([3, 6, 10, 30, 90]))
        vocabulary = int(rng.choice([60, 500]))
        more = rng.integers(0, vocabulary, int(rng.choice([0, 1, 2, 5, 17, 70])))
        answer += text[at : at + length] + more.tolist()
    check_against_twin([text[:110], text[110:]], answer, 32, 12, RATES, 0.0)


def test_what_stood_between_the_ends_of_two_texts_is_no_replacement():
    first, second = list(range(10)), list(range(20, 40))
    answer = [*first[:6], 90, 91, *second[2:8]]  # 90 91 instead of 6 7 8 9, the end, and 20 21
    check_against_twin([first, second], [*answer, *answer], 32, 12, RATES, 0.0)


# --- what it is for ------------------------------------------------------------------------------------------

EXPECTED = list(range(100, 200))


def test_the_first_draft_begins_with_the_text():
    session = PredictionDrafter(texts=(tuple(EXPECTED),)).open([1, 2], None)
    assert best(session) == EXPECTED[:16]
    session.begin_answer([100])
    assert best(session) == EXPECTED[1:17]
    assert session.match_length == 1


def test_what_was_renamed_is_renamed_where_it_stands_again():
    text = [*EXPECTED[:10], 5, 6, *EXPECTED[10:20], 5, 6, *EXPECTED[20:30], 5, 6, *EXPECTED[30:40]]
    session = drafted(text, *EXPECTED[:10], 8, *EXPECTED[10:18])
    tree = draft(session)
    assert tree.child(tree.child(tree.child(-1, EXPECTED[18]), EXPECTED[19]), 8) >= 0
    session.learn(feedback(*EXPECTED[18:20]))
    assert {5, 8} <= set(offered(session))
    session.learn(feedback(8, *EXPECTED[20:30]))
    assert best(session)[:3] == [8, *EXPECTED[30:32]]  # twice in a row: the likelier one


def test_a_changed_word_every_few_lines_costs_a_few_passes():
    rng = np.random.default_rng(5)
    answer = rng.integers(0, 500, 1000).tolist()
    text = list(answer)
    for at in range(25, 1000, 50):  # about one of five lines
        text[at : at + 2] = rng.integers(500, 600, int(rng.integers(0, 4))).tolist()
    assert len(answer) / passes([1], answer, [text]) >= 9
    assert passes([1], answer, [answer]) <= 63


def test_an_empty_prediction_proposes_nothing():
    for texts in ((), ((),), ((), ())):
        session = PredictionDrafter(texts=texts).open([1, 2], None)
        assert len(draft(session)) == 0
        session.learn(feedback(1, 2, 3))
        assert len(draft(session)) == 0
    check_drafter(PredictionDrafter())


def test_a_long_prediction():
    text = tuple(np.random.default_rng(3).integers(0, 50_000, 100_000).tolist())
    session = PredictionDrafter(texts=(text,)).open([1], None)
    session.learn(feedback(*text[:5], *text[90_000:90_003]))
    assert best(session)[:10] == list(text[90_003:90_013])
    same = PredictionDrafter(texts=((7,) * 1_000_000,)).open([1], None)
    same.learn(feedback(7, 8, 7, 7, 7, 7))
    assert best(same)[:4] == [7] * 4


# --- turns --------------------------------------------------------------------------------------------


def test_a_new_turn_starts_the_answer_again():
    session = drafted(EXPECTED, *EXPECTED[:30])
    assert best(session)[0] == 130
    session.extend([5, 6, 7])
    assert best(session)[0] == 100
    session.begin_answer([100])
    assert best(session)[0] == 101
    session.extend([8])  # a turn of a single token
    assert best(session)[0] == 100


def test_truncating_goes_back_within_the_answer_or_before_it():
    session = drafted(EXPECTED, *EXPECTED[:30], prompt=(1, 2))
    session.extend([5, 6, 7])
    session.learn(feedback(*EXPECTED[:20]))
    session.truncate(2 + 30 + 3 + 10)
    assert best(session)[0] == 110
    session.truncate(2 + 12)
    assert best(session)[0] == 100, "where an earlier answer began is not remembered: `begin_answer` will tell"
    session.truncate(1)
    assert best(session)[0] == 100
    session.extend([])  # the rest of the new turn's prompt: nothing
    session.begin_answer([100])
    assert best(session)[0] == 101
