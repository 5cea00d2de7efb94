"""What the commands of an agent's session print: test runs, logs and listings."""

from __future__ import annotations

from draftwood.tasks._seeded import Draw
from draftwood.tasks.agent_bugs import Bug, BuggyFile
from draftwood.tasks.datafiles import table


def survey(bug: Bug, draw: Draw) -> tuple[str, str]:
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


def test_name(bug: Bug) -> str:
    """Return the name of the test that shows the mistake."""
    return f"test_{bug.qualname.rpartition('.')[2].strip('_')}"


def test_lines(bug: Bug, unittest: bool) -> list[str]:
    """Return the lines of that test."""
    if unittest:
        return [
            f"    def {test_name(bug)}(self):",
            f"        self.assertEqual({bug.call}, {bug.expected})",
        ]
    return [f"def {test_name(bug)}():", f"    assert {bug.call} == {bug.expected}"]


def _raised(bug: Bug, file: BuggyFile) -> tuple[int, str]:
    """Return number and text of the line that raises."""
    numbers = [n for n in range(file.first, file.last + 1) if bug.at in file.wrong[n - 1]]
    return numbers[-1], file.wrong[numbers[-1] - 1].strip()


def pytest_failed(bug: Bug, file: BuggyFile, test: str, begins: int) -> str:
    """Return the output of pytest; ``begins`` is the line of the test in its file."""
    name, function = test_name(bug), bug.qualname.rpartition(".")[2]
    head, body = test_lines(bug, False)
    lines = [
        "..F.                                                                     [100%]",
        " FAILURES ".center(80, "="),
        f" {name} ".center(80, "_"),
        "",
        f"    {head}",
        f">   {body}",
    ]
    if bug.at:
        number, text = _raised(bug, file)
        error = bug.outcome
        lines += ["", f"{test}:{begins + 1}: ", "_ " * 40]
        lines += [f"{file.path}:{number}: in {function}", f"    {text}", f"E   {error}"]
    else:
        error = f"assert {bug.outcome} == {bug.expected}"
        lines += [f"E    {error}", f"E     +  where {bug.outcome} = {bug.call}", ""]
        lines += [f"{test}:{begins + 1}: AssertionError"]
    lines += [" short test summary info ".center(80, "="), f"FAILED {test}::{name} - {error}"]
    return "\n".join([*lines, "1 failed, 3 passed in 0.06s"])


def unittest_failed(bug: Bug, file: BuggyFile, test: str, begins: int) -> str:
    """Return the output of unittest; ``begins`` is the line of the test in its file."""
    name, function = test_name(bug), bug.qualname.rpartition(".")[2]
    _, body = test_lines(bug, True)
    sort, error = (
        ("ERROR", bug.outcome) if bug.at else ("FAIL", f"AssertionError: {bug.outcome} != {bug.expected}")
    )
    lines = [
        f"..{sort[0]}.",
        "=" * 70,
        f"{sort}: {name} ({test[:-3].replace('/', '.')}.RegressionTest.{name})",
        "-" * 70,
        "Traceback (most recent call last):",
        f'  File "/home/dev/pylib/{test}", line {begins + 1}, in {name}',
        f"    {body.strip()}",
    ]
    if bug.at:
        number, text = _raised(bug, file)
        lines += [f'  File "/home/dev/pylib/{file.path}", line {number}, in {function}', f"    {text}"]
    lines += [error, "", "-" * 70, "Ran 4 tests in 0.003s", "", f"FAILED ({'errors' if bug.at else 'failures'}=1)"]
    return "\n".join(lines)


def pytest_passed(draw: Draw) -> str:
    """Return the output of pytest when all is well."""
    line = "....                                                                     [100%]"
    return f"{line}\n4 passed in 0.0{3 + draw.below(6)}s"


def unittest_passed(draw: Draw) -> str:
    """Return the output of unittest when all is well."""
    return f"....\n{'-' * 70}\nRan 4 tests in 0.00{2 + draw.below(6)}s\n\nOK"
