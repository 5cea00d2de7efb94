"""The sessions of an agent: the planted mistakes are real, and the talk fits the files."""

from __future__ import annotations

import importlib
import inspect
import re
import types
from typing import Any

import pytest

from draftwood.tasks import prompts
from draftwood.tasks.agent import Bug, bugs
from draftwood.tasks.datafiles import table
from draftwood.tasks.stdlib import place

BUGS = bugs()
NAMES = [f"{bug.module}.{bug.qualname}" for bug in BUGS]


def with_mistake(bug: Bug) -> types.ModuleType:
    """Run the module with the wrong line in it, without touching the one that Python has loaded."""
    original = importlib.import_module(bug.module)
    lines, first, last = place(bug.module, bug.qualname)
    (number,) = [n for n in range(first - 1, last) if bug.right in lines[n]]
    lines[number] = lines[number].replace(bug.right, bug.wrong)
    module = types.ModuleType(bug.module)
    module.__file__, module.__package__ = original.__file__, original.__package__
    exec(compile("\n".join(lines), bug.module, "exec"), module.__dict__)
    return module


def outcome(bug: Bug, module: types.ModuleType) -> str:
    """Evaluate the call with this module under its name."""
    top, *rest = bug.module.split(".")
    held: Any = module
    for part in reversed(rest):
        held = types.SimpleNamespace(**{part: held})
    try:
        return repr(eval(bug.call, {top: held}))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("bug", BUGS, ids=NAMES)
def test_a_mistake_shows_and_its_correction_removes_it(bug: Bug) -> None:
    assert outcome(bug, importlib.import_module(bug.module)) == bug.expected
    assert outcome(bug, with_mistake(bug)) == bug.outcome != bug.expected
    assert bool(bug.at) == bool(re.match(r"[A-Z]\w+: ", bug.outcome))
    assert not bug.at or bug.at in inspect.getsource(importlib.import_module(bug.module))


def test_there_is_one_session_per_mistake() -> None:
    assert [prompt.name for prompt in prompts("agent")] == NAMES


def test_conversations_alternate_and_end_with_the_user() -> None:
    for prompt in prompts("agent"):
        roles = "".join(message["role"][0] for message in prompt.messages)
        assert re.fullmatch(r"(su(au)+)?", roles), roles
        assert bool(roles) != (prompt.text is not None)


@pytest.mark.parametrize("number", range(len(BUGS)), ids=NAMES)
def test_a_session_views_fails_edits_and_views_again(number: int) -> None:
    bug, prompt = BUGS[number], prompts("agent")[number]
    whole = prompt.text or "\n".join(message["content"] for message in prompt.messages)
    lines, first, last = place(bug.module, bug.qualname)
    right = next(line for line in lines[first - 1 : last] if bug.right in line)
    wrong = right.replace(bug.right, bug.wrong)
    path = f"lib/{bug.module.replace('.', '/')}.py"
    assert bug.report in whole
    assert wrong in whole
    assert "FAILED" in whole
    assert bug.outcome in whole
    if number % 4 == 3:  # it breaks off where the edit has to follow
        assert right not in whole
        assert whole.count(f"p' {path}") + whole.count(f"{path} | sed") == 1
    else:
        assert f"-{wrong}\n+{right}\n" in whole
        assert whole.count(f"p' {path}") + whole.count(f"{path} | sed") == 2
    if number % 4 == 1:
        assert any(prompt.messages[-1]["content"].endswith(request) for request in table("agent")["requests"])


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.at], ids=lambda bug: bug.module)
def test_a_traceback_names_the_line_that_raises(bug: Bug) -> None:
    prompt = next(p for p in prompts("agent") if p.name == f"{bug.module}.{bug.qualname}")
    whole = prompt.text or "\n".join(message["content"] for message in prompt.messages)
    found = re.search(rf'lib/{re.escape(bug.module.replace(".", "/"))}\.py(?:", line |:)(\d+)(?:,|:) in', whole)
    assert found
    lines, first, last = place(bug.module, bug.qualname)
    assert first <= int(found[1]) <= last
    assert bug.at in lines[int(found[1]) - 1]
