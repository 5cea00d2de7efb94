"""Writes docs/python.md from the docstrings of the public names: ``python docs/make_python.py > docs/python.md``.

A test fails where the file is stale.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import draftwood
from draftwood import errors

HEAD = """# Python

For programs in Python. Made by `python docs/make_python.py > docs/python.md` from the docstrings; do not edit.

The text is the model's own: exact on draftwood's own engine and in float32; in bfloat16 on transformers two nearly equal tokens may fall the other way: more than half of the texts then come out different, equally good (156 of 348 were equal).

Everything here is a name of the package: `import draftwood`. Importing it loads neither torch nor numpy; they are loaded by the first call that needs them. A plain string is continued as it stands. Give chat messages to an instruct model: then its chat template is applied. Names of drafters are those of the [command line](cli.md); a drafter of your own is shown in [examples/own_drafter.py](../examples/own_drafter.py).
"""  # noqa: E501 - a line per paragraph, as in all of docs/

SECTIONS = ("Parameters", "Attributes", "Returns", "Yields", "Raises", "Notes")


def page() -> str:
    """Return docs/python.md."""
    names = [name for name in draftwood.__all__ if name != "__version__"]
    names.sort(key=lambda name: (inspect.isclass(getattr(draftwood, name)), name.lower()))
    parts = [HEAD, *(f"- [`{name}`](#{anchor(name, names)})" for name in names)]
    for name in names:
        parts += ["", *about(name, getattr(draftwood, name))]
    return "\n".join(parts) + "\n"


def anchor(name: str, names: list[str]) -> str:
    """The address of a heading; of two that differ in case only the second gets a number."""
    before = [other for other in names[: names.index(name)] if other.lower() == name.lower()]
    return name.lower() + (f"-{len(before)}" if before else "")


def about(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of one public name, its methods included."""
    yield from (f"## {name}", "")
    if value is draftwood.DraftwoodError:
        tree = (errors.__doc__ or "").partition("::\n\n")[2]
        yield from (*markdown(value), "", "```", *inspect.cleandoc(tree).splitlines(), "```")
        return
    yield from (*called(name, value), *markdown(value))
    if not inspect.isclass(value):
        return
    for method, function in vars(value).items():
        inner = getattr(function, "__func__", getattr(function, "fget", function))
        if method.startswith("_") or not inspect.isfunction(inner) or not inner.__doc__:
            continue
        yield from ("", f"### {name}.{method}", "")
        if not isinstance(function, property):
            yield from called(f"{name}.{method}", inner)
        yield from markdown(inner)


def called(name: str, value: Callable[..., Any]) -> list[str]:
    """A code block with the signature, without types: the text says what may be given."""
    given = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in inspect.signature(value).parameters.values()
        if parameter.name not in ("self", "cls")
    ]
    line = f"{name}{inspect.Signature(given)}".replace("'", '"')
    if len(line) > 100:
        before, _, rest = line.partition("(")
        line = before + "(\n    " + rest[:-1].replace(", ", ", \n    ").replace(" \n", "\n") + ",\n)"
    return ["```python", *line.splitlines(), "```", ""]


def markdown(value: Any) -> list[str]:
    """A docstring of ours as Markdown: sections become lists."""
    lines = inspect.cleandoc(value.__doc__ or "").replace("``", "`").splitlines()
    marks = [i for i in range(len(lines) - 1) if lines[i] in SECTIONS and set(lines[i + 1]) == {"-"}]
    made = prose(lines[: marks[0] if marks else len(lines)])
    for start, end in pairwise([*marks, len(lines)]):
        title, body = lines[start], lines[start + 2 : end]
        made += ["", f"**{title}**", "", *(prose(body) if title == "Notes" else items(body))]
    return made


def prose(lines: list[str]) -> list[str]:
    """Paragraphs, each on a line of its own."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines).strip())
    return "\n\n".join(" ".join(p.split()) for p in paragraphs).splitlines()


def items(lines: list[str]) -> list[str]:
    """`name`, then what is indented below it, as entries of a list."""
    made: list[str] = []
    for line in filter(str.strip, lines):
        if not line.startswith(" "):
            made.append(f"- `{line}`")
        else:
            made[-1] += (" " if ": " in made[-1] else ": ") + line.strip()
    return made


if __name__ == "__main__":
    sys.stdout.write(page())
