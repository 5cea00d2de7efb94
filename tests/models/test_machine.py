"""What this machine has: limits of containers, nested or seen from within; and what other systems say."""

import ctypes
import os
import subprocess
import sys
from importlib.util import module_from_spec
from types import SimpleNamespace

import pytest
from tests.helpers import limit_threads

from draftwood.cli import prompt
from draftwood.local import machine, system_facts

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


MAC = {
    "hw.memsize": str(16 * GB), "machdep.cpu.brand_string": "Apple M4", "hw.perflevel0.physicalcpu": "4",
    "vm_stat": "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free:   1000.\n"
    "Pages active:  9000.\nPages inactive:  500.\nPages speculative:  20.\nPages purgeable:  5.\n",
}  # fmt: skip


@pytest.fixture
def mac(monkeypatch):
    """Pretend to be macOS, whose tools say what is in a dict."""

    def pretend(said):
        def run(command, **given):
            name = command[2] if len(command) > 1 else "vm_stat"
            if name not in said:
                raise subprocess.CalledProcessError(1, command)
            return SimpleNamespace(stdout=f"{said[name]}\n")

        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(subprocess, "run", run)

    return pretend


def test_an_apple_processor_works_with_its_fast_cores_and_says_its_memory(mac, monkeypatch):
    mac(MAC)
    monkeypatch.setattr(machine, "processor_limit", lambda: None)
    assert machine.cores() == 4
    assert system_facts.processor_name() == "Apple M4"
    assert system_facts.system_memory() == (16 * GB, 16384 * 1525)


def test_a_system_without_proc_and_psutil_is_asked_itself(mac, monkeypatch):
    def nothing(*_, **__):
        raise OSError

    mac(MAC)
    monkeypatch.setattr(machine.Path, "read_text", nothing)
    monkeypatch.setattr(os, "sysconf", nothing)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert machine.processor.__wrapped__() == "Apple M4"
    assert (machine.total_memory(), machine.free_memory(), machine.free_memory(swap=True)) == (
        16 * GB, 16384 * 1525, 16384 * 1525,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("system", "end"), [("win32", "Ctrl-Z and Enter"), ("darwin", "Ctrl-D"), ("linux", "Ctrl-D")]
)
def test_keys_that_end_a_text_are_those_of_the_system(monkeypatch, system, end):
    monkeypatch.setattr(sys, "platform", system)
    module = module_from_spec(prompt.__spec__)
    prompt.__spec__.loader.exec_module(module)
    assert end == module.END


def test_an_old_mac_says_less(mac):
    mac({"machdep.cpu.brand_string": "Intel"})
    assert (system_facts.performance_cores(), system_facts.system_memory()) == (None, None)


def test_windows_says_its_memory(monkeypatch):
    def fill(status):
        status._obj.total, status._obj.free = 8 * GB, 3 * GB
        return 1

    library = SimpleNamespace(kernel32=SimpleNamespace(GlobalMemoryStatusEx=fill))
    monkeypatch.setattr(ctypes, "windll", library, raising=False)
    monkeypatch.setattr(sys, "platform", "win32")
    assert system_facts.system_memory() == (8 * GB, 3 * GB)
    monkeypatch.setenv("PROCESSOR_IDENTIFIER", "ARMv8 (64-bit) Family 8")
    assert system_facts.processor_name() == "ARMv8 (64-bit) Family 8"


def test_linux_names_arm_processors_by_numbers(monkeypatch):
    said = "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
    monkeypatch.setattr(machine.Path, "read_text", lambda *_, **__: said)
    assert machine.processor.__wrapped__() == "0x41 0xd0c"
