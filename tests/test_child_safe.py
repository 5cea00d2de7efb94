"""Locks in a child of fork, and under Ctrl-C."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count

import pytest

from draftwood import child_safe

PROGRAM = """
import os, threading
from draftwood.child_safe import ChildSafeLock
lock, held, done = ChildSafeLock(), threading.Event(), threading.Event()
def hold():
    with lock:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child:
    done.set()
    thread.join()
    with lock:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        child = os.fork()
if not child:
    with lock:
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_child_of_fork_finds_the_lock_free():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.split() == ["7", "7"]


@pytest.mark.parametrize("place", range(64))
def test_no_interrupt_leaves_it_held(place):
    lock, places = child_safe.ChildSafeLock(), count()

    def trace(frame, event, _):
        frame.f_trace_opcodes = frame.f_code.co_filename == child_safe.__file__
        if event == "opcode" and next(places) == place:
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    with suppress(KeyboardInterrupt), lock:
        pass
    sys.settrace(None)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(lock.acquire, timeout=0.01).result()
