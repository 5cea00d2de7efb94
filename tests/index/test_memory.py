"""The memory against a list that says the same; what is forgotten, what files hold, threads and processes."""

from __future__ import annotations

import hashlib
import math
import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwood.errors import FileFormatError, IntegrityError, UsageError, VocabularyError
from draftwood.index import files, memory_file
from draftwood.index.memory import MOST_TOKENS, Memory
from draftwood.index.memory_answers import NAMESPACE
from draftwood.index.memory_file import KIND, Saved, alone, read_memory, write_memory
from draftwood.index.memory_order import HALF_LIFE, START
from draftwood.index.memory_reader import MemoryReader
from draftwood.index.ngram_kernel import CLASSES, MATCHED

ODDS = np.full(CLASSES, 1e-6, dtype=np.float32)
ODDS[:MATCHED] = 0.5  # whatever matched before whatever merely stood near


def unique(number, length=12):
    """An answer that shares no token with any other."""
    return list(range(1000 * number, 1000 * number + length))


def texts(memory, namespace=""):
    return [saved.ids.tolist() for saved in memory.answers() if saved.namespace == namespace]


def grown(memory, text, nodes=8, namespace=""):
    """Tokens, parents, classes and places of the tree that is proposed after this text, as lists."""
    found = MemoryReader(memory, namespace).grow(np.array(text, dtype=np.int32), ODDS, nodes, nodes)
    return found[0].tolist() if found is not None else [[], [], [], []]


def follow(memory, text, nodes=8, namespace=""):
    """What is proposed after this text because it stood behind the same tokens: a chain."""
    tokens, parents, classes, _ = grown(memory, text, nodes, namespace)
    chain, last = [], -1
    for node, (token, parent, label) in enumerate(zip(tokens, parents, classes, strict=True)):
        if label < MATCHED and parent == last:
            chain, last = [*chain, token], node
    return chain


def credit(memory, ids, times=1, namespace=""):
    """Let an answer be useful, as a session does."""
    reader = MemoryReader(memory, namespace)
    columns, _ = reader.grow(np.array(ids[:4], dtype=np.int32), ODDS, 1, 1)
    reader.credit(columns[3].tolist() * times)


# --- what it remembers ---------------------------------------------------------------------------------------


def test_what_was_remembered_is_proposed():
    memory = Memory(100)
    assert memory.add(unique(1))
    assert follow(memory, unique(1)[:4]) == unique(1)[4:]
    assert follow(memory, [7, 8]) == []
    assert follow(memory, []) == []
    memory.check_integrity()


def test_no_match_crosses_from_one_answer_to_the_next():
    memory = Memory(100)
    memory.add(unique(1))
    memory.add(unique(2))
    assert follow(memory, unique(1)) == []
    assert follow(memory, unique(2)) == []


def test_nobody_is_drafted_from_another_namespace():
    memory = Memory(10_000)
    memory.add(unique(1), "ann")
    memory.add(unique(2), "bob")
    assert follow(memory, unique(1)[:4], namespace="ann") == unique(1)[4:]
    assert follow(memory, unique(1)[:4], namespace="bob") == []
    assert follow(memory, unique(1)[:4]) == []
    assert memory.namespaces == {"ann": 1, "bob": 1}
    assert memory.held == 13 + 13 + NAMESPACE


def test_equal_answers_are_kept_once_per_namespace():
    memory = Memory(10_000)
    for namespace in ("", "ann", "", "ann"):
        assert memory.add(unique(1), namespace)
    assert memory.namespaces == {"": 1, "ann": 1}


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
    with pytest.raises(UsageError, match="must not be negative"):
        memory.add([3, -1, 4])
    assert texts(memory) == [unique(1)]
    memory.check_integrity()


@pytest.mark.parametrize("tokens", [0, -1, MOST_TOKENS + 1])
def test_sizes_out_of_range(tokens):
    with pytest.raises(UsageError, match="a memory holds 1 to"):
        Memory(tokens)


def test_a_memory_of_one_token_remembers_nothing():
    memory = Memory(1)
    assert not memory.add([1, 2])
    memory.check_integrity()


def test_what_it_was_given_may_change_afterwards():
    ids = np.arange(8, dtype=np.int32)
    memory = Memory(100)
    memory.add(ids)
    ids[:] = 3
    assert texts(memory) == [list(range(8))]


# --- what it forgets -----------------------------------------------------------------------------------------


def test_without_credits_the_oldest_answer_goes_first():
    memory = Memory(3 * 13)
    for number in range(5):
        memory.add(unique(number))
    assert texts(memory) == [unique(2), unique(3), unique(4)]


def test_the_least_useful_answer_goes_first():
    memory = Memory(3 * 13)
    for number in range(3):
        memory.add(unique(number))
    credit(memory, unique(0), times=20)
    memory.add(unique(3))
    assert texts(memory) == [unique(0), unique(2), unique(3)]


def test_an_answer_that_comes_again_counts_as_useful_again():
    memory = Memory(3 * 13)
    for number in (0, 1, 2, 0, 3):
        memory.add(unique(number))
    assert texts(memory) == [unique(0), unique(2), unique(3)]


def test_a_credit_loses_half_its_weight_in_a_half_life():
    size = 13_000
    memory = Memory(size)
    memory.add(unique(0))
    before = memory.contents.find(("", hashlib.blake2b(np.array(unique(0), np.int32), digest_size=16).digest()))
    assert before.worth == pytest.approx(math.log2(START) + 13 / (HALF_LIFE * size))
    worth = memory.answers()[0].worth
    for number in range(1, 501):
        memory.add(unique(number))
    later = memory.answers()[0].worth
    assert later == pytest.approx(worth - 500 * 13 / (HALF_LIFE * size))
    credit(memory, unique(0), times=3)
    assert 2 ** memory.answers()[0].worth == pytest.approx(2**later + 3)


def test_credits_fade():
    memory = Memory(3 * 13)
    memory.add(unique(0))
    credit(memory, unique(0), times=10)
    for number in range(1, 60):
        memory.add(unique(number))
    assert unique(0) not in texts(memory)


def test_a_new_namespace_counts_for_more_than_its_answers():
    memory = Memory(NAMESPACE + 40)
    memory.add(unique(0), "ann")
    memory.add(unique(1), "ann")
    memory.add(unique(2), "bob")
    assert memory.namespaces == {"ann": 2, "bob": 1}
    memory.add(unique(3), "carl")
    assert memory.namespaces == {"bob": 1, "carl": 1}
    memory.check_integrity()


def test_forgetting_a_namespace():
    memory = Memory(10_000)
    memory.add(unique(1), "ann")
    memory.add(unique(2), "bob")
    reader = MemoryReader(memory, "ann")
    text = np.array(unique(1)[:4], dtype=np.int32)
    columns, _ = reader.grow(text, ODDS, 4, 4)
    memory.forget("ann")
    memory.forget("nobody")
    assert reader.grow(text, ODDS, 4, 4) is None
    assert reader.match_length == 0
    reader.credit(columns[3].tolist())
    assert memory.namespaces == {"bob": 1}
    memory.check_integrity()
    memory.add(unique(1), "ann")
    assert reader.grow(text, ODDS, 4, 4)[0][0].tolist() == unique(1)[4:8]


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


@settings(max_examples=150, deadline=None)
@given(
    size=st.sampled_from([1, 60, 250, 2600]),
    steps=st.lists(
        st.tuples(ANSWERS, st.sampled_from(["", "", "", "ann"]), st.integers(0, 40)), min_size=1, max_size=60
    ),
)
def test_it_holds_exactly_what_a_list_would_and_proposes_nothing_else(size, steps):
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
            assert all(memory.contents.spaces[space].owner(place) for place in places)
    memory.check_integrity()


def test_an_answer_is_proposed_and_credited_all_through_a_rebuild():
    memory = Memory(13 * 200)
    generations = set()
    memory.add(unique(0))
    for number in range(1, 1500):
        memory.add(unique(number))
        credit(memory, unique(0), times=5)
        assert follow(memory, unique(0)[:4], 3) == unique(0)[4:7]
        assert follow(memory, unique(number)[:4], 3) == unique(number)[4:7]
        generations.add(memory.contents.spaces[""].generation)
        if number % 50 == 0:
            memory.check_integrity()
    assert 5 < len(generations) < 40


def test_a_reader_goes_on_after_a_rebuild():
    memory = Memory(13 * 200)
    memory.add(unique(0))
    reader = MemoryReader(memory, "")
    text = np.array(unique(0), dtype=np.int32)
    for number in range(1, 800):
        memory.add(unique(number))
        credit(memory, unique(0), times=5)
        length = 4 + number % 6
        if length == 4:
            reader.restart()
        columns, _ = reader.grow(text[:length], ODDS, 2, 2)
        assert columns[0].tolist() == unique(0)[length : length + 2]
        twin = reader.copy()
        assert twin.grow(text[:length], ODDS, 2, 2)[0].tolist() == columns.tolist()
        reader.credit(columns[3].tolist())


def test_the_arrays_stay_small_whatever_comes():
    rng = np.random.default_rng(0)
    memory = Memory(20_000)
    for _ in range(1500):
        memory.add(rng.integers(5000, size=rng.integers(2, 200)))
        assert memory.nbytes < 200 * 20_000
    memory.check_integrity()


def test_integrity_is_checked():
    memory = Memory(100)
    memory.add(unique(1))
    memory.contents.spaces[""].index.blank(3, 4)
    with pytest.raises(IntegrityError, match="answers must not overlap and must be whole"):
        memory.check_integrity()


@pytest.mark.parametrize("when", ["reading", "moving"])
def test_ctrl_c_leaves_it_whole(monkeypatch, when):
    from draftwood.index.memory_index import DocumentIndex

    memory = Memory(13 * 100)
    for number in range(170):
        memory.add(unique(number))
    read, calls = DocumentIndex.read_documents, []

    def interrupted(self, documents):
        calls.append(len(documents))
        if (len(documents) > 1) == (when == "moving"):
            monkeypatch.setattr(DocumentIndex, "_advance", broken)
        return read(self, documents)

    advance = DocumentIndex._advance

    def broken(self, *arguments, **options):
        advance(self, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(DocumentIndex, "read_documents", interrupted)
    number = 200
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it takes some until a rebuild begins
        while number < 1000:
            number += 1
            memory.add(unique(number))
    monkeypatch.undo()
    memory.check_integrity()
    assert follow(memory, unique(number)[:4]) == (unique(number)[4:] if when == "moving" else [])
    for number in range(1000, 1300):
        memory.add(unique(number))
    memory.check_integrity()
    assert len(texts(memory)) == 100


# --- threads -------------------------------------------------------------------------------------------------


def test_threads_read_and_write_one_memory():
    memory, failures = Memory(6000), []

    def work(seed):
        rng = np.random.default_rng(seed)
        reader = MemoryReader(memory, "")
        try:
            for turn in range(150):
                number = int(rng.integers(200))
                memory.add(unique(number, 40), "" if turn % 10 else str(seed))
                columns = reader.grow(np.array(unique(number, 4), dtype=np.int32), ODDS, 8, 8)
                reader.restart()
                if columns is not None:
                    tokens, _, _, places = columns[0].tolist()
                    assert tokens == unique(number, 12)[4 : 4 + len(tokens)]
                    reader.credit(places)
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    memory.check_integrity()


# --- files ---------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.dwm"


def filled(path=None, count=4, first=0):
    memory = Memory(10_000, fingerprint="abc") if path is None else Memory.open(path, 10_000)
    for number in range(first, first + count):
        memory.add(unique(number), "ann" if number % 2 else "")
    return memory


def test_it_comes_back_from_its_file(path):
    memory = filled()
    credit(memory, unique(2), times=7)
    assert memory.changed
    assert memory.save(path) == path
    assert not memory.changed
    again = Memory.open(path, 10_000)
    again.check_integrity()
    assert not again.changed
    assert again.fingerprint == "abc"
    for one, other in zip(memory.answers(), again.answers(), strict=True):
        assert (one.namespace, one.ids.tolist()) == (other.namespace, other.ids.tolist())
        assert one.worth == pytest.approx(other.worth)
    assert follow(again, unique(2)[:4]) == unique(2)[4:]


def test_a_file_that_does_not_exist_yet(tmp_path):
    path = tmp_path / "new" / "folder" / "answers.dwm"
    with Memory.open(path, 500) as memory:
        assert memory.held == 0
        memory.add(unique(1))
        assert not path.exists()
    assert texts(Memory.open(path)) == [unique(1)]


def test_an_empty_memory_has_a_file_too(path):
    Memory(10).save(path)
    memory = Memory.open(path)
    assert memory.answers() == []
    assert memory.fingerprint is None


def test_a_memory_of_no_file_says_so():
    with pytest.raises(UsageError, match="was not opened from a file"):
        Memory(10).save()


def test_of_a_file_that_is_too_big_the_most_useful_answers_are_taken(path):
    memory = Memory(1000)
    for number in range(20):
        memory.add(unique(number))
    for number in (3, 11):
        credit(memory, unique(number), times=30)
    memory.save(path)
    small = Memory.open(path, 3 * 13)
    assert texts(small) == [unique(3), unique(11), unique(19)]
    small.check_integrity()


def test_a_later_save_keeps_what_another_process_wrote_meanwhile(path):
    filled().save(path)
    one, other = filled(path, 2, 10), filled(path, 2, 20)
    one.save()
    other.save()
    expected = {tuple(unique(n)) for n in (0, 1, 2, 3, 10, 11, 20, 21)}
    assert {tuple(a.ids.tolist()) for a in Memory.open(path).answers()} == expected
    assert {tuple(a.ids.tolist()) for a in other.answers()} == expected
    other.check_integrity()


def test_what_was_forgotten_here_does_not_come_back_from_the_file(path):
    filled().save(path)
    one, other = filled(path, 0), filled(path, 1, 10)
    other.save()
    one.forget("ann")
    one.save()
    assert one.namespaces == {"": 3}
    assert Memory.open(path).namespaces == {"": 3}


def test_what_was_driven_out_here_does_not_come_back_from_the_file(path):
    memory = Memory(4 * 13)
    for number in range(4):
        memory.add(unique(number))
    memory.save(path)
    other = Memory.open(path, 1000)
    other.add(unique(50))
    other.save()
    memory.add(unique(4))
    memory.save()
    assert unique(0) not in texts(Memory.open(path))
    memory.check_integrity()


def test_a_full_memory_takes_only_what_is_worth_more_from_a_file(path):
    memory = Memory(3 * 13)
    memory.save(path)
    for number in range(3):
        memory.add(unique(number))
        credit(memory, unique(number), times=5)
    other = Memory.open(path, 1000)
    for number in (10, 11):
        other.add(unique(number))
    credit(other, unique(11), times=50)
    other.save()
    memory.save()
    assert sorted(texts(memory)) == [unique(1), unique(2), unique(11)]


def test_it_can_be_saved_elsewhere(path, tmp_path):
    memory = filled(path)
    memory.save()
    elsewhere = tmp_path / "copy.dwm"
    memory.forget("ann")
    memory.save(elsewhere)
    assert memory.path == elsewhere
    assert Memory.open(elsewhere).namespaces == {"": 2}
    assert Memory.open(path).namespaces == {"": 2, "ann": 2}


def test_the_tokenizer_must_be_the_same(path):
    filled().save(path)
    memory = Memory.open(path)
    memory.check_fingerprint("abc")
    with pytest.raises(
        VocabularyError, match=r"answers\.dwm holds the ids of another tokenizer \(abc, here xyz\)"
    ):
        memory.check_fingerprint("xyz")
    stranger = Memory(100, fingerprint="xyz")
    stranger.add(unique(1))
    before = path.read_bytes()
    with pytest.raises(VocabularyError, match="another tokenizer"):
        stranger.save(path)
    assert path.read_bytes() == before
    fresh = Memory(100)
    fresh.check_fingerprint("new")
    assert fresh.fingerprint == "new"


def test_every_byte_cut_and_every_bit_of_the_header_flipped_is_noticed(path):
    filled(count=2).save(path)
    content = path.read_bytes()
    start = files.read_header(path, KIND).start
    for end in range(len(content)):
        path.write_bytes(content[:end])
        with pytest.raises(FileFormatError):
            Memory.open(path)
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :])
        sentence = "no file of draftwood" if place < 8 else "is damaged" if place >= start else r"answers\.dwm "
        with pytest.raises(FileFormatError, match=sentence):
            Memory.open(path)
    path.write_bytes(content + b"x")
    with pytest.raises(FileFormatError, match="goes on after its end"):
        Memory.open(path)


def test_a_broken_file_is_not_written_over(path):
    filled().save(path)
    path.write_bytes(path.read_bytes()[:-3])
    broken = path.read_bytes()
    with pytest.raises(FileFormatError, match="was cut off"):
        filled().save(path)
    assert path.read_bytes() == broken


@pytest.mark.parametrize("content", [b"", b"{}\n", b"\x89PNG\r\n\x1a\n", os.urandom(4000)])
def test_foreign_files(path, content):
    path.write_bytes(content)
    with pytest.raises(FileFormatError, match="no file of draftwood"):
        Memory.open(path)
    with pytest.raises(FileFormatError, match="no file of draftwood"):
        filled().save(path)
    assert path.read_bytes() == content


def test_other_files_of_ours_and_newer_ones(path):
    files.write_file(path, "ngram counts", {"tokenizer": None}, [b"12345678"])
    with pytest.raises(FileFormatError, match="another of draftwood's files"):
        Memory.open(path)
    files.write_file(path, KIND, {"tokenizer": None, "answers": 0, "namespaces": []}, [], version=2)
    with pytest.raises(FileFormatError, match="of version 2 and this draftwood reads up to 1"):
        Memory.open(path)


LONGS = np.array([2, 0], dtype="<i8")
WORTH = np.zeros(1, dtype="<f8")
IDS = np.array([4, 5], dtype="<i4")


@pytest.mark.parametrize(
    ("about", "payload"),
    [
        ({}, []),
        ({"answers": 1, "namespaces": 3}, [LONGS, WORTH, IDS]),
        ({"answers": -1, "namespaces": [""]}, [LONGS, WORTH, IDS]),
        ({"answers": 2, "namespaces": [""]}, [LONGS, WORTH, IDS]),
        ({"answers": 1, "namespaces": []}, [LONGS, WORTH, IDS]),
        ({"answers": 1, "namespaces": [""]}, [LONGS, WORTH, IDS[:1]]),
        ({"answers": 1, "namespaces": [""]}, [LONGS, WORTH, -IDS]),
        ({"answers": 1, "namespaces": [""]}, [LONGS, WORTH + math.nan, IDS]),
        ({"answers": 1, "namespaces": [""]}, [LONGS - 1, WORTH, IDS]),
        ({"answers": 1, "namespaces": [""]}, [LONGS * 2**62, WORTH, IDS]),
    ],
)
def test_files_whose_parts_do_not_belong_together(path, about, payload):
    files.write_file(path, KIND, about, payload)
    with pytest.raises(FileFormatError, match="holds no answers that belong together"):
        Memory.open(path)


def test_the_file_reads_as_it_was_written(path):
    answers = [
        Saved("", np.arange(5, dtype=np.int32), 1.5),
        Saved("ä:b", np.arange(9, dtype=np.int32)[::2], -3.25),
    ]
    write_memory(path, answers, "abc")
    found, fingerprint = read_memory(path)
    assert fingerprint == "abc"
    assert [(a.namespace, a.ids.tolist(), a.worth) for a in found] == [
        ("", [0, 1, 2, 3, 4], 1.5),
        ("ä:b", [0, 2, 4, 6, 8], -3.25),
    ]


def test_folders_in_place_of_files(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        Memory.open(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        filled().save(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError, match="cannot be read"):
        Memory.open(tmp_path / "file" / "answers.dwm")
    with pytest.raises(FileFormatError, match="cannot be written"):
        filled().save(tmp_path / "file" / "answers.dwm")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may do everything")
def test_folders_that_may_not_be_written_to(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(FileFormatError, match="cannot be written"):
            filled().save(tmp_path / "answers.dwm")
    finally:
        tmp_path.chmod(0o700)


def test_a_save_that_fails_or_is_interrupted_leaves_the_old_file(path, monkeypatch):
    filled().save(path)
    old = path.read_bytes()
    for error in (KeyboardInterrupt(), OSError(28, "No space left on device")):

        def pieces(answers, error=error):
            yield answers[0].ids
            raise error

        monkeypatch.setattr(memory_file, "_texts", pieces)
        memory = filled(path, 3, 30)
        with pytest.raises((KeyboardInterrupt, FileFormatError)):
            memory.save()
        assert path.read_bytes() == old
        assert memory.changed
        monkeypatch.undo()
    assert {file.name for file in path.parent.iterdir() if file.suffix != ".lock"} == {path.name}
    memory.save()
    assert len(Memory.open(path).answers()) == 7


def test_a_save_waits_for_another_but_not_for_ever(path):
    memory = filled(path)
    with alone(path, 1.0):
        with pytest.raises(FileFormatError, match=r"being written by another process for 0\.05 seconds"):
            memory.save(wait=0.05)
        assert memory.changed
    memory.save(wait=0.05)


def test_processes_that_save_at_once_lose_nothing(path):
    code = (
        "import sys; from draftwood.index.memory import Memory; n = int(sys.argv[2]);"
        "m = Memory.open(sys.argv[1]); texts = [range(1000 * (n + i), 1000 * (n + i) + 9) for i in range(4)];"
        "[(m.add(text), m.save()) for text in texts]"
    )
    run = [subprocess.Popen([sys.executable, "-c", code, str(path), str(10 * n)]) for n in range(3)]
    assert [process.wait() for process in run] == [0, 0, 0]
    memory = Memory.open(path)
    memory.check_integrity()
    assert sorted(ids[0] // 1000 for ids in texts(memory)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
