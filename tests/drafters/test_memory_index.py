"""The memory against a list that says the same: what it remembers and forgets, rebuilds, threads."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.drafters.answers import RATES, check, credit, follow, grown, session_at, texts, unique
from tests.helpers import in_threads

from draftwood.drafters.memory.memory import HALF_LIFE, NAMESPACE, START, Memory
from draftwood.drafters.ngram.index import NgramIndex
from draftwood.errors import UsageError

# --- what it remembers ---------------------------------------------------------------------------------------


def test_nobody_is_drafted_from_another_namespace():
    memory = Memory(10_000)
    memory.add(unique(1), "ann")
    memory.add(unique(2), "bob")
    assert follow(memory, unique(1)[:4], namespace="ann") == unique(1)[4:]
    assert follow(memory, unique(1)[:4], namespace="bob") == []
    assert follow(memory, unique(1)[:4]) == []
    assert memory.namespaces == {"ann": 1, "bob": 1}
    assert memory.held == 13 + 13 + NAMESPACE


@pytest.mark.parametrize("ids", [[], [5], np.array([], dtype=np.int64)])
def test_an_answer_from_which_nothing_can_be_copied_is_not_kept(ids):
    memory = Memory(100)
    assert not memory.add(ids)
    assert memory.held == 0
    assert memory.namespaces == {}


def test_an_answer_longer_than_the_memory_drives_nobody_out():
    memory = Memory(20)
    memory.add(unique(1))
    assert not memory.add(range(20))
    assert memory.add(range(19))
    assert texts(memory) == [list(range(19))]
    assert memory.held == 20


def test_negative_ids_change_nothing():
    memory = Memory(20)
    memory.add(unique(1))
    for odd in (["a"], [1.5], [[1, 2], [3, 4]], [[1], [2, 3]], 7, [None]):
        with pytest.raises(UsageError, match="keeps token ids: give a list of whole numbers"):
            memory.add(odd)
    with pytest.raises(UsageError, match="or larger than 2147483647"):
        memory.add([1 << 40, 2])
    with pytest.raises(UsageError, match="must not be negative"):
        memory.add([3, -1, 4])
    assert texts(memory) == [unique(1)]
    check(memory)


# --- what it forgets -----------------------------------------------------------------------------------------


def test_a_credit_loses_half_its_weight_in_a_half_life():
    size = 13_000
    memory = Memory(size)
    memory.add(unique(0))
    (before,) = memory.spaces[""].answers.values()
    assert before.worth == pytest.approx(math.log2(START) + 13 / (HALF_LIFE * size))
    worth = memory.answers()[0].worth
    for number in range(1, 501):
        memory.add(unique(number))
    later = memory.answers()[0].worth
    assert later == pytest.approx(worth - 500 * 13 / (HALF_LIFE * size))
    credit(memory, unique(0), times=3)
    assert 2 ** memory.answers()[0].worth == pytest.approx(2**later + 3)


def test_a_new_namespace_counts_for_more_than_its_answers():
    memory = Memory(NAMESPACE + 40)
    memory.add(unique(0), "ann")
    memory.add(unique(1), "ann")
    memory.add(unique(2), "bob")
    assert memory.namespaces == {"ann": 2, "bob": 1}
    memory.add(unique(3), "carl")
    assert memory.namespaces == {"bob": 1, "carl": 1}
    check(memory)


def test_forgetting_a_namespace():
    memory = Memory(10_000)
    memory.add(unique(1), "ann")
    memory.add(unique(2), "bob")
    session = session_at(memory, unique(1)[:4], "ann")
    assert session.draft(4, 0, RATES).tokens.tolist() == unique(1)[4:8]
    places = session._places.tolist()
    memory.forget("ann")
    memory.forget("nobody")
    assert len(session.draft(4, 0, RATES)) == session.match_length == 0
    session._credit(places)
    assert memory.namespaces == {"bob": 1}
    check(memory)
    memory.add(unique(1), "ann")
    assert session.draft(4, 0, RATES).tokens.tolist() == unique(1)[4:8]


class NaiveMemory:
    """Answers in a list; who goes is looked for among all."""

    def __init__(self, size):
        self.size, self.clock, self.answers = size, 0, []  # [namespace, ids, worth]

    def weight(self):
        return self.clock / (HALF_LIFE * self.size)

    def credit(self, answer, tokens):
        low, high = sorted((answer[2], math.log2(tokens) + self.weight()))
        answer[2] = high + math.log2(1 + 2 ** (low - high))

    def held(self, answers):
        spaces = {answer[0] for answer in answers}
        return sum(len(ids) + 1 for _, ids, _ in answers) + NAMESPACE * max(0, len(spaces) - 1)

    def add(self, ids, namespace):
        if not 2 <= len(ids) < self.size:
            if len(ids) >= 2:
                self.clock += len(ids) + 1
            return
        same = [answer for answer in self.answers if answer[:2] == [namespace, ids]]
        if same:
            self.credit(same[0], START)
            return
        self.clock += len(ids) + 1
        new = [namespace, ids, -math.inf]
        self.credit(new, START)
        while self.held([*self.answers, new]) > self.size:
            self.answers.remove(min(self.answers, key=lambda answer: answer[2]))
        self.answers.append(new)


ANSWERS = st.integers(0, 30).map(lambda number: unique(number, 37 * number % 90))


@given(
    size=st.sampled_from([1, 60, 250, 2600]),
    steps=st.lists(
        st.tuples(ANSWERS, st.sampled_from(["", "", "", "ann"]), st.integers(0, 40)), min_size=1, max_size=60
    ),
)
def test_a_memory_holds_exactly_what_a_list_would_and_proposes_nothing_else(size, steps):
    memory, naive = Memory(size), NaiveMemory(size)
    for ids, namespace, times in steps:
        memory.add(ids, namespace)
        naive.add(ids, namespace)
        known = [answer for answer in naive.answers if answer[0] == namespace and len(answer[1]) > 4]
        if times and known:
            chosen = known[times % len(known)]
            naive.credit(chosen, 1.0)
            credit(memory, chosen[1], namespace=namespace)
        for space in ("", "ann"):
            held = [answer[1] for answer in naive.answers if answer[0] == space]
            assert texts(memory, space) == held
            alive = {token for answer in held for token in answer}
            tokens, _, _, places = grown(memory, ids[:4], namespace=space)
            assert alive.issuperset(tokens)
            assert all(memory.spaces[space].owner(place) for place in places)
    check(memory)


def test_an_answer_is_proposed_and_credited_all_through_a_rebuild():
    memory = Memory(13 * 200)
    generations = set()
    memory.add(unique(0))
    for number in range(1, 900):
        memory.add(unique(number))
        credit(memory, unique(0), times=5)
        assert follow(memory, unique(0)[:4], 3) == unique(0)[4:7]
        assert follow(memory, unique(number)[:4], 3) == unique(number)[4:7]
        generations.add(memory.spaces[""].generation)
        if number % 50 == 0:
            check(memory)
    assert 3 < len(generations) < 40


def test_the_arrays_stay_small_whatever_comes():
    rng = np.random.default_rng(0)
    memory = Memory(20_000)
    for _ in range(600):
        memory.add(rng.integers(5000, size=rng.integers(2, 200)))
        assert memory.nbytes < 200 * 20_000
    check(memory)


@pytest.mark.parametrize("when", ["reading", "moving"])
def test_ctrl_c_leaves_a_memory_whole(monkeypatch, when):
    memory = Memory(13 * 100)
    for number in range(170):
        memory.add(unique(number))
    advance = NgramIndex._advance

    def broken(self, cursor, tail, known, own):
        found = advance(self, cursor, tail, known, own)
        if (len(tail) > 13) == (when == "moving"):
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(NgramIndex, "_advance", broken)
    number = 200
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it takes some until a rebuild begins
        while number < 1000:
            number += 1
            memory.add(unique(number))
    monkeypatch.undo()
    check(memory)
    assert follow(memory, unique(number)[:4]) == (unique(number)[4:] if when == "moving" else [])
    for number in range(1000, 1300):
        memory.add(unique(number))
        check(memory)
    assert len(texts(memory)) == 100


# --- threads -------------------------------------------------------------------------------------------------


def test_threads_read_and_write_one_memory():
    memory = Memory(6000)

    def work(seed):
        rng = np.random.default_rng(seed)
        for turn in range(60):
            number = int(rng.integers(200))
            memory.add(unique(number, 40), "" if turn % 10 else str(seed))
            session = session_at(memory, unique(number, 4))
            tokens = session.draft(8, 0, RATES).tokens.tolist()
            assert tokens == unique(number, 12)[4 : 4 + len(tokens)]
            session._credit(session._places.tolist())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        in_threads(work, *range(6))
    finally:
        sys.setswitchinterval(interval)
    check(memory)
