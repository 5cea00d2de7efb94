"""Bugs for the sessions of the workload ``agent``: one line of a standard library function, and a test for it."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from draftwood.tasks.datafiles import table
from draftwood.tasks.stdlib import place


class Bug(NamedTuple):
    """A planted mistake.

    Attributes
    ----------
    module, qualname
        The function.
    right, wrong
        Text of one line of it, and what stands there instead.
    call
        An expression in which the module is imported by its name.
    expected
        What the call should give, as :func:`repr` writes it.
    outcome
        What it gives with the mistake: the same, or ``Error: message`` if it raises.
    report
        What a user has written about it.
    at
        Text of the line that raises, the last such line of the function; empty if nothing raises.
    """

    module: str
    qualname: str
    right: str
    wrong: str
    call: str
    expected: str
    outcome: str
    report: str
    at: str = ""


@cache
def bugs() -> tuple[Bug, ...]:
    """Return all bugs, always in the same order."""
    return tuple(Bug(**entry) for entry in table("agent-bugs"))


class BuggyFile(NamedTuple):
    """The file in which a bug was planted.

    Attributes
    ----------
    path
        Its path within the repository of the session.
    wrong, right
        Lines of the file with and without the bug.
    changed
        Number of the line that differs; line numbers count from 1.
    first, last
        First and last line of the function.
    """

    path: str
    wrong: list[str]
    right: list[str]
    changed: int
    first: int
    last: int


def load(bug: Bug) -> BuggyFile:
    """Read the file of the standard library that the bug is for, and plant it."""
    right, first, last = place(bug.module, bug.qualname)
    changed = next(n for n in range(first, last + 1) if bug.right in right[n - 1])
    line = right[changed - 1].replace(bug.right, bug.wrong)
    wrong = [*right[: changed - 1], line, *right[changed:]]
    return BuggyFile(f"lib/{bug.module.replace('.', '/')}.py", wrong, right, changed, first, last)
