"""Source code of the running Python's standard library, as material for prompts."""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import textwrap
from typing import Any, NamedTuple

from draftwood.errors import DraftwoodError


def source(module: str, qualname: str) -> str:
    """Return the source of a function or class, not indented and ending in one newline.

    Raises `DraftwoodError` if this Python has no source for it, as in some stripped-down installations.
    """
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        text = inspect.getsource(found)
    except (ImportError, AttributeError, OSError, TypeError) as error:
        raise _missing(module, qualname, error) from error
    return textwrap.dedent(text).rstrip() + "\n"


class Place(NamedTuple):
    """Where a function or class stands in its module; line numbers count from 1."""

    lines: list[str]  # all lines of the module, without line ends
    first: int
    last: int


def place(module: str, qualname: str) -> Place:
    """Return the lines of a module and where in it a function or class stands, even if C code replaces it.

    Raises `DraftwoodError` if this Python has no source for it.
    """
    try:
        text = inspect.getsource(importlib.import_module(module))
        node: Any = ast.parse(text)
        for part in qualname.split("."):
            node = next(child for child in node.body if getattr(child, "name", None) == part)
    except (ImportError, OSError, TypeError, SyntaxError, StopIteration) as error:
        raise _missing(module, qualname, error) from error
    return Place(text.splitlines(), node.lineno, node.end_lineno)


def patch(path: str, before: list[str], after: list[str], context: int = 3) -> str:
    """Return the difference of a file's lines, as git shows it, with so many lines around each change."""
    return "\n".join(difflib.unified_diff(before, after, f"a/{path}", f"b/{path}", lineterm="", n=context))


def _missing(module: str, qualname: str, error: Exception) -> DraftwoodError:
    return DraftwoodError(
        f"no source of {module}.{qualname} in this Python ({error}); "
        "run tasks about code on an installation that has the standard library as .py files"
    )
