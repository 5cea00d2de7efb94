"""A processor that others keep busy: torch's threads wait asleep, and what cannot matter is left as it is."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from draftwood.local import crowding
from draftwood.local.crowding import told
from draftwood.models import importing
from draftwood.models.importing import uncollected


@pytest.fixture
def _a_quiet_machine():
    """Here the machine is what a test makes it."""


@pytest.fixture
def fresh(monkeypatch):
    """A process that has not imported torch, on a busy machine."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(importing, "is_crowded", lambda _: True)
    monkeypatch.setattr(importing, "_waiting", {"passive": False})


@pytest.mark.parametrize(
    ("idle", "nice", "threads", "crowded"),
    [
        (100, 0, 4, False),
        (80, 0, 4, True),
        (80, 0, 2, False),
        (0, 100, 4, True),  # who runs at a lower priority takes cores for moments, too
        (0, 0, 1, True),
    ],
)
def test_idle_cores_are_counted(monkeypatch, idle, nice, threads, crowded):
    spent = {"user": 100 - idle - nice, "nice": nice, "idle": idle}
    times = iter([dict.fromkeys(spent, 1), {kind: 1 + 0.04 * part for kind, part in spent.items()}])  # of 4 cores
    monkeypatch.setattr(crowding, "_processor_times", lambda: next(times))
    monkeypatch.setattr(crowding, "_ALLOWED", range(4))
    assert crowding.is_crowded(threads) is crowded


def test_where_the_system_keeps_its_times_to_itself_nothing_is_crowded(monkeypatch):
    def refused(*_, **__):
        raise PermissionError

    monkeypatch.setattr(Path, "read_text", refused)
    monkeypatch.setattr("psutil.cpu_times", refused)
    others = crowding.Others()
    assert (others.cores, others.busy(1), told(others.cores)) == (None, "", "")
    assert (crowding.crowds(0.6, 64, 8), crowding.crowds(0.6, 2, 2)) == (False, True)


def test_what_a_child_takes_is_ours_while_it_runs_and_after():
    """llama.cpp's server is one: it is no other program."""
    burn = "import sys, time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\nsys.stdin.read()"
    before = crowding._running()
    with subprocess.Popen([sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert crowding._running() >= before + 0.29
        child.stdin.close()
    assert crowding._running() < before + 0.29


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="no /proc/stat")
@pytest.mark.parametrize(
    ("ours", "seconds"),
    [([1], (8, 2)), ([1, 3], (11, 9)), ([3], (3, 7)), ([1, 9], (12, 18)), ([0, 1, 3], (12, 18))],
)
def test_only_the_cores_that_this_process_may_use_are_counted(monkeypatch, ours, seconds):
    tick = os.sysconf("SC_CLK_TCK")
    lines = [
        f"{core} {user * tick} 0 0 {(10 - user) * tick} 0 0 0 0 0 0"
        for core, user in (("cpu0", 1), ("cpu1", 8), ("cpu3", 3))
    ]
    text = "\n".join([f"cpu  {12 * tick} 0 0 {18 * tick} 0 0 0 0 0 0", *lines, "intr 1 2", ""])
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: text)
    monkeypatch.setattr(crowding, "_ALLOWED", ours)
    spent = crowding._processor_times()
    assert (spent["user"], spent["idle"]) == seconds


def test_threads_wait_asleep_and_children_choose_for_themselves(fresh, caplog):
    with importing.importing_torch(2):
        assert os.environ["OMP_WAIT_POLICY"] == "passive"
    assert "OMP_WAIT_POLICY" not in os.environ
    assert importing._waiting["passive"]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("case", ["one thread", "imported", "chosen", "idle"])
def test_else_nothing_is_done(fresh, monkeypatch, caplog, case):
    if case == "imported":
        monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    if case == "chosen":
        monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    if case == "idle":
        monkeypatch.setattr(importing, "is_crowded", lambda _: False)
    before = dict(os.environ)
    with importing.importing_torch(1 if case == "one thread" else 2):
        assert dict(os.environ) == before
    assert not importing._waiting["passive"]
    assert not caplog.records


def test_garbage_is_looked_for_again_afterwards_whatever_happens():
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"), uncollected():
        raise ValueError("x")
    assert gc.isenabled()


def test_who_switched_it_off_finds_it_off():
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
