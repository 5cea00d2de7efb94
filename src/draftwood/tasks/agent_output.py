"""What the commands of an agent's session print: test runs, logs and listings."""

from __future__ import annotations

from draftwood.tasks._seeded import Draw
from draftwood.tasks.agent_bugs import Bug, BuggyFile
from draftwood.tasks.datafiles import sections, table


def survey(bug: Bug, draw: Draw) -> tuple[str, str]:
    """Return a command for a first look around, and its output."""
    style = draw.below(3)
    if style == 0:
        heads = [draw.pick(table("agent")["commits"]) for _ in range(4)]
        heads.insert(1 + draw.below(3), f"{bug.module}: small clean-up")
        commits = ["".join(draw.pick("0123456789abcdef") for _ in range(7)) + f" {head}" for head in heads]
        return "git log --oneline -5", "\n".join(commits)
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


def test_lines(bug: Bug, runner: str) -> tuple[str, str]:
    """Return the two lines of that test."""
    if runner == "unittest":
        return f"    def {test_name(bug)}(self):", f"        self.assertEqual({bug.call}, {bug.expected})"
    return f"def {test_name(bug)}():", f"    assert {bug.call} == {bug.expected}"


def failed(bug: Bug, file: BuggyFile, test: str, begins: int, runner: str) -> str:
    """Return what pytest or unittest prints about the mistake; ``begins`` is the line of the test in its file."""
    number = 0
    if bug.at:
        number = max(n for n in range(file.first, file.last + 1) if bug.at in file.wrong[n - 1])
    name = test_name(bug)
    return dict(sections("agent-output"))[f"{runner} {'raised' if bug.at else 'differs'}"].format(
        bug=bug, file=file, test=test, module=test[:-3].replace("/", "."), line=begins + 1, name=name,
        title=f" {name} ", function=bug.qualname.rpartition(".")[2], number=number,
        text=file.wrong[number - 1].strip(), space=" ", rule="_ " * 40,
    )  # fmt: skip


def passed(draw: Draw, runner: str) -> str:
    """Return what pytest or unittest prints when all tests pass."""
    if runner == "unittest":
        return f"....\n{'-' * 70}\nRan 4 tests in 0.00{2 + draw.below(6)}s\n\nOK"
    line = "....                                                                     [100%]"
    return f"{line}\n4 passed in 0.0{3 + draw.below(6)}s"
