"""Bugs for the sessions of the workload ``agent``: one line of a standard library function, and a test for it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from draftwood.tasks.datafiles import table
from draftwood.tasks.stdlib import place


class Bug(NamedTuple):
    """A mistake that is planted in a function of the standard library."""

    module: str
    qualname: str
    right: str  # text of one line of the function
    wrong: str  # the text that replaces it
    call: str  # an expression that shows the mistake; the module is imported by its name
    expected: str  # what the call should give, as repr() writes it
    outcome: str  # what it gives with the mistake, or "Error: message" if it raises
    report: str  # what a user has written about it
    at: str = ""  # text of the line that raises, the last such line of the function


@cache
def bugs() -> tuple[Bug, ...]:
    """Return all bugs, always in the same order."""
    return tuple(Bug(**entry) for entry in table("agent-bugs"))


class BuggyFile(NamedTuple):
    """The file in which a bug was planted; line numbers count from 1."""

    path: str  # within the repository of the session
    wrong: list[str]  # lines with the bug
    right: list[str]  # lines without it
    changed: int  # number of the line that differs
    first: int  # first and last line of the function
    last: int


def load(bug: Bug) -> BuggyFile:
    """Read the module of the standard library, and plant the bug."""
    right, first, last = place(bug.module, bug.qualname)
    changed = next(n for n in range(first, last + 1) if bug.right in right[n - 1])
    line = right[changed - 1].replace(bug.right, bug.wrong)
    wrong = [*right[: changed - 1], line, *right[changed:]]
    return BuggyFile(f"lib/{bug.module.replace('.', '/')}.py", wrong, right, changed, first, last)
