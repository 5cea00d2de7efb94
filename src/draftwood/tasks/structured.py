"""Structured text: JSON, logs, diffs and stack traces, to be continued or converted.

Records and logs are made up and stand in ``data/structured.txt``; diffs and traces are made from the standard
library of the running Python. About half of the prompts are unfinished plain text; the others ask for a change or
another format.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import chain, zip_longest
from typing import Any

from draftwood.tasks.datafiles import sections, table
from draftwood.tasks.prompt import Content, asked
from draftwood.tasks.stdlib import patch, place, source

_Named = tuple[str, Content]
_Frame = tuple[str, str]


def _some(what: str) -> Any:
    return table("structured")[what]


def _requested(name: str, text: str, language: str = "") -> _Named:
    """Return a prompt that asks for something to be done with a document."""
    return name, asked(f"{_some('requests')[name]}\n\n```{language}\n{text}\n```")


def _broken(text: str) -> str:
    """Cut off the last quarter, and the word that this cuts."""
    return re.sub(r"\w*$", "", text[: len(text) * 3 // 4]).rstrip()


def _texts(kinds: tuple[str, ...]) -> Iterator[_Named]:
    """Yield the texts whose names begin so, to be continued, or changed where there is a request for them."""
    for name, text in sections("structured"):
        if name.startswith(kinds):
            language = {"json": "json", "csv": "csv"}.get(name.partition("-")[0], "")
            yield _requested(name, text, language) if name in _some("requests") else (name, text)


def _diff(module: str, qualname: str, old: str, new: str, lines: int = 3) -> str:
    before = source(module, qualname)
    after = re.sub(rf"\b{old}\b", new, before)
    return patch(f"{module.replace('.', '/')}.py", before.splitlines(), after.splitlines(), lines)


def _diffs() -> Iterator[_Named]:
    stream, month, breakpoint_, deepcopy, checksum = _some("renamed")
    yield "diff-stream", _broken(_diff(*stream))
    module, qualname, old, new = month
    text = f"{_diff(module, qualname, old, new, 1)}\n```\n\n```python\n{source(module, qualname).rstrip()}"
    yield _requested("diff-apply", text, "diff")
    yield "diff-breakpoint", _broken(_diff(*breakpoint_))
    yield _requested("diff-reverse", _diff(*deepcopy), "diff")
    yield "diff-checksum", _broken(_diff(*checksum))


def _frame(module: str, qualname: str, text: str) -> _Frame:
    lines, first, last = place(module, qualname)
    # If this Python words the line differently, the first line of the function takes its place.
    number = next((n for n in range(first, last + 1) if text in lines[n - 1]), first)
    path = f"/usr/lib/python3/{module.replace('.', '/')}{'/__init__' if module == 'json' else ''}.py"
    return f'"{path}", line {number}, in {qualname.rpartition(".")[2]}', lines[number - 1].strip()


def _shown(frames: Iterable[_Frame]) -> str:
    return "".join(f"  File {where}\n    {text}\n" for where, text in frames)


def _trace(frames: Iterable[_Frame], error: str = "") -> str:
    """Return a stack trace; without an error it ends after the last frame."""
    return f"Traceback (most recent call last):\n{_shown(frames)}{error}".rstrip()


def _traces() -> Iterator[_Named]:
    shop, copying = _some("application"), [_frame(*frame) for frame in _some("copying")]
    yield "trace-recursion", _trace([_some("snapshot"), *copying * 3])
    parsing = [_frame(*frame) for frame in _some("parsing")]
    errors = _some("errors")
    yield _requested("trace-frames", _trace([*shop, *parsing], errors["parsing"]))
    missing = _trace(shop, errors["missing"])
    yield "trace-chained", f"{missing}\n\n{errors['chained']}\n\n{_trace(shop[:2])}"
    option = _frame("configparser", "RawConfigParser.get", "raise NoOptionError(")
    yield _requested("trace-shorten", _trace([*_some("mailer"), option], errors["option"]))
    log = _some("log")
    yield "trace-in-log", "\n".join([*log[:4], missing, log[4], _trace(shop[:1])])
    mean = _frame("statistics", "mean", "raise StatisticsError(")
    yield _requested("trace-to-json", _trace([*_some("reports"), mean], errors["mean"]))


def items() -> Iterator[_Named]:
    """Yield the prompts; the groups take turns, so that the first few hold something of each."""
    groups = (_texts(("json", "csv")), _texts(("log",)), _diffs(), _traces())
    yield from filter(None, chain.from_iterable(zip_longest(*groups)))
