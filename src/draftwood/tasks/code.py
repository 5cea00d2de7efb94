"""Prompts made of code: a function to edit, and code that breaks off and is to be continued.

Most of it is read from the standard library of the running Python. It is old and stable, but a new Python may word
a function a little differently: these prompts are deterministic for one version of Python, not across versions.
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
    """Yield code that breaks off in the middle, to be continued without an instruction as in an editor.

    Half of it is the standard library, the other half was written for this project, in several languages: tests,
    handlers, styles and tables, in which the next lines resemble the last ones.
    """
    for module, qualname, length in table("code")["completion"]:
        yield f"{module}.{qualname}", excerpt(module, qualname, length)
    yield from sections("completion")


def code_suite() -> Iterator[tuple[str, Content]]:
    """Yield five pieces of unfinished code of 150 to 500 tokens, for a quick look at what a drafter could propose.

    They repeat themselves in different ways: methods that resemble each other, branches of one condition, a table
    of options, arithmetic, and a loop with few repetitions.
    """
    for name, module, qualname, length in table("code")["code-suite"]:
        yield name, excerpt(module, qualname, length)


def excerpt(module: str, qualname: str, length: int) -> str:
    """Return at most ``length`` characters of something in the standard library, cut off behind a whole word."""
    # A word cut in two would begin the answer with a token that no tokenizer makes.
    return re.sub(r"\w*$", "", source(module, qualname)[:length]).rstrip()
