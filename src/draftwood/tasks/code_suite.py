"""Five pieces of unfinished code, the same every time: a quick look at what a drafter could propose.

All come from the standard library of the running Python, so they are the same for one version of Python. They are
chosen to repeat themselves in different ways: methods that resemble each other, branches of one condition, a table
of options, arithmetic, and a loop with few repetitions.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftwood.tasks.completion import excerpt
from draftwood.tasks.prompt import Content, Prompt

TASK = "code-suite"

# (name, module, name in it, how many characters of it: about 150 to 500 tokens).
_PIECES: tuple[tuple[str, str, str, int], ...] = (
    ("methods", "collections", "UserList", 1250),
    ("branches", "pprint", "PrettyPrinter._format", 980),
    ("options", "argparse", "_StoreAction", 880),
    ("arithmetic", "colorsys", "rgb_to_hls", 520),
    ("loop", "shutil", "_copytree", 1400),
)


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the text of each prompt.

    Yields
    ------
    tuple of str
        A short name, and the code.
    """
    for name, module, qualname, length in _PIECES:
        yield name, excerpt(module, qualname, length)


def code_suite() -> list[Prompt]:
    """Return the five prompts of the suite, always in the same order.

    Returns
    -------
    list of Prompt
        Plain text, each of about 150 to 500 tokens, cut off in the middle of the code.

    Raises
    ------
    DraftwoodError
        If this Python has no source of its standard library.
    """
    return [Prompt(TASK, name, text=str(content)) for name, content in items()]
