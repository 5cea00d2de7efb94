"""Calls that are a function's name and then arguments as a JSON object: Mistral, harmony, DeepSeek and others."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from draftwood.api.thoughts import CALL_OPENING
from draftwood.grammar.calls import Json, Part
from draftwood.serve.call_forms.base import CallForm, Event, FormReader, arguments, end, tags_of

_LONGEST = 200
"""Characters between a name and its arguments: an id of the call, a kind of its content."""


class NamedForm(CallForm):
    """Calls by name, with ``between`` before the arguments and ``after`` behind them."""

    def __init__(self, before: str, between: str, after: str) -> None:
        self.openings, self._closing = tags_of(before.removesuffix("functions.")), tags_of(after)
        inner = tags_of(between)
        self.has_grammar = before != CALL_OPENING
        self._between, self.around = between, (before.lstrip(), after.rstrip())
        self._last = inner[-1]  # what stands before it may differ from call to call
        self.tags = (*self.openings, *inner, *self._closing)

    def read(self, reader: FormReader) -> Iterator[Event | None]:
        if not (yield from reader.enters(self.openings)):
            return
        yield from reader.skip_blanks()
        name = yield from reader.name()
        if name is None or not (yield from self._to_arguments(reader)):
            return
        yield Event("call", name)
        yield from reader.skip_blanks()
        if reader.next_is("{"):
            yield from arguments(reader)
        elif reader.is_cut and reader.at == len(reader.text):
            reader.is_open = True
        else:
            yield Event("arguments", "{}")
        yield from end(reader)
        for closing in self._closing:
            yield from reader.passes(closing)

    def written(self, name: str, schema: Mapping[str, Any] | None) -> Sequence[Part]:
        return [f"{name}{self._between}", Json({**(schema or {}), "type": "object"})]

    def _to_arguments(self, reader: FormReader) -> Generator[None, None, bool]:
        """Go past what stands before the arguments; returns whether it stands here."""
        most = _LONGEST + len(self._last)
        while (place := reader.text.find(self._last, reader.at, reader.at + most)) < 0:
            if reader.is_ended or len(reader.text) - reader.at >= most:
                return False
            yield None
        reader.at = place + len(self._last)
        return True
