"""Code and structured text to be continued: it breaks off in the middle, and documents can be read."""

from __future__ import annotations

import csv
import difflib
import json
import re

import pytest

from draftwood.errors import DraftwoodError
from draftwood.tasks import prompts
from draftwood.tasks.agent import Draw
from draftwood.tasks.code import excerpt
from draftwood.tasks.datafiles import table
from draftwood.tasks.stdlib import place, source

RENAMED = table("structured")["renamed"]
SHOWN = {prompt.name: prompt.text or prompt.messages[0]["content"] for prompt in prompts("structured")}


def fenced(name: str) -> list[str]:
    return re.findall(r"```\w*\n(.*?)\n```", SHOWN[name], flags=re.DOTALL)


@pytest.mark.parametrize(("module", "qualname", "length"), table("code")["completion"])
def test_an_excerpt_is_the_beginning_and_breaks_off(module: str, qualname: str, length: int) -> None:
    found, whole = excerpt(module, qualname, length), source(module, qualname)
    assert whole.startswith(found)
    assert len(found) <= length
    assert whole[len(found) :].strip()


def test_completions_are_plain_text() -> None:
    assert all(prompt.text and not prompt.messages for prompt in prompts("completion"))


def test_the_code_suite_has_five_pieces_of_unfinished_code() -> None:
    suite = prompts("code-suite")
    assert len(suite) == 5
    assert len({prompt.name for prompt in suite}) == 5
    assert {prompt.task for prompt in suite} == {"code-suite"}
    assert all(prompt.text and not prompt.messages for prompt in suite)
    assert suite == prompts("code-suite")
    assert prompts("code-suite", 2) == suite[:2]
    others = {prompt.text for prompt in prompts("completion")}
    assert not others & {prompt.text for prompt in suite}


def test_a_place_is_where_the_function_stands() -> None:
    lines, first, last = place("textwrap", "TextWrapper.fill")
    assert lines[first - 1] == "    def fill(self, text):"
    assert "return" in lines[last - 1]
    lines, first, _ = place("bisect", "bisect_left")  # a C version replaces it
    assert lines[first - 1].startswith("def bisect_left(")


@pytest.mark.parametrize(
    ("module", "qualname"), [("no_such_module_here", "f"), ("textwrap", "f"), ("math", "sqrt")]
)
def test_a_place_that_is_missing_is_named(module: str, qualname: str) -> None:
    with pytest.raises(DraftwoodError, match=f"no source of {module}.{qualname} in this Python"):
        place(module, qualname)


def test_about_half_of_the_structured_prompts_are_continued() -> None:
    continued = sum(prompt.text is not None for prompt in prompts("structured"))
    assert 10 <= continued <= 15


@pytest.mark.parametrize("name", ["json-rename", "json-filter", "json-to-csv"])
def test_documents_to_be_changed_can_be_read(name: str) -> None:
    (document,) = fenced(name)
    rows = json.loads(document)
    assert len(rows) >= 5
    assert len({tuple(row) for row in rows}) == 1
    if name == "json-filter":
        assert {row["status"] for row in rows} == {"ok", "stale"}


@pytest.mark.parametrize("name", ["json-orders", "json-sensors", "json-people"])
def test_documents_to_be_continued_break_off(name: str) -> None:
    assert SHOWN[name].startswith("[\n  {")
    with pytest.raises(json.JSONDecodeError):
        json.loads(SHOWN[name])


def test_a_table_has_as_many_cells_in_every_row() -> None:
    (document,) = fenced("csv-to-markdown")
    assert {len(row) for row in csv.reader(document.splitlines())} == {6}


@pytest.mark.parametrize(("module", "qualname", "old", "new"), RENAMED)
def test_a_renamed_word_is_there_and_its_new_name_is_not(module: str, qualname: str, old: str, new: str) -> None:
    code = source(module, qualname)
    assert len(re.findall(rf"\b{old}\b", code)) >= 2
    assert not re.search(rf"\b{new}\b", code)


def test_a_diff_to_be_applied_fits_its_function() -> None:
    diff, code = fenced("diff-apply")
    module, qualname, old, new = RENAMED[1]
    after = re.sub(rf"\b{old}\b", new, code)
    made = difflib.unified_diff(code.splitlines(), after.splitlines(), "a/x", "b/x", lineterm="", n=1)
    assert diff.splitlines()[2:] == list(made)[2:]
    assert code == source(module, qualname).rstrip()


def test_logs_and_traces_have_what_is_asked_for() -> None:
    (log,) = fenced("log-errors")
    levels = re.findall(r" (INFO|WARNING|ERROR) ", log)
    assert len(levels) == len(log.splitlines())
    assert set(levels) == {"INFO", "WARNING", "ERROR"}
    assert log.splitlines() == sorted(log.splitlines())
    for name in ("trace-frames", "trace-shorten", "trace-to-json"):
        (trace,) = fenced(name)
        assert len(re.findall(r'^  File ".*", line \d+, in \S+\n    \S', trace, flags=re.MULTILINE)) >= 4


def test_draws_are_pinned() -> None:
    # A changed sequence of random numbers would make measurements incomparable without anyone noticing.
    draw = Draw("x")
    assert [draw.below(10) for _ in range(8)] == [6, 5, 4, 7, 3, 4, 4, 1]
    assert len(Draw("x").hexadecimal(7)) == 7
