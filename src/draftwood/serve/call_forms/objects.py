"""Calls that are JSON objects with a name and arguments, each between tags or in a list, or without any tags.

``<tool_call>{"name": ..., "arguments": {...}}</tool_call>`` began with Hermes models; most open models know it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from draftwood.api.call_frame import NAMED
from draftwood.api.calls import OPENING
from draftwood.grammar.calls import Json, Part
from draftwood.serve.call_forms.base import FENCE, CallForm, Event, FormReader, arguments, end, tags_of

_ARGUMENTS = ("arguments", "parameters")
_NAMES = ("name", "tool_name")
_KEYS = frozenset({*_NAMES, "id", "tool_call_id", "index", "type", *_ARGUMENTS})
"""Of a call, before its arguments. An object with others is text, and told as it comes."""
_PYTHON = "<|python_tag|>"  # Llama 3 may write it before a call that its template writes without any tag
_CLOSING = re.compile(r"\s*\]?\s*(?:<[^<>]*>|\[[^\[\]]*\])?")  # the end of a list, and one tag
_OPENING = re.compile(rf"\s*\[?\s*{NAMED}$")


class ObjectForm(CallForm):
    """Calls as objects; the arguments are those of `CallFrame`."""

    def __init__(self, before: str, between: str, after: str) -> None:
        opening = _OPENING.sub("", before).strip()
        begin, end = before.rfind("{"), after.find("}") + 1
        self._written = before[begin:], between, after[:end]
        closing = _CLOSING.match(after, end)
        self.around = before[:begin].lstrip(), "" if closing is None else closing[0]
        self.separator = ", " if self.around[0].rstrip().endswith("[") else ""
        self.openings, self.may_be_bare = (opening or _PYTHON,), opening in ("", OPENING)
        self._closing = tags_of(after.rpartition("}")[2].strip().removeprefix("]"))
        self.tags = (*self.openings, *self._closing)

    def read(self, reader: FormReader) -> Iterator[Event | None]:
        if (opening := (yield from reader.one_of(self.openings))) is not None:
            reader.at += len(opening)
        elif (fence := (yield from reader.one_of((FENCE, f"{FENCE}json")))) is not None:
            reader.at += len(fence)
        in_list, found = (yield from reader.passes("[")), False
        while True:
            place = reader.at
            if found:
                yield from reader.passes("," if in_list else ";")
            yield from reader.skip_blanks()
            if not reader.next_is("{") or (found and reader.at == place):
                reader.at = place
                break
            reader.at += 1
            name, written = yield from _head(reader)
            if name is None:
                reader.at = place
                break
            found = True
            yield Event("call", name)
            yield from _rest(reader, written)
            yield from end(reader)
        if found and in_list:
            yield from reader.passes("]")
        for closing in (*self._closing, FENCE) if found else ():
            yield from reader.passes(closing)

    def written(self, name: str, schema: Mapping[str, Any] | None) -> Sequence[Part]:
        begin, between, end_ = self._written
        return [f"{begin}{name}{between}", Json({**(schema or {}), "type": "object"}), end_]


def _rest(reader: FormReader, written: str | None) -> Iterator[Event | None]:
    """Yield the arguments of a call, which may have been read, and read what its object has after them."""
    if written is not None:
        yield Event("arguments", written)
        return
    yield from arguments(reader)
    yield from reader.skip_blanks()
    while reader.next_is(","):
        reader.at += 1
        if (yield from _key(reader)) is None:
            return
        yield from reader.skip_blanks()
        yield from reader.whole()
        yield from reader.skip_blanks()
    reader.at += reader.next_is("}")


def _head(reader: FormReader) -> Generator[None, None, tuple[str | None, str | None]]:
    """Read a call up to its arguments if its name stands before them, else to its end.

    Returns the name, None if this is no call, and the arguments if those were read, too.
    """
    name, written = None, "{}"
    while (key := (yield from _key(reader))) is not None:
        if key not in _KEYS:
            break
        yield from reader.skip_blanks()
        if key in _ARGUMENTS and name is not None and reader.next_is("{"):
            return name, None
        value = yield from reader.whole()
        if key in _NAMES:
            name = _loaded(value)
            if not isinstance(name, str) or name not in reader.functions:
                break
        elif key in _ARGUMENTS and not (written := _object(value)):
            break
        yield from reader.skip_blanks()
        if reader.next_is("}"):
            reader.at += 1
            return name, written
        if not reader.next_is(","):
            break
        reader.at += 1
    return None, None


def _key(reader: FormReader) -> Generator[None, None, str | None]:
    """Read the next key of an object and its colon; None if none is there."""
    yield from reader.skip_blanks()
    if not reader.next_is('"'):
        return None
    key = _loaded((yield from reader.whole()))
    yield from reader.skip_blanks()
    if not reader.next_is(":"):
        return None
    reader.at += 1
    return str(key)


def _loaded(text: str) -> Any:
    """Return the value of a JSON text; None for what is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _object(text: str) -> str:
    """Return the text of a JSON object, also of one within a JSON string; an empty text for anything else.

    No arguments at all, null or an empty string, are an empty object.
    """
    if text in ("null", '""'):
        return "{}"
    value = _loaded(text)
    if isinstance(value, str):
        text = value.encode(errors="backslashreplace").decode()  # a lone surrogate was an escape before
        value = _loaded(text)
    return text if isinstance(value, dict) else ""
