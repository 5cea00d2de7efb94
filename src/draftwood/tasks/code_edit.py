"""Code editing: a small change to a function, so that the answer copies most of its input.

The functions come from the standard library of the running Python, read when asked for. They are old and
stable, but a new Python may word one a little differently: the prompts are deterministic for one Python
version, not across versions.
"""

from __future__ import annotations

import importlib
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

from draftwood.errors import DraftwoodError

# (module, name in it, edit). Only functions written in Python and not replaced by a C version on import:
# inspect finds no source for the others.
CASES: tuple[tuple[str, str, str], ...] = (
    ("fnmatch", "filter", "rename the variable `result` to `matching`"),
    ("textwrap", "indent", "add type hints to the parameters and to the return value"),
    ("shutil", "copy", "rename the parameter `dst` to `target`"),
    ("heapq", "_siftup", "rename the variable `childpos` to `child_index`"),
    ("statistics", "mode", "rename the variable `pairs` to `ranking`"),
    ("string", "Template.substitute", "add a short docstring to the method"),
    ("calendar", "HTMLCalendar.formatyear", "replace the formatting with the % operator by f-strings"),
    ("csv", "Sniffer.sniff", "raise `ValueError` instead of `Error`"),
    ("configparser", "RawConfigParser.read", "rename the variable `read_ok` to `loaded`"),
    ("difflib", "SequenceMatcher.quick_ratio", "rename the variable `avail` to `remaining`"),
    ("filecmp", "dircmp.report", "replace every call of `print` by a call of `logging.info`"),
    ("colorsys", "rgb_to_hls", "add a docstring that names the parameters and the return value"),
)


def source(module: str, qualname: str) -> str:
    """Return the source of a function, without the indentation of its class.

    Parameters
    ----------
    module
        Name of the module to import.
    qualname
        Dotted name within the module.

    Returns
    -------
    str
        The source text, ending in one newline.

    Raises
    ------
    DraftwoodError
        If this Python has no source for it, as in some stripped-down installations.
    """
    try:
        found: Any = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
        text = inspect.getsource(found)
    except (ImportError, AttributeError, OSError, TypeError) as error:
        raise DraftwoodError(
            f"no source of {module}.{qualname} in this Python ({error}); "
            "run code-edit on an installation that has the standard library as .py files"
        ) from error
    return textwrap.dedent(text).rstrip() + "\n"


def items() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each prompt.

    Yields
    ------
    tuple of str
        The dotted name of the function, and the request with its source.
    """
    for module, qualname, edit in CASES:
        code = source(module, qualname)
        request = f"Edit this Python function: {edit}. Return the whole function and nothing else."
        yield f"{module}.{qualname}", f"{request}\n\n```python\n{code}```"
