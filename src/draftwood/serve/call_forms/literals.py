"""Calls like those of a program: ``name(key="value")`` of LFM2, ``call:name{key:<|"|>value<|"|>}`` of Gemma 4.

Values are texts between quotes, numbers, words, lists and objects; each form has quotes of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from draftwood.grammar.calls import Json, Part
from draftwood.serve.call_forms.base import CallForm, Event, FormReader, end, tags_of
from draftwood.serve.call_forms.written import members, properties_of, quoted_value, with_parts
from draftwood.serve.json_reader import gathered, nearest

_WORD = re.compile(r"[^\s,:=(){}\[\]\"'<]*")
_ESCAPES = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    "b": "\b",
    "f": "\f",
    "a": "\a",
    "v": "\v",
    "0": "\0",
    "\n": "",
    "/": "/",
}
_LOW_HALF = re.compile(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_HEX = {"x": 2, "u": 4, "U": 8}
_PLAIN = ('"', "'")
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_DEEPEST = 64
_SKIPPED = "null"  # in place of a value that cannot be read


class LiteralForm(CallForm):
    """Calls as in programs; the arguments are those of `CallFrame`."""

    def __init__(self, before: str, parts: tuple[str, str, str], after: str) -> None:
        opened, assigned, parted = parts
        self._open, self._in_list = opened.strip(), before.rstrip().endswith("[")
        self._assigned, self._between = assigned.strip()[:1], parted[parted.rindex(",") :]
        quote = assigned.strip()[1:]
        self._quotes = _PLAIN if quote in _PLAIN else (quote, *_PLAIN)
        self.openings = tags_of(before.rstrip().removesuffix("["))
        self._closing = tags_of(after.rpartition(_BRACKETS[self._open])[2].strip().removeprefix("]"))
        closing = after.rpartition(_BRACKETS[self._open])[2].strip()
        self.around = before.lstrip(), closing[: closing.find(">") + 1] or closing
        self.separator = ", " if self._in_list else ""
        self.tags = (*self.openings, *self._quotes, *self._closing)

    def read(self, reader: FormReader) -> Iterator[Event | None]:
        if not (yield from reader.enters(self.openings)):
            return
        if self._in_list:
            yield from reader.passes("[")
        found, place = False, reader.at
        while not found or (yield from reader.passes(",")):
            yield from reader.skip_blanks()
            name = yield from reader.name()
            if name is None or not (yield from reader.passes(self._open)):
                reader.at = place
                break
            found = True
            yield Event("call", name)
            yield from self._arguments(reader)
            yield from end(reader)
            if not self._in_list or reader.is_open:
                break
            place = reader.at
        if found and self._in_list:
            yield from reader.passes("]")
        for closing in self._closing if found else ():
            yield from reader.passes(closing)

    def written(self, name: str, schema: Mapping[str, Any] | None) -> Sequence[Part]:
        root = schema or {}

        def write(key: str, one: Mapping[str, Any]) -> list[Part]:
            is_json = self._quotes == _PLAIN  # which is read like values of Python
            value = [Json(with_parts(one, root))] if is_json else quoted_value(one, root, self._quotes[0])
            return [f"{key}{self._assigned}", *value]

        inner = members(properties_of(root), write, self._between)
        return [f"{name}{self._open}", *inner, _BRACKETS[self._open]]

    def _arguments(self, reader: FormReader) -> Iterator[Event | None]:
        for piece in self._members(reader, _BRACKETS[self._open], 0):
            yield None if piece is None else Event("arguments", piece)

    def _members(self, reader: FormReader, closer: str, depth: int) -> Iterator[str | None]:
        """Yield the members of an object, or the arguments of a call, as a JSON object, and go past their end."""
        yield "{"
        comma = ""
        while not (yield from self._ends(reader, closer)):
            key = yield from self._key(reader)
            if not (yield from reader.passes(":")) and not (yield from reader.passes("=")):
                if reader.is_cut and reader.at == len(reader.text):
                    reader.is_open = True
                    return
                reader.at += not key  # what is no key is skipped
                continue
            yield f"{comma}{json.dumps(key, ensure_ascii=False)}: "
            comma = ", "
            yield from self._value(reader, depth)
            if reader.is_open:
                return
        if not reader.is_open:
            yield "}"

    def _items(self, reader: FormReader, closer: str, depth: int) -> Iterator[str | None]:
        yield "["
        comma = ""
        while not (yield from self._ends(reader, closer)):
            yield comma
            comma = ", "
            yield from self._value(reader, depth)
            if reader.is_open:
                return
        if not reader.is_open:
            yield "]"

    def _ends(self, reader: FormReader, closer: str) -> Generator[None, None, bool]:
        """Return whether a list ends here, and go past its end, or else past the comma before another item."""
        if (yield from reader.passes(closer)):
            return True
        yield from reader.passes(",")
        if (yield from reader.passes(closer)):
            return True
        yield from reader.skip_blanks()
        if reader.at < len(reader.text):
            return reader.text[reader.at] in _BRACKETS.values()  # of what this stands in: it is closed, too
        reader.is_open = reader.is_cut
        return True

    def _key(self, reader: FormReader) -> Generator[None, None, str]:
        yield from reader.skip_blanks()
        quote = yield from reader.one_of(self._quotes)
        if quote is None:
            return (yield from self._word(reader))
        text = "".join((yield from gathered(self._text(reader, quote))))
        return str(json.loads(f'{text}"' if reader.is_open else text))

    def _word(self, reader: FormReader) -> Generator[None, None, str]:
        while True:
            found = _WORD.match(reader.text, reader.at)
            assert found is not None
            if reader.is_ended or found.end() < len(reader.text):
                reader.at = found.end()
                return found[0]
            yield None

    def _value(self, reader: FormReader, depth: int) -> Iterator[str | None]:
        yield from reader.skip_blanks()
        if reader.at == len(reader.text) and reader.is_cut:
            reader.is_open = True
            return
        quote, letter = (yield from reader.one_of(self._quotes)), reader.text[reader.at : reader.at + 1]
        if quote is not None:
            yield from self._text(reader, quote)
        elif letter in _BRACKETS and letter and depth < _DEEPEST:
            reader.at += 1
            read = self._members if letter == "{" else self._items
            yield from read(reader, _BRACKETS[letter], depth + 1)
        else:
            word = yield from self._word(reader)
            if reader.is_cut and reader.at == len(reader.text):
                reader.is_open = True
                yield word
                return
            reader.at += not word and letter not in (",", *_BRACKETS.values())
            yield nearest(word) if word else _SKIPPED

    def _text(self, reader: FormReader, quote: str) -> Iterator[str | None]:
        """Yield a text between quotes as JSON; only plain quotes have escapes, those of Python."""
        reader.at += len(quote)
        yield '"'
        while True:
            yield from reader.ahead()
            rest = reader.text[reader.at :]
            end_ = rest.find(quote)
            escape = rest.find("\\") if quote in _PLAIN else -1
            if 0 <= escape < (end_ if end_ >= 0 else len(rest)):
                yield _quoted(rest[:escape])
                reader.at += escape
                yield _quoted((yield from self._escape(reader)))
                continue
            if end_ >= 0:
                reader.at += end_ + len(quote)
                yield _quoted(rest[:end_]) + '"'
                return
            kept = 0 if reader.is_ended else len(quote) - 1
            piece = rest[: max(0, len(rest) - kept)]
            reader.at += len(piece)
            if reader.is_ended:
                reader.is_open = reader.is_cut
                yield _quoted(piece) + '"' * (not reader.is_cut)
                return
            yield _quoted(piece) if piece else None

    def _escape(self, reader: FormReader) -> Generator[None, None, str]:
        yield from reader.ahead(2)
        letter = reader.text[reader.at + 1 : reader.at + 2]
        digits = _HEX.get(letter, 0)
        yield from reader.ahead(2 + digits)
        code = reader.text[reader.at + 2 : reader.at + 2 + digits]
        reader.at += 2 + digits
        if not digits:
            return _ESCAPES.get(letter, letter if letter in "\\'\"" else f"\\{letter}")
        try:
            found = chr(int(code, 16))
        except (ValueError, OverflowError):
            return f"\\{letter}{code}"
        if not "\ud800" <= found < "\udc00":
            return found
        yield from reader.ahead(6)  # the other half of a character, as JSON writes it
        if (low := _LOW_HALF.match(reader.text, reader.at)) is None:
            return found
        reader.at = low.end()
        return (found + chr(int(low[1], 16))).encode("utf-16", "surrogatepass").decode("utf-16")


def _quoted(text: str) -> str:
    """Return a text as it stands within a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
