"""Prompts made of code: functions to edit, and unfinished code to continue.

Most of it is read from the standard library of the running Python. A new Python may word a function a little
differently, so these prompts are the same for one version of Python, not across versions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from draftwood.tasks.datafiles import sections, table
from draftwood.tasks.prompt import Content, asked
from draftwood.tasks.stdlib import source


def code_edit() -> Iterator[tuple[str, Content]]:
    """Yield small changes to functions, so that the answer copies most of its input."""
    for module, qualname, edit in table("code")["code-edit"]:
        request = f"Edit this Python function: {edit}. Return the whole function and nothing else."
        yield f"{module}.{qualname}", asked(f"{request}\n\n```python\n{source(module, qualname)}```")


def completion() -> Iterator[tuple[str, Content]]:
    """Yield unfinished code, to be continued without an instruction as in an editor.

    Half of it is the standard library. The other half was written for this project, in several languages: tests,
    handlers, styles and tables, in which the next lines resemble the last ones.
    """
    for module, qualname, length in table("code")["completion"]:
        yield f"{module}.{qualname}", excerpt(module, qualname, length)
    yield from sections("completion")


def code_suite() -> Iterator[tuple[str, Content]]:
    """Yield five pieces of unfinished code of 150 to 500 tokens that repeat themselves in different ways.

    Methods that resemble each other, branches of one condition, a table of options, arithmetic, and a loop with
    few repetitions.
    """
    for name, module, qualname, length in table("code")["code-suite"]:
        yield name, excerpt(module, qualname, length)


def excerpt(module: str, qualname: str, length: int) -> str:
    """Return at most ``length`` characters of something in the standard library, without the last, cut word."""
    # After half a word, the answer would begin with a token that the tokenizer never makes there.
    return re.sub(r"\w*$", "", source(module, qualname)[:length]).rstrip()
