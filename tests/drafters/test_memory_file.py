"""Files of a memory: what comes back, what is refused, and several who save at once."""

from __future__ import annotations

import logging
import math
import os
import subprocess
import sys

import numpy as np
import pytest
from tests.drafters.answers import credit, follow, texts, unique

from draftwood.drafters.memory import file as memory_file
from draftwood.drafters.memory.file import KIND, MemoryFile, Saved, read_memory, write_memory
from draftwood.drafters.memory.memory import Memory
from draftwood.errors import FileFormatError, UsageError, VocabularyError
from draftwood.files import format as files
from draftwood.files.paths import alone


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


def test_what_was_driven_out_here_stays_out_though_there_is_room_for_it_again(path):
    memory = Memory(4 * 13)
    for number in range(4):
        memory.add(unique(number))
    memory.save(path)
    other = Memory.open(path)
    credit(other, unique(0), times=50)  # so that by its worth it would come back
    other.add(unique(50, length=3))
    other.save()
    memory.add(unique(4))  # drives out number 0
    memory.save()
    assert texts(memory) == [unique(2), unique(3), unique(4), unique(50, length=3)]
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
        ({"answers": 1, "namespaces": [""], "tokens": 0}, [LONGS, WORTH, IDS]),
        ({"answers": 1, "namespaces": [""], "forgotten": {"": "x"}}, [LONGS, WORTH, IDS]),
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
    write_memory(path, MemoryFile(answers, "abc", 500, {"gone": 3.5}))
    found = read_memory(path)
    assert (found.fingerprint, found.tokens, found.forgotten) == ("abc", 500, {"gone": 3.5})
    assert [(a.namespace, a.ids.tolist(), a.worth) for a in found.answers] == [
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
        with pytest.raises(FileFormatError, match=r"locked by another writer for 0\.05 seconds"):
            memory.save(wait=0.05)
        assert memory.changed
    memory.save(wait=0.05)


def test_processes_that_save_at_once_lose_nothing(path):
    code = (
        "import sys; from draftwood.drafters.memory.memory import Memory; n = int(sys.argv[2]);"
        "m = Memory.open(sys.argv[1]); texts = [range(1000 * (n + i), 1000 * (n + i) + 9) for i in range(4)];"
        "[(m.add(text), m.save()) for text in texts]"
    )
    run = [subprocess.Popen([sys.executable, "-c", code, str(path), str(10 * n)]) for n in range(3)]
    assert [process.wait() for process in run] == [0, 0, 0]
    memory = Memory.open(path)
    memory.check_integrity()
    assert sorted(ids[0] // 1000 for ids in texts(memory)) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


# --- forgetting, sizes and permissions -----------------------------------------------------------------------


def test_a_namespace_that_was_forgotten_stays_so_though_other_processes_still_hold_it(path):
    filled().save(path)
    one, other, third = filled(path, 0), filled(path, 1, 11), filled(path, 0)
    one.forget("ann")
    one.save()
    other.save()
    assert other.namespaces == {"": 2}
    assert Memory.open(path).namespaces == {"": 2}
    one.add(unique(60))
    one.save()
    third.add(unique(61))
    third.save()
    one.save()
    assert one.namespaces == third.namespaces == Memory.open(path).namespaces == {"": 4}
    for memory in (one, other, third):
        memory.check_integrity()


def test_who_was_forgotten_may_come_again(path):
    filled().save(path)
    one, other = filled(path, 0), filled(path, 0)
    one.forget("ann")
    one.add(unique(1), "ann")
    one.save()
    other.save()
    assert other.namespaces == {"": 2, "ann": 1}
    other.forget("ann")
    other.save()
    one.save()
    assert one.namespaces == {"": 2}


def test_the_name_of_who_was_forgotten_does_not_stay(path):
    memory = filled(path)
    memory.add(unique(9), "somebody in particular")
    memory.forget("somebody in particular")
    memory.save()
    assert b"somebody" not in path.read_bytes()


def test_it_has_the_size_with_which_it_was_saved(path, caplog):
    filled().save(path)
    assert Memory.open(path).size == 10_000
    assert Memory.open(path, 20_000).size == 20_000
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING, "draftwood"):
        assert Memory.open(path, 2 * 13).size == 2 * 13
    assert "holds 4 answers and 3 of them do not fit into 26 tokens: the next save drops them" in caplog.text


@pytest.mark.skipif(os.name != "posix", reason="permissions of another kind")
def test_nobody_else_may_read_a_new_file_and_an_old_one_keeps_its_permissions(path):
    memory = filled(path)
    memory.save()
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    memory.add(unique(9))
    memory.save()
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_copy_goes_its_own_way(path):
    memory = filled(path)
    twin = memory.copy()
    assert texts(twin) == texts(memory)
    assert (twin.path, twin.changed, twin.fingerprint) == (None, False, memory.fingerprint)
    twin.add(unique(9))
    assert unique(9) not in texts(memory)
    twin.check_integrity()


@pytest.mark.parametrize("place", [".", "..", "/"])
def test_a_folder_is_no_file(place):
    with pytest.raises(UsageError, match="is a folder"):
        filled().save(place)


def test_a_block_needs_a_file_and_its_errors_are_not_hidden(path, caplog):
    with pytest.raises(UsageError, match="was not opened from a file"), Memory(10):
        raise AssertionError("never comes here")
    memory = Memory.open(path)
    path.write_bytes(b"somebody else's")
    with pytest.raises(ZeroDivisionError), memory:
        raise ZeroDivisionError
    assert "the memory was not saved: " in caplog.text


def test_a_file_that_is_saved_over_and_over_can_be_opened_at_any_moment(path):
    memory = filled(path)
    memory.save()
    code = (
        "import sys; from draftwood.drafters.memory.memory import Memory; m = Memory.open(sys.argv[1]);"
        "[(m.add(range(1000 * n, 1000 * n + 9)), m.save()) for n in range(1, 60)]"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)]) as process:
        while process.poll() is None:
            assert len(Memory.open(path).answers()) >= 4
    assert process.returncode == 0
