"""Locks in a child of fork."""

import subprocess
import sys

import pytest

PROGRAM = """
import os, threading
from draftwood.index.child_safe import ChildSafeLock
lock, held, done = ChildSafeLock(), threading.Event(), threading.Event()
def hold():
    with lock:
        held.set()
        done.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    with lock:
        os._exit(7)
done.set()
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_child_of_fork_finds_the_lock_free():
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True)
    assert ran.stdout.strip() == "7"
