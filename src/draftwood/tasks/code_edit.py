"""Code editing: a small change to a function, so that the answer copies most of its input.

The functions come from the standard library of the running Python, read when asked for. They are old and
stable, but a new Python may word one a little differently: the prompts are deterministic for one Python
version, not across versions.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftwood.tasks.prompt import Content, asked
from draftwood.tasks.stdlib import source

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
    ("textwrap", "TextWrapper._split", "rename the variable `chunks` to `pieces`"),
    ("colorsys", "hsv_to_rgb", "add type hints to the parameters and to the return value"),
    ("cmd", "Cmd.parseline", "add type hints to the parameters and to the return value"),
    ("statistics", "covariance", "rename the variable `xbar` to `mean_of_x`"),
    ("ftplib", "parse227", "raise `ValueError` instead of `error_proto`"),
    ("csv", "DictReader.__next__", "add a short docstring to the method"),
    ("filecmp", "cmpfiles", "rename the variable `res` to `sorted_names`"),
    ("email.utils", "formataddr", "replace the formatting with the % operator by f-strings"),
    ("quopri", "decode", "rename the variable `partial` to `unfinished`"),
    ("graphlib", "TopologicalSorter._find_cycle", "rename the variable `stack` to `trail`"),
    ("optparse", "Option._set_opt_strings", "raise `ValueError` instead of `OptionError`"),
    ("reprlib", "Repr.repr_dict", "rename the variable `newlevel` to `inner_level`"),
    ("tabnanny", "Whitespace.__init__", "add a docstring that names the parameters"),
)


def items() -> Iterator[tuple[str, Content]]:
    """Yield the name and the messages of each prompt.

    Yields
    ------
    tuple of str and messages
        The dotted name of the function, and the request with its source.
    """
    for module, qualname, edit in CASES:
        code = source(module, qualname)
        request = f"Edit this Python function: {edit}. Return the whole function and nothing else."
        yield f"{module}.{qualname}", asked(f"{request}\n\n```python\n{code}```")
