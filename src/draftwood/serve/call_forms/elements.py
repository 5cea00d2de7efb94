"""Calls like elements of XML, a parameter each, without any escapes: Qwen3-Coder, MiniCPM5, GLM and others.

``<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>``: what a value is, the
function's schema says. A value ends where its closing tag is followed by another parameter or by the call's end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from draftwood.grammar.calls import AnyText, OneOf, Part
from draftwood.serve.call_forms.base import CallForm, Event, FormReader, end, tags_of
from draftwood.serve.call_forms.values import as_json, is_text
from draftwood.serve.call_forms.written import properties_of, raw_value
from draftwood.serve.json_reader import BLANKS, gathered

_CDATA, _CDATA_END = "<![CDATA[", "]]>"  # MiniCPM5 puts values with line ends and the like between these


class ElementForm(CallForm):
    """Calls as elements; the ``members`` are those of `CallFrame`."""

    def __init__(self, before: str, members: tuple[str, str, str], after: str) -> None:
        first, assigned, parted = members
        key = first.rfind("<")
        self.openings, self._named = tags_of(before), tags_of(first[:key])
        self._key, self._keyed = first[key:].strip(), tags_of(assigned)
        value_end = parted[: parted.rfind("<")]
        self._valued, self._on_lines = value_end.strip(), assigned.endswith("\n") and value_end.startswith("\n")
        self._closing = tags_of(after.partition(self._valued)[2])
        end_ = re.match(r"\s*<[^<>]*>", after.removeprefix(value_end))
        assert end_ is not None
        self._written = first[:key], first[key:], assigned, value_end, end_[0]
        self.around = before.lstrip(), after.removeprefix(value_end)[end_.end() :].rstrip()
        self.tags = (*self.openings, *self._named, self._key, *self._keyed, self._valued, *self._closing)

    def read(self, reader: FormReader) -> Iterator[Event | None]:
        if not (yield from reader.enters(self.openings)):
            return
        yield from reader.skip_blanks()
        name = yield from reader.name()
        if name is None or not (yield from reader.passes(*self._named)):
            return
        following = (self._key, *self._closing[:1])
        yield from reader.skip_blanks()
        if not self._named and (yield from reader.one_of(following)) is None:
            return  # a name that nothing encloses
        yield Event("call", name)
        yield Event("arguments", "{")
        comma = ""
        while (yield from reader.passes(self._key)):
            key = "".join((yield from gathered(self._until(reader, self._keyed[0], (), at_line=False)))).strip()
            if reader.is_open:
                return
            yield from reader.passes(*self._keyed[1:])
            yield Event("arguments", f"{comma}{json.dumps(key, ensure_ascii=False)}: ")
            comma = ", "
            yield from self._value(reader, reader.functions[name], key)
            if reader.is_open:
                return
        is_closed = yield from reader.passes(*self._closing[:1])
        if reader.is_cut and not is_closed and self._closing[0].startswith(reader.text[reader.at :].strip()):
            reader.is_open, reader.at = True, len(reader.text)
            return
        yield Event("arguments", "}")
        yield from end(reader)
        for closing in self._closing[1:]:
            yield from reader.passes(closing)

    def written(self, name: str, schema: Mapping[str, Any] | None) -> Sequence[Part]:
        named, key, assigned, value_end, closing = self._written
        if schema is None:
            return [f"{name}{named}", AnyText(closing)]
        found: list[Part] = [f"{name}{named}"]
        for parameter, one, is_needed in properties_of(schema):
            part = [f"{key}{parameter}{assigned}", *raw_value(one, schema, value_end)]
            found += part if is_needed else [OneOf([part, []])]
        return [*found, closing]

    def _value(self, reader: FormReader, schema: Mapping[str, Any], key: str) -> Iterator[Event | None]:
        """Yield the value of a parameter as JSON: text as it comes, anything else once it is there."""
        if self._on_lines and (yield from reader.one_of(("\n",))):
            reader.at += 1
        closing = self._valued
        if (yield from reader.one_of((_CDATA,))) is not None:
            reader.at, closing = reader.at + len(_CDATA), _CDATA_END + closing
        pieces = self._until(reader, closing, (self._key, *self._closing[:1]), at_line=self._on_lines)
        if not is_text(schema, key):
            value = "".join((yield from gathered(pieces)))
            if not reader.is_open:
                yield Event("arguments", as_json(value, schema, key))
            return
        yield Event("arguments", '"')
        for piece in pieces:
            yield None if piece is None else Event("arguments", json.dumps(piece, ensure_ascii=False)[1:-1])
        if not reader.is_open:
            yield Event("arguments", '"')

    def _until(
        self, reader: FormReader, closing: str, following: tuple[str, ...], *, at_line: bool
    ) -> Iterator[str | None]:
        """Yield the text up to ``closing``, and go past it; behind it must come the end or one of ``following``.

        ``at_line``: the line end before it belongs to it. A text that the limit cuts is left open.
        """
        while True:
            size = reader.text.find(closing, reader.at) - reader.at  # of the text before it
            if size < 0:
                held = 0 if reader.is_ended else len(closing) + at_line - 1
                size = max(0, len(reader.text) - reader.at - held)
            elif not following or (yield from self._follows(reader, size + len(closing), following)):
                text = reader.text[reader.at : reader.at + size]
                yield text.removesuffix("\n") if at_line else text
                reader.at += size + len(closing)
                return
            else:
                size += len(closing)
            text = reader.text[reader.at : reader.at + size]
            reader.at += size
            if reader.is_ended and reader.at == len(reader.text):
                reader.is_open = reader.is_cut
                yield _without(text, "\n" * at_line + closing)
                return
            yield text or None

    def _follows(self, reader: FormReader, size: int, texts: tuple[str, ...]) -> Generator[None, None, bool]:
        """Return whether one of these texts, or the end, stands behind so many characters, but for blanks."""
        while True:
            rest = reader.text[reader.at + size :].lstrip(BLANKS)
            if any(map(rest.startswith, texts)):
                return True
            if reader.is_ended or not any(text.startswith(rest) for text in texts):
                return not rest
            yield None


def _without(text: str, closing: str) -> str:
    """Return a text without the beginning of what closes it at its end."""
    return next(text[: len(text) - n] for n in range(len(closing), -1, -1) if text.endswith(closing[:n]))
