"""Files of a memory: what comes back, what is refused, and several who save at once."""

import logging
import math
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.drafters.answers import check, credit, follow, texts, unique

from draftwood.drafters.memory.file import digest
from draftwood.drafters.memory.memory import Memory
from draftwood.errors import DraftwoodError, FileFormatError, UsageError, VocabularyError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "answers.dwm"


def filled(path=None, count=4, first=0):
    memory = Memory(10_000, fingerprint="abc") if path is None else Memory.open(path, 10_000)
    for number in range(first, first + count):
        memory.add(unique(number), "ann" if number % 2 else "")
    return memory


def test_a_memory_comes_back_from_its_file(path):
    memory = filled()
    credit(memory, unique(2), times=7)
    assert memory.changed
    assert memory.save(path) == path
    assert not memory.changed
    again = Memory.open(path, 10_000)
    check(again)
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


def test_of_a_file_that_is_too_big_the_most_useful_answers_are_taken(path):
    memory = Memory(1000)
    for number in range(20):
        memory.add(unique(number))
    for number in (3, 11):
        credit(memory, unique(number), times=30)
    memory.save(path)
    small = Memory.open(path, 3 * 13)
    assert texts(small) == [unique(3), unique(11), unique(19)]
    check(small)


def test_a_later_save_keeps_what_another_process_wrote_meanwhile(path):
    filled().save(path)
    one, other = filled(path, 2, 10), filled(path, 2, 20)
    one.save()
    other.save()
    expected = {tuple(unique(n)) for n in (0, 1, 2, 3, 10, 11, 20, 21)}
    assert {tuple(a.ids.tolist()) for a in Memory.open(path).answers()} == expected
    assert {tuple(a.ids.tolist()) for a in other.answers()} == expected
    check(other)


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
    check(memory)


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


def test_the_tokenizer_must_be_the_same(path):
    filled().save(path)
    memory = Memory.open(path)
    memory.check_fingerprint("abc")
    with pytest.raises(VocabularyError, match=r"\.dwm holds the ids of another tokenizer \(abc, here xyz\)"):
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


def used(path):
    """What a file holds, once a memory has been opened, drafted from, added to and saved there."""
    memory = Memory.open(path)
    check(memory)
    before = memory.answers()
    follow(memory, unique(2)[:4])
    memory.add(unique(70))
    memory.save()
    return before


@pytest.mark.parametrize("place", ["cut", "flipped"])
def test_a_damaged_file_gives_one_sentence_or_what_it_held(path, place):
    filled(count=2).save(path)
    content = path.read_bytes()
    for at in [*range(1, 120, 7), *range(120, len(content), 611)]:
        rest = b"" if place == "cut" else bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]
        changed = content[:at] + rest
        path.write_bytes(changed)
        with suppress(DraftwoodError):
            assert {tuple(saved.ids.tolist()) for saved in used(path)} == {tuple(unique(n)) for n in (0, 1)}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.floats(0, 0.999), st.binary(min_size=1, max_size=8)), min_size=1, max_size=6))
def test_any_bytes_in_a_file_are_refused_or_can_be_used(path, changes):
    path.unlink(missing_ok=True)
    filled().save(path)
    content = bytearray(path.read_bytes())
    for share, new in changes:
        at = int(share * len(content))
        content[at : at + len(new)] = new
    path.write_bytes(content)
    with suppress(DraftwoodError):  # one sentence; whatever else is raised fails the test
        used(path)


def test_a_broken_file_is_not_written_over(path):
    filled().save(path)
    path.write_bytes(path.read_bytes()[:9000])
    broken = path.read_bytes()
    with pytest.raises(FileFormatError, match="is damaged"):
        filled().save(path)
    assert path.read_bytes() == broken


def somebody_elses():
    with closing(sqlite3.connect(":memory:")) as theirs:
        theirs.execute("CREATE TABLE answers (number INTEGER PRIMARY KEY)")
        return theirs.serialize()


@pytest.mark.parametrize(
    "content",
    [
        b"{}\n",
        b"\x89PNG\r\n\x1a\n",
        np.random.default_rng(0).bytes(4000),
        somebody_elses(),
        b"SQLite format 3\0" * 99,
    ],
    ids=["text", "picture", "noise", "database", "no database"],
)
def test_foreign_files(path, content):
    path.write_bytes(content)
    for use in (Memory.open, filled().save):
        with pytest.raises(FileFormatError, match="no memory of draftwood"):
            use(path)
    assert path.read_bytes() == content


def run(path, *statements):
    with closing(sqlite3.connect(path)) as file:
        for statement in statements:
            file.execute(*statement) if isinstance(statement, tuple) else file.execute(statement)
        file.commit()


def answer(namespace=b"", ids=(4, 5), worth=0.0, known=None):
    """A statement that adds a row; ``ids`` and ``known`` may be anything."""
    kept = np.array(ids, "<i4").tobytes() if isinstance(ids, tuple) else ids
    if known is None and isinstance(ids, tuple):
        name = (
            namespace.decode("utf-8", "surrogatepass")
            if isinstance(namespace, bytes) and namespace != b"\xff"
            else ""
        )
        known = digest(name, np.array(ids, "<i4"))
    values = (namespace, known, kept, worth)
    return "INSERT INTO answers (namespace, digest, ids, worth) VALUES (?, ?, ?, ?)", values


UNSOUND = "holds no answers that belong together"


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM about", UNSOUND),
        ("UPDATE about SET tokens = 0", UNSOUND),
        ("UPDATE about SET tokens = 'many'", UNSOUND),
        ("UPDATE about SET tokenizer = x'00'", UNSOUND),
        ("UPDATE about SET tokenizer = cast(x'ff' AS TEXT)", "is damaged"),
        ("UPDATE about SET id = NULL", UNSOUND),
        ("DROP TABLE answers", UNSOUND),
        ("CREATE TABLE more (x)", UNSOUND),
        ("CREATE TRIGGER t AFTER INSERT ON answers BEGIN DELETE FROM about; END", UNSOUND),
        ("PRAGMA application_id = 7", "no memory of draftwood"),
        ("PRAGMA user_version = 2", "of version 2 and this draftwood reads up to 1"),
        (answer(namespace="text"), UNSOUND),
        (answer(namespace=None), UNSOUND),
        (answer(namespace=b"\xff"), UNSOUND),
        (answer(ids=(4, -5)), UNSOUND),
        (answer(ids=()), UNSOUND),
        (answer(ids=b"12345"), UNSOUND),
        (answer(ids="1234"), UNSOUND),
        (answer(ids=None), UNSOUND),
        (answer(worth=math.inf), UNSOUND),
        (answer(worth=math.nan), UNSOUND),  # becomes NULL
        (answer(worth="much"), UNSOUND),
        (answer(known=b"another answer's"), "is damaged"),
        ("UPDATE answers SET namespace = CAST('bob' AS BLOB)", "is damaged"),  # given to another user
    ],
)
def test_files_whose_parts_do_not_belong_together(path, statement, sentence):
    filled().save(path)
    run(path, statement)
    content = path.read_bytes()
    for use in (Memory.open, filled().save):
        with pytest.raises(FileFormatError, match=sentence):
            use(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "statement",
    [
        answer(), answer(ids=(1 << 31) - 1 and (4, (1 << 31) - 1)), answer(worth=-1e308), answer(worth=1e308),
        answer(namespace=b"x" * 100_000), answer(namespace=b"\xed\xa0\x80"), answer(namespace=b"a\0b"),
        "INSERT INTO answers SELECT number + 1e6, namespace, digest, ids, worth FROM answers",
        "UPDATE sqlite_sequence SET seq = 9223372036854775807", "UPDATE sqlite_sequence SET seq = 'x'",
        "DELETE FROM sqlite_sequence", "INSERT INTO forgotten (name) VALUES ('x')", "PRAGMA journal_mode = WAL",
        "INSERT INTO about SELECT * FROM about", "UPDATE answers SET number = -number",
    ],
)  # fmt: skip
def test_odd_files_can_be_used_or_are_refused(path, statement):
    filled().save(path)
    run(path, statement)
    with suppress(DraftwoodError):
        used(path)


def test_folders_in_place_of_files(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        Memory.open(tmp_path)
    for place in (tmp_path, ".", "/"):
        with pytest.raises(UsageError, match="is a folder"):
            filled().save(place)
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


def test_a_save_that_is_interrupted_leaves_the_old_file(path, monkeypatch):
    filled().save(path)
    old = path.read_bytes()
    memory = filled(path, 3, 30)
    monkeypatch.setattr("draftwood.drafters.memory.file.MemoryFile.ends", property(interrupted))
    with pytest.raises(KeyboardInterrupt):
        memory.save()
    monkeypatch.undo()
    assert path.read_bytes() == old
    assert memory.changed
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    memory.save()
    assert len(Memory.open(path).answers()) == 7


def interrupted(_):
    raise KeyboardInterrupt


@pytest.mark.skipif(os.name != "posix", reason="limits of another kind")
def test_a_full_disk_leaves_the_old_file(path):
    filled().save(path)
    old = path.read_bytes()
    code = (
        "import resource, sys; from draftwood.drafters.memory.memory import Memory; m = Memory.open(sys.argv[1]);"
        "m.add(range(9000)); resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); m.save()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], stderr=subprocess.PIPE, check=False)
    assert b"answers.dwm cannot be written (" in done.stderr.splitlines()[-1]
    assert [saved.ids.tolist() for saved in Memory.open(path).answers()] == [unique(n) for n in (0, 2, 1, 3)]
    assert path.read_bytes() == old


@pytest.mark.skipif(os.name != "posix", reason="signals of another kind")
def test_a_process_that_is_killed_while_it_saves_costs_only_what_was_new(path):
    filled(count=100).save(path)
    code = (
        "import sys; from draftwood.drafters.memory.memory import Memory; m = Memory.open(sys.argv[1]);"
        "print('begun', flush=True);"
        "[(m.add(range(10**7 + 10 * n, 10**7 + 10 * n + 9)), m.save()) for n in range(10**6)]"
    )
    for wait in (0.02, 0.1):
        with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(wait)
            process.send_signal(signal.SIGKILL)
        memory = Memory.open(path)
        check(memory)
        memory.save()
        assert {tuple(unique(n)) for n in range(100)} <= {tuple(a.ids.tolist()) for a in memory.answers()}


def test_a_save_waits_for_another_but_not_for_ever(path):
    memory = filled(path)
    memory.save()
    memory.add(unique(9))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(FileFormatError, match=r"locked by another writer for 0\.05 seconds"):
            memory.save(wait=0.05)
        assert memory.changed
        assert len(Memory.open(path).answers()) == 4  # reading goes on
        other.execute("ROLLBACK")
    memory.save(wait=0.05)


def test_a_file_that_is_deleted_or_put_back_while_it_is_used(path):
    memory = filled(path)
    memory.save()
    backup = path.read_bytes()
    memory.add(unique(8))
    memory.save()
    path.write_bytes(backup)
    memory.save()
    assert len(Memory.open(path).answers()) == 5
    path.unlink()
    filled(path, 2, 20).save()
    memory.save()
    assert len(Memory.open(path).answers()) == 7


def test_processes_that_save_at_once_lose_nothing(path):
    code = (
        "import sys; from draftwood.drafters.memory.memory import Memory; n = int(sys.argv[2]);"
        "m = Memory.open(sys.argv[1]); texts = [range(1000 * (n + i), 1000 * (n + i) + 9) for i in range(4)];"
        "[(m.add(text), m.save()) for text in texts]"
    )
    run = [subprocess.Popen([sys.executable, "-c", code, str(path), str(10 * n)]) for n in range(3)]
    assert [process.wait() for process in run] == [0, 0, 0]
    memory = Memory.open(path)
    check(memory)
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
        check(memory)


def test_the_name_of_who_was_forgotten_does_not_stay(path):
    memory = filled(path)
    memory.add(unique(9), "somebody in particular")
    memory.save()
    assert b"somebody" in path.read_bytes()
    memory.forget("somebody in particular")
    memory.save()
    assert b"somebody" not in path.read_bytes()
    assert np.array(unique(9), "<i4").tobytes() not in path.read_bytes()


def test_a_memory_has_the_size_with_which_it_was_saved(path, caplog):
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
    check(twin)


def test_a_block_needs_a_file_and_its_errors_are_not_hidden(path, caplog):
    with pytest.raises(UsageError, match="was not opened from a file"), Memory(10):
        raise AssertionError("never comes here")
    memory = Memory.open(path)
    path.write_bytes(b"somebody else's")
    with pytest.raises(ZeroDivisionError), memory:
        raise ZeroDivisionError
    assert "the memory was not saved: " in caplog.text
