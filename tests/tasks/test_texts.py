"""The texts of the workloads: each prompt asks for something that can be done with what stands in it."""

from __future__ import annotations

import ast
import re

import pytest

from draftwood.errors import DraftwoodError
from draftwood.tasks import prompts
from draftwood.tasks.datafiles import sections, table
from draftwood.tasks.prose import Case, web_qa_cases
from draftwood.tasks.stdlib import source

EDITS = table("code")["code-edit"]


def words(text: str) -> int:
    return len(text.split())


# code-edit


@pytest.mark.parametrize(("module", "qualname", "edit"), EDITS)
def test_a_function_is_short_and_fits_its_edit(module: str, qualname: str, edit: str) -> None:
    code = source(module, qualname)
    assert 15 <= len(code.splitlines()) <= 45
    assert "```" not in code
    (function,) = ast.parse(code).body
    assert isinstance(function, ast.FunctionDef)
    if rename := re.fullmatch(r"rename the \w+ `(\w+)` to `(\w+)`", edit):
        old, new = (re.findall(rf"\b{name}\b", code) for name in rename.groups())
        assert len(old) >= 2
        assert not new
    elif "docstring" in edit:
        assert ast.get_docstring(function) is None
    elif "type hints" in edit:
        assert function.returns is None
    elif "`print`" in edit:
        assert "print(" in code
    elif raised := re.fullmatch(r"raise `ValueError` instead of `(\w+)`", edit):
        assert f"raise {raised[1]}(" in code
    elif "% operator" in edit:
        assert any(isinstance(node, ast.Mod) for node in ast.walk(function))
    else:
        pytest.fail(f"no check for this edit: {edit}")


def test_a_code_edit_prompt_holds_the_edit_and_the_source() -> None:
    for prompt, (module, qualname, edit) in zip(prompts("code-edit"), EDITS, strict=True):
        text = prompt.messages[0]["content"]
        assert prompt.name == f"{module}.{qualname}"
        assert text.startswith(f"Edit this Python function: {edit}. Return the whole function")
        assert text.endswith(f"\n\n```python\n{source(module, qualname)}```")


@pytest.mark.parametrize(
    ("module", "qualname"),
    [("no_such_module_here", "f"), ("textwrap", "no_such_function"), ("math", "sqrt")],
)
def test_a_function_without_source_is_named(module: str, qualname: str) -> None:
    with pytest.raises(DraftwoodError, match=f"no source of {module}.{qualname} in this Python"):
        source(module, qualname)


# grammar


def test_a_grammar_prompt_holds_the_request_and_the_wrong_text() -> None:
    for prompt, (_, wrong) in zip(prompts("grammar"), sections("grammar"), strict=True):
        assert prompt.messages[0]["content"].split("\n\n") == [
            "Correct the grammar and spelling of this text. Reply with the corrected text only.", wrong
        ]  # fmt: skip
        assert 55 <= words(wrong) <= 120


# summary, web-qa and chat


@pytest.mark.parametrize(("name", "text"), sections("summary"))
def test_a_text_to_summarise_has_the_stated_length(name: str, text: str) -> None:
    assert 150 <= words(text) <= 250, name


def test_a_summary_prompt_starts_with_the_request() -> None:
    for prompt in prompts("summary"):
        assert prompt.messages[0]["content"].startswith("Summarise this text in three sentences.\n\n")


@pytest.mark.parametrize("case", web_qa_cases(), ids=lambda case: case.name)
def test_the_answer_stands_in_the_source_once_and_not_in_the_question(case: Case) -> None:
    assert 120 <= words(case.source) <= 250
    assert case.source.count(case.answer) == 1
    assert case.answer not in case.question
    assert case.question.endswith("?")


def test_a_web_qa_prompt_holds_source_and_question() -> None:
    for prompt, case in zip(prompts("web-qa"), web_qa_cases(), strict=True):
        text = prompt.messages[0]["content"]
        assert text.startswith("Answer the question using only the source below")
        assert text.endswith(f"\n\nSource:\n{case.source}\n\nQuestion: {case.question}")


def test_a_chat_or_creative_prompt_is_one_short_request() -> None:
    for _, question in (*sections("chat"), *sections("creative")):
        assert "\n" not in question
        assert 8 <= words(question) <= 40
