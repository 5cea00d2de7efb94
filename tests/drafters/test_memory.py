"""The drafter of a memory: what its sessions remember and when, credit, options, files by their names."""

from __future__ import annotations

import dataclasses
import logging
import subprocess
import sys

import numpy as np
import pytest
from tests.drafters.answers import check, texts
from tests.helpers import feedback

from draftwood.drafters.load import load
from draftwood.drafters.memory import drafter as memory_drafter
from draftwood.drafters.memory.drafter import MemoryDrafter, save_all
from draftwood.drafters.memory.memory import Memory
from draftwood.errors import UsageError

ANSWER = [11, 12, 13, 14, 15, 16, 17, 18]


@pytest.fixture(autouse=True)
def nothing_is_open(monkeypatch):
    monkeypatch.setattr(memory_drafter, "_open", {})


def answered(drafter, answer=ANSWER, prompt=(1, 2)):
    """A session that has written an answer: its first token comes from the prefill."""
    session = drafter.open(list(prompt), None)
    session.begin_answer(answer[:1])
    for token in answer[1:]:
        session.learn(feedback(token))
    return session


def held(drafter):
    return texts(drafter.memory)


def proposed(drafter, text, nodes=4):
    session = drafter.open(text, None)
    tree = session.draft(nodes, 0, drafter.prior)
    tree.check_integrity()
    session.close()
    return tree.tokens[tree.best_chain()].tolist()


def test_an_answer_is_remembered_when_its_session_closes_and_its_prompt_is_not():
    drafter = MemoryDrafter()
    session = answered(drafter)
    assert held(drafter) == []
    session.close()
    assert held(drafter) == [ANSWER]
    session.close()
    assert held(drafter) == [ANSWER]
    assert proposed(drafter, [5, 11, 12, 13]) == [14, 15, 16, 17]


def test_every_turn_of_a_session_is_an_answer_of_its_own():
    drafter = MemoryDrafter()
    session = answered(drafter)
    session.extend([3, 4, 5])
    assert held(drafter) == [ANSWER]
    session.begin_answer([21])
    session.learn(feedback(22, 23))
    session.close()
    assert held(drafter) == [ANSWER, [21, 22, 23]]


def test_a_cut_ends_the_answer():
    drafter = MemoryDrafter()
    session = answered(drafter)
    session.truncate(100)
    assert held(drafter) == []
    session.truncate(5)
    session.extend([9, 9])
    session.begin_answer([21])
    session.learn(feedback(22))
    session.close()
    assert held(drafter) == [ANSWER, [21, 22]]


def test_what_closes_meanwhile_is_proposed_to_sessions_under_way():
    drafter = MemoryDrafter()
    under_way = drafter.open([11, 12, 13], None)
    assert len(under_way.draft(4, 0, drafter.prior)) == 0
    assert under_way.match_length == 0
    answered(drafter).close()
    assert under_way.draft(1, 0, drafter.prior).tokens.tolist() == [14]
    assert under_way.match_length == 3


def worth(drafter):
    return [saved.worth for saved in drafter.memory.answers()]


def test_accepted_tokens_are_credited_to_their_answer():
    drafter = MemoryDrafter()
    answered(drafter).close()
    answered(drafter, [range_ + 50 for range_ in ANSWER]).close()
    before = worth(drafter)
    session = drafter.open([11, 12, 13], None)
    tree = session.draft(3, 0, drafter.prior)
    chain = tree.best_chain().tolist()
    session.learn(feedback(*tree.tokens[chain[:2]].tolist(), 99, proposal=tree, path=chain[:2]))
    after = worth(drafter)
    assert 2 ** after[0] == pytest.approx(2 ** before[0] + 2)
    assert after[1] == before[1]


def test_what_was_rejected_or_pruned_is_credited_to_nobody():
    drafter = MemoryDrafter()
    answered(drafter).close()
    before = worth(drafter)
    session = drafter.open([11, 12, 13], None)
    tree = session.draft(3, 0, drafter.prior)
    session.learn(feedback(99, proposal=tree))
    lesson = feedback(14, 15, 99, proposal=tree, path=[0, 1])
    session.learn(lesson._replace(node_map=np.full(3, -1, dtype=np.int32)))
    session.draft(0, 0, drafter.prior)
    session.learn(feedback(3))
    assert worth(drafter) == before


# --- files by their names ------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    return tmp_path / "mine.dwm"


def test_drafters_of_one_file_share_one_memory(path, monkeypatch):
    one, other = (load(f"memory:file={path}:namespace={name}")[0] for name in ("ann", "bob"))
    assert one.memory is other.memory
    monkeypatch.chdir(path.parent)
    assert MemoryDrafter(file=path.name).memory is one.memory
    monkeypatch.setenv("HOME", str(path.parent))
    (path.parent / "folder").mkdir()
    (path.parent / "link").symlink_to(path)
    for spelling in ("~/mine.dwm", "folder/../mine.dwm", "link"):
        assert MemoryDrafter(file=spelling).memory is one.memory
    assert dataclasses.replace(one, namespace="carl").memory is one.memory
    with pytest.raises(UsageError, match="is open with tokens=1000000, not 5"):
        MemoryDrafter(file=str(path), tokens=5)
    with pytest.raises(UsageError, match="leave one of them out"):
        MemoryDrafter(file=str(path), memory=Memory(5))


def test_a_file_is_saved_at_the_end_and_read_the_next_time(path):
    drafter = MemoryDrafter(file=str(path))
    answered(drafter).close()
    assert not path.exists()
    save_all()
    memory_drafter._open.clear()
    again = MemoryDrafter(file=str(path))
    assert again.memory is not drafter.memory
    assert proposed(again, [11, 12, 13]) == [14, 15, 16, 17]


def test_the_interpreter_saves_a_memory_when_it_ends(path):
    code = (
        f"from draftwood.drafters.memory.drafter import MemoryDrafter; d = MemoryDrafter(file={str(path)!r});"
        "s = d.open([1], None); s.begin_answer([4]); s.extend([5, 6]); s.close(); d.memory.add([7, 8, 9])"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert [saved.ids.tolist() for saved in Memory.open(path).answers()] == [[7, 8, 9]]


def test_a_session_saves_the_file_now_and_then(path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(memory_drafter.time, "monotonic", lambda: now[0])
    drafter = MemoryDrafter(file=str(path))
    answered(drafter).close()
    assert not path.exists()
    now[0] = memory_drafter.SAVE_EVERY
    drafter.open([1], None).close()
    first = path.stat()
    answered(drafter, [1, 2, 3]).close()
    assert path.stat() == first
    now[0] *= 2
    drafter.open([1], None).close()
    assert len(Memory.open(path).answers()) == 2
    second = path.stat()
    now[0] *= 2
    drafter.open([1], None).close()
    assert path.stat() == second


def test_a_save_that_fails_is_reported_and_costs_no_text(path, monkeypatch, caplog):
    monkeypatch.setattr(memory_drafter, "SAVE_EVERY", 0.0)
    drafter = MemoryDrafter(file=str(path))
    path.mkdir()
    with caplog.at_level(logging.WARNING, "draftwood"):
        answered(drafter).close()
    assert "new answers could not be saved" in caplog.text
    path.rmdir()
    drafter.open([1], None).close()
    assert len(Memory.open(path).answers()) == 1


def test_what_comes_while_the_memory_is_being_changed_is_forgotten_with_its_namespace():
    memory = Memory(100)
    with memory.lock:
        memory.add(ANSWER, "theirs")
    memory.forget("theirs")
    assert memory.answers() == []


def test_an_answer_that_comes_while_the_memory_is_being_changed_is_kept(tmp_path):
    """As when the garbage collector closes a session in a thread that holds the lock."""
    memory = Memory(100)
    with memory.lock:
        assert memory.add(ANSWER)
        assert memory.save(tmp_path / "m.dwm") == tmp_path / "m.dwm"
        session = MemoryDrafter(memory=memory).open([1, 2], None)
        session.learn(feedback(3, 4, 5))
        session.close()
    assert memory.changed
    assert [answer.ids.tolist() for answer in memory.answers()] == [ANSWER, [3, 4, 5]]
    check(memory)
