"""Modules that are imported while a prompt is read."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from draftwood.index.compiling import importing
from tests.helpers import limit_threads


def settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "draftwood-kernels":
            thread.join()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that writes a module of this content and returns its name."""
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def write(name: str, content: str) -> str:
        (tmp_path / f"{name}.py").write_text(content)
        names.append(name)
        return name

    yield write
    settle()
    for name in names:
        sys.modules.pop(name, None)


def test_modules_are_imported_meanwhile(module) -> None:
    names = [module("meanwhile_a", "x = 1"), module("meanwhile_b", "x = 2")]
    with importing(names):
        settle()
        assert sys.modules["meanwhile_a"].x + sys.modules["meanwhile_b"].x == 3


def test_a_module_that_is_there_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading.Thread, "start", lambda _: pytest.fail("a thread was started"))
    with importing(["sys", "draftwood"]):
        pass


def test_a_module_that_fails_is_for_whoever_imports_it(module) -> None:
    names = [module("meanwhile_broken", "raise RuntimeError('no')"), module("meanwhile_c", "x = 3")]
    with importing(names):
        settle()
        assert sys.modules["meanwhile_c"].x == 3
        with pytest.raises(RuntimeError, match="no"):
            __import__("meanwhile_broken")


def test_behind_the_answer_no_module_is_begun(module) -> None:
    begun, go_on = threading.Event(), threading.Event()
    sys.modules["meanwhile_signals"] = type(sys)("meanwhile_signals")
    sys.modules["meanwhile_signals"].begun, sys.modules["meanwhile_signals"].go_on = begun, go_on
    slow = "import meanwhile_signals as s; s.begun.set(); s.go_on.wait(60)"
    names = [module("meanwhile_slow", slow), module("meanwhile_late", "x = 4")]
    with importing(names):
        assert begun.wait(60)
    go_on.set()
    settle()
    assert "meanwhile_slow" in sys.modules
    assert "meanwhile_late" not in sys.modules


@pytest.mark.parametrize("drafters", ["ngram", "copy-and-recycle", "none"])
def test_drafters_open_without_importing_a_kernel(drafters: str) -> None:
    """In a new process: when the prompt has been read and the thread has ended, all modules are there."""
    script = f"""
import sys, threading
from draftwood.decoding.sequence import ActiveSequence
from draftwood.testing import ToyTarget
import draftwood
open_sources = ActiveSequence.open_sources
def opened(self):
    [t.join() for t in threading.enumerate() if t.name == "draftwood-kernels"]
    before = set(sys.modules)
    open_sources(self)
    new = [name for name in set(sys.modules) - before if "llvmlite" in name or "kernel" in name]
    assert not new, new
    print("opened", any("draftwood.drafters" in name and "kernel" in name for name in sys.modules))
ActiveSequence.open_sources = opened
draftwood.generate(ToyTarget(), [1, 2, 3, 1, 2, 3], max_new_tokens=3, temperature=0, drafters={drafters!r})
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert f"opened {drafters != 'none'}" in found.stdout


def test_without_a_thread_they_are_imported_where_they_are_needed(module, monkeypatch) -> None:
    limit_threads(monkeypatch, 0)
    with importing([module("no_thread", "x = 1")]):
        assert "no_thread" not in sys.modules
