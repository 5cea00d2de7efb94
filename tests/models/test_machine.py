"""Limits of containers, as Linux lays them out for control groups, nested or seen from within."""

import os

import pytest
from tests.helpers import limit_threads

from draftwood.local import machine

GB = 1 << 30


@pytest.fixture
def root(tmp_path):
    """``root(cgroup, files)`` writes what a process sees: ``/proc/self/cgroup``, and files of the groups."""

    def write(cgroup, files):
        for name, text in {"proc/self/cgroup": cgroup, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        return tmp_path

    return write


def groups(folder, **files):
    return {f"sys/fs/cgroup/{folder}/{name.replace('__', '.')}": text for name, text in files.items()}


def test_without_groups_there_is_no_limit(tmp_path, root):
    assert (machine.processor_limit(tmp_path), machine.memory_limit(tmp_path), machine.memory_left(tmp_path)) == (
        None,
    ) * 3
    free = root("0::/", groups("", cpu__max="max 100000", memory__max="max", memory__current="5"))
    assert (machine.processor_limit(free), machine.memory_limit(free), machine.memory_left(free)) == (None,) * 3


@pytest.mark.parametrize("path", ["/docker/0123", "/"])
def test_a_container_whether_its_path_is_seen_or_not(root, path):
    """Docker shows a container its own group at the top, and the path that the group has on the host."""
    seen = groups(
        "", cpu__max="150000 100000", memory__max=str(2 * GB), memory__current=str(GB),
        memory__stat=f"anon 5\ninactive_file {GB // 4}\nactive_file {GB // 4}\nslab 7",
    )  # fmt: skip
    here = root(f"0::{path}", seen)
    assert machine.processor_limit(here) == 1.5
    assert machine.memory_limit(here) == 2 * GB
    assert machine.memory_left(here) == 2 * GB - GB // 2


def test_the_narrowest_of_nested_groups_counts(root):
    seen = groups("a", cpu__max="400000 100000", memory__max=str(GB), memory__current=str(GB // 4))
    seen |= groups("a/b", cpu__max="max 100000", memory__max=str(4 * GB), memory__current="0")
    here = root("0::/a/b", seen)
    assert machine.processor_limit(here) == 4
    assert machine.memory_left(here) == GB - GB // 4


def test_a_share_of_the_processor_is_whole_cores_and_at_least_one(monkeypatch):
    every = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    for share, cores in ((0.5, 1), (1.9, 1), (None, every), (1000.0, every)):
        monkeypatch.setattr(machine, "processor_limit", lambda share=share: share)
        assert machine.cores() == cores


def test_memory_is_that_of_the_container(monkeypatch):
    monkeypatch.setattr(machine, "memory_limit", lambda: GB // 2)
    monkeypatch.setattr(machine, "memory_left", lambda: 1000)
    assert machine.total_memory() == GB // 2
    assert machine.free_memory() == 1000
    assert machine.free_memory(swap=True) >= 1000


@pytest.mark.parametrize("given", [0, 1, 9])
def test_there_are_no_more_cores_than_threads_are_to_be_had(monkeypatch, given):
    monkeypatch.setattr(machine, "allowed", lambda: [*range(4)])
    monkeypatch.setattr(machine, "processor_limit", lambda: None)
    started = limit_threads(monkeypatch, given)
    assert machine.cores() == 1 + len(started) == 1 + min(given, 3)
    assert not any(thread.is_alive() for thread in started)
