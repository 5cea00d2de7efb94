"""Large grammars are tried in a process first: llguidance crashes on some, and takes hours over some."""

from __future__ import annotations

import subprocess
import sys

LARGE = 2048
"""Characters from which on a grammar is tried; smaller ones have never crashed, and took seconds at most."""
SECONDS = 10.0
_CODE = """
import sys, threading, llguidance
def read():
    llguidance.LLMatcher.validate_grammar(sys.stdin.read())
threading.stack_size(4 << 20)  # half of what threads have that build it for good
thread = threading.Thread(target=read)
thread.start()
thread.join()
"""


def fault(compiled: str) -> str:
    """Return what is wrong with a grammar in llguidance's form; empty, if it can be read in time without a crash.

    Takes a tenth of a second for the process.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-c", _CODE], input=compiled.encode(), timeout=SECONDS, check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"it takes longer than {SECONDS:.0f} seconds to read"
    except OSError:  # no process to be had: the trial is only a guard
        return ""
    return "one part leads to the next too many times" if ended.returncode < 0 else ""  # a signal
