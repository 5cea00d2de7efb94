"""Sessions of an agent at a terminal: it reads a file, edits it, runs the tests and reads the file again.

The files are modules of the standard library with one of :data:`draftwood.tasks.agent_bugs.BUGS` in them, so
line numbers, listings and diffs are real; the talk around them is drawn from a seed. What the model writes next is
the agent's next turn, which repeats paths, lines and commands of the session.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import NamedTuple

from draftwood.tasks import agent_output as output
from draftwood.tasks._seeded import Draw
from draftwood.tasks.agent_bugs import BUGS, Bug
from draftwood.tasks.prompt import Content, Message
from draftwood.tasks.stdlib import place

_SYSTEM = (
    "You are a coding agent in the repository ~/pylib, a fork of parts of the Python standard library. Work in "
    "small steps. Each of your turns is one or two sentences and then one shell command in a ```bash block; you "
    "get its output back. When the work is done, answer without a command."
)
_SURVEY = ("I will look at the state of the repository first.", "First a look around.", "Let me see where we are.")
_LOCATE = ("Now I need the place where it is defined.", "Let me find the code.", "Where is this implemented?")
_READ = ("I read the code around it.", "Let me read that part of the file.", "This is the part to read.")
_TEST = ("Let me see what the test says.", "I run the test for this.", "Does a test show the problem?")
_FIXED = (
    "I will correct that line.",
    "The line is wrong; I replace it.",
    "That is the mistake. I change one line.",
)
_DIFF = ("I check the change.", "Let me see the diff.", "Only one line should differ now.")
_AGAIN = ("I read the place again after the edit.", "Let me look at the file once more.", "How does it read now?")
_RETEST = ("Now the tests again.", "I repeat the tests.", "Let me run the tests once more.")

_VIEW = 2300
"""How much of a file is shown at once, in characters."""

_REQUESTS = (
    "Good. Show me the whole corrected function as it stands now, and below it the test.",
    "Thanks. Write the commit message: a subject line, one paragraph with the cause, and the diff below.",
    "Please add a second test for the same function to the test file, and show the command that writes it.",
)


class _Turn(NamedTuple):
    """One step of the session."""

    thought: str
    command: str
    shown: str


class _File(NamedTuple):
    """The file with the mistake, and without it."""

    path: str
    wrong: list[str]
    right: list[str]
    changed: int  # counted from 1
    first: int
    last: int


def _load(bug: Bug) -> _File:
    right, first, last = place(bug.module, bug.qualname)
    changed = next(n for n in range(first, last + 1) if bug.right in right[n - 1])
    line = right[changed - 1].replace(bug.right, bug.wrong)
    wrong = [*right[: changed - 1], line, *right[changed:]]
    return _File(f"lib/{bug.module.replace('.', '/')}.py", wrong, right, changed, first, last)


def _view(file: _File, lines: list[str], style: int) -> tuple[str, str]:
    """Return a command that shows the function and what stands around it, and its output."""
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
    if style == 1:
        return f"cat -n {file.path} | sed -n '{first},{last}p'", numbered
    return f"nl -ba {file.path} | sed -n '{first},{last}p'", numbered


def _patch(file: _File) -> str:
    name = file.path
    found = difflib.unified_diff(file.wrong, file.right, f"a/{name}", f"b/{name}", lineterm="")
    return "\n".join(found)


def _edit(file: _File, style: int) -> tuple[str, str]:
    """Return a command that corrects the line, and its output."""
    wrong, right = (lines[file.changed - 1] for lines in (file.wrong, file.right))
    if style == 0:
        return f"git apply <<'EOF'\n{_patch(file)}\nEOF", ""
    if style == 1:
        old, new = f"<<<<<<< SEARCH\n{wrong}", f"=======\n{right}\n>>>>>>> REPLACE"
        return f"edit {file.path} <<'EOF'\n{old}\n{new}\nEOF", f"{file.path}: 1 replacement"
    script = (
        f"from pathlib import Path\npath = Path({file.path!r})\nlines = path.read_text().splitlines()\n"
        f"lines[{file.changed - 1}] = {right!r}\npath.write_text('\\n'.join(lines) + '\\n')"
    )
    return f"python - <<'EOF'\n{script}\nEOF", ""


def _turns(bug: Bug, draw: Draw) -> list[_Turn]:
    """Return the whole session, from the first look around to the tests that pass."""
    file = _load(bug)
    owner, _, name = bug.qualname.rpartition(".")
    if name.startswith("__"):
        name = owner
    test = f"tests/test_{bug.module.replace('.', '_')}.py"
    viewer, runner = draw.below(3), draw.below(2)
    run = (f"python -m pytest -q {test}", f"python -m unittest {test[:-3].replace('/', '.')}")[runner]
    begins = 18 + draw.below(40)
    numbers = [n for n, line in enumerate(file.wrong, 1) if name in line][:8]
    found = "\n".join(f"{n}:{file.wrong[n - 1]}" for n in numbers)
    failed = (output.pytest_failed, output.unittest_failed)[runner](bug, file, test, begins)
    passed = (output.pytest_passed, output.unittest_passed)[runner](draw)
    shown = output.test_lines(bug, runner == 1)
    body = f"{begins}:{shown[0]}\n{begins + 1}-{shown[1]}"
    return [
        _Turn(draw.pick(_SURVEY), *output.survey(bug, draw)),
        _Turn(draw.pick(_LOCATE), f"grep -n '{name}' {file.path}", found),
        _Turn(draw.pick(_READ), *_view(file, file.wrong, viewer)),
        _Turn(draw.pick(_TEST), run, failed),
        _Turn("What does this test expect?", f"grep -n -A 1 'def {output.test_name(bug)}' {test}", body),
        _Turn(draw.pick(_FIXED), *_edit(file, draw.below(3))),
        _Turn(draw.pick(_DIFF), "git diff", f"diff --git a/{file.path} b/{file.path}\n{_patch(file)}"),
        _Turn(draw.pick(_AGAIN), *_view(file, file.right, viewer)),
        _Turn(draw.pick(_RETEST), run, passed),
    ]


def _messages(bug: Bug, turns: list[_Turn], request: str) -> tuple[Message, ...]:
    """Return the session as a conversation that ends with an output, or with what the user asks then."""
    made = [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": f"{bug.report} It must be in {bug.module}. Please find the cause and fix it."},
    ]
    for turn in turns:
        shown = turn.shown or "(no output)"
        made.append({"role": "assistant", "content": f"{turn.thought}\n\n```bash\n{turn.command}\n```"})
        made.append({"role": "user", "content": f"```\n{shown}\n```"})
    if request:
        made[-1] = {"role": "user", "content": f"{made[-1]['content']}\n\n{request}"}
    return tuple(made)


def _terminal(bug: Bug, turns: list[_Turn]) -> str:
    """Return the session as it stands in a terminal, ending where the next thought begins."""
    lines = [f"# Report: {bug.report}", f"# Find the cause in {bug.module} and fix it."]
    for turn in turns:
        lines += [f"# {turn.thought}", f"dev@pylib:~/pylib$ {turn.command}"]
        lines += [turn.shown] if turn.shown else []
    return "\n".join([*lines, "#"])


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the session of each prompt.

    Yields
    ------
    tuple of str and content
        The name of the function, and the session: in turns a conversation in which the mistake has just been
        seen, one that has just been finished, one with another request, and a terminal as plain text.
    """
    for number, bug in enumerate(BUGS):
        name = f"{bug.module}.{bug.qualname}"
        turns = _turns(bug, Draw(name))
        content: Content
        match number % 4:
            case 0:
                content = _messages(bug, turns[:-1], "")
            case 1:
                content = _messages(bug, turns, _REQUESTS[number // 4 % 3])
            case 2:
                content = _terminal(bug, turns[:-1])
            case _:
                content = _messages(bug, turns[:5], "")
        yield name, content
