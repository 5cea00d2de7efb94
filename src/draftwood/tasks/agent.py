"""Sessions of an agent at a terminal: it reads a file, edits it, runs the tests and reads the file again.

The files are modules of the standard library with one of `bugs` in them, so line
numbers, listings and diffs are real; the sentences around them are drawn from a seed. The model writes the agent's
next turn, which repeats paths, lines and commands of the session.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple, TypeVar

from draftwood.tasks.datafiles import sections, table
from draftwood.tasks.prompt import Content, Message
from draftwood.tasks.stdlib import patch, place

T = TypeVar("T")


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


class Draw:
    """Draws from a sequence that depends on ``seed`` alone, on every machine and in every version of Python."""

    def __init__(self, seed: str) -> None:
        self._rng = random.Random(seed)

    def below(self, end: int) -> int:
        """Return a number from 0 to ``end - 1``."""
        # Python promises to keep the sequence of random(), and of no other method.
        return int(self._rng.random() * end)

    def pick(self, choices: Sequence[T]) -> T:
        """Return one of the choices."""
        return choices[self.below(len(choices))]

    def hexadecimal(self, digits: int) -> str:
        """Return a number in hexadecimal digits, as in an identifier."""
        return "".join(self.pick("0123456789abcdef") for _ in range(digits))


_VIEW = 2300
"""How much of a file is shown at once, in characters."""


_Turn = tuple[str, str, str]
"""One step of the session: a thought, a command and what it shows."""


def _view(file: BuggyFile, lines: list[str], style: int) -> tuple[str, str]:
    """Return a command that shows the lines around the bug, and its output."""
    low, high = max(1, file.first - 14), min(len(lines), file.last + 12)
    first = last = file.changed
    size = 0
    while size < _VIEW and (first > low or last < high):
        first, last = max(low, first - 1), min(high, last + 1)
        size = sum(len(line) + 8 for line in lines[first - 1 : last])
    shown = lines[first - 1 : last]
    if style == 0:
        return f"sed -n '{first},{last}p' {file.path}", "\n".join(shown)
    numbered = "\n".join(f"{n:6d}\t{line}" for n, line in enumerate(shown, first))
    return f"{('', 'cat -n', 'nl -ba')[style]} {file.path} | sed -n '{first},{last}p'", numbered


def _edit(file: BuggyFile, style: int) -> tuple[str, str]:
    """Return a command that corrects the line, and its output."""
    wrong, right = (lines[file.changed - 1] for lines in (file.wrong, file.right))
    if style == 0:
        return f"git apply <<'EOF'\n{patch(file.path, file.wrong, file.right)}\nEOF", ""
    if style == 1:
        old, new = f"<<<<<<< SEARCH\n{wrong}", f"=======\n{right}\n>>>>>>> REPLACE"
        return f"edit {file.path} <<'EOF'\n{old}\n{new}\nEOF", f"{file.path}: 1 replacement"
    script = (
        f"from pathlib import Path\npath = Path({file.path!r})\nlines = path.read_text().splitlines()\n"
        f"lines[{file.changed - 1}] = {right!r}\npath.write_text('\\n'.join(lines) + '\\n')"
    )
    return f"python - <<'EOF'\n{script}\nEOF", ""


def _survey(bug: Bug, draw: Draw) -> tuple[str, str]:
    """Return a command for a first look around, and its output."""
    style = draw.below(3)
    if style == 0:
        heads = [draw.pick(table("agent")["commits"]) for _ in range(4)]
        heads.insert(1 + draw.below(3), f"{bug.module}: small clean-up")
        return "git log --oneline -5", "\n".join(f"{draw.hexadecimal(7)} {head}" for head in heads)
    if style == 1:
        branch = f"fix-{bug.module.replace('.', '-')}"
        return "git status --short --branch", f"## {branch}...origin/main\n?? notes-{branch}.txt"
    names = sorted({*table("agent")["files"][: 7 + draw.below(6)], bug.module.partition(".")[0]})
    return "ls lib tests", "\n".join(
        ["lib:", *(f"{name}.py" for name in names), "", "tests:", *(f"test_{name}.py" for name in names)]
    )


def _test_name(bug: Bug) -> str:
    """Return the name of the test that shows the mistake."""
    return f"test_{bug.qualname.rpartition('.')[2].strip('_')}"


def _test_lines(bug: Bug, runner: str) -> tuple[str, str]:
    """Return the two lines of that test."""
    if runner == "unittest":
        return f"    def {_test_name(bug)}(self):", f"        self.assertEqual({bug.call}, {bug.expected})"
    return f"def {_test_name(bug)}():", f"    assert {bug.call} == {bug.expected}"


def _failed(bug: Bug, file: BuggyFile, test: str, begins: int, runner: str) -> str:
    """Return what pytest or unittest prints about the mistake; ``begins`` is the line of the test in its file."""
    number = 0
    if bug.at:
        number = max(n for n in range(file.first, file.last + 1) if bug.at in file.wrong[n - 1])
    name = _test_name(bug)
    return dict(sections("agent-output"))[f"{runner} {'raised' if bug.at else 'differs'}"].format(
        bug=bug, file=file, test=test, module=test[:-3].replace("/", "."), line=begins + 1, name=name,
        title=f" {name} ", function=bug.qualname.rpartition(".")[2], number=number,
        text=file.wrong[number - 1].strip(), space=" ", rule="_ " * 40,
    )  # fmt: skip


def _passed(draw: Draw, runner: str) -> str:
    """Return what pytest or unittest prints when all tests pass."""
    if runner == "unittest":
        return f"....\n{'-' * 70}\nRan 4 tests in 0.00{2 + draw.below(6)}s\n\nOK"
    line = "....                                                                     [100%]"
    return f"{line}\n4 passed in 0.0{3 + draw.below(6)}s"


def _turns(bug: Bug, draw: Draw) -> list[_Turn]:
    """Return the whole session, from the first look around to the tests that pass."""
    file, said = load(bug), table("agent")
    owner, _, name = bug.qualname.rpartition(".")
    if name.startswith("__"):
        name = owner
    test = f"tests/test_{bug.module.replace('.', '_')}.py"
    viewer, runner = draw.below(3), ("pytest", "unittest")[draw.below(2)]
    run = f"python -m pytest -q {test}"
    if runner == "unittest":
        run = f"python -m unittest {test[:-3].replace('/', '.')}"
    begins = 18 + draw.below(40)
    numbers = [n for n, line in enumerate(file.wrong, 1) if name in line][:8]
    found = "\n".join(f"{n}:{file.wrong[n - 1]}" for n in numbers)
    failed, passed = _failed(bug, file, test, begins, runner), _passed(draw, runner)
    shown = _test_lines(bug, runner)
    changes = patch(file.path, file.wrong, file.right)
    body = f"{begins}:{shown[0]}\n{begins + 1}-{shown[1]}"
    return [
        (draw.pick(said["survey"]), *_survey(bug, draw)),
        (draw.pick(said["locate"]), f"grep -n '{name}' {file.path}", found),
        (draw.pick(said["read"]), *_view(file, file.wrong, viewer)),
        (draw.pick(said["test"]), run, failed),
        ("What does this test expect?", f"grep -n -A 1 'def {_test_name(bug)}' {test}", body),
        (draw.pick(said["edit"]), *_edit(file, draw.below(3))),
        (draw.pick(said["diff"]), "git diff", f"diff --git a/{file.path} b/{file.path}\n{changes}"),
        (draw.pick(said["reread"]), *_view(file, file.right, viewer)),
        (draw.pick(said["retest"]), run, passed),
    ]


def _messages(bug: Bug, turns: list[_Turn], request: str) -> tuple[Message, ...]:
    """Return the session as a conversation that ends with an output, or with a request of the user after it."""
    made = [
        {"role": "system", "content": table("agent")["system"]},
        {"role": "user", "content": f"{bug.report} It must be in {bug.module}. Please find the cause and fix it."},
    ]
    for thought, command, shown in turns:
        made.append({"role": "assistant", "content": f"{thought}\n\n```bash\n{command}\n```"})
        made.append({"role": "user", "content": f"```\n{shown or '(no output)'}\n```"})
    if request:
        made[-1] = {"role": "user", "content": f"{made[-1]['content']}\n\n{request}"}
    return tuple(made)


def _terminal(bug: Bug, turns: list[_Turn]) -> str:
    """Return the session as it stands in a terminal, ending where the next thought begins."""
    lines = [f"# Report: {bug.report}", f"# Find the cause in {bug.module} and fix it."]
    for thought, command, shown in turns:
        lines += [f"# {thought}", f"dev@pylib:~/pylib$ {command}"]
        lines += [shown] if shown else []
    return "\n".join([*lines, "#"])


def items() -> Iterator[tuple[str, Content]]:
    """Yield one session per bug, named after the function.

    In turns: a conversation before its last run of the tests, a finished one with another request, a terminal as
    plain text, and a conversation that stops when the mistake was seen.
    """
    for number, bug in enumerate(bugs()):
        name = f"{bug.module}.{bug.qualname}"
        turns = _turns(bug, Draw(name))
        content: Content
        match number % 4:
            case 0:
                content = _messages(bug, turns[:-1], "")
            case 1:
                content = _messages(bug, turns, table("agent")["requests"][number // 4 % 3])
            case 2:
                content = _terminal(bug, turns[:-1])
            case _:
                content = _messages(bug, turns[:5], "")
        yield name, content
