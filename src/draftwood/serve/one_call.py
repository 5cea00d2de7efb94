"""Ends an answer with its first call, for clients that take one at a time."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.api.text import TextBuilder
from draftwood.serve.calls import CallReader
from draftwood.serve.thoughts import ThoughtSplitter


class OneCall:
    """A `draftwood.decoding.request.Criterion`: the text ends with the token that completes a call.

    It reads the answer as `Choice` does, with a builder of text, a splitter and a reader of calls of its own.
    """

    def __init__(self, builder: TextBuilder, splitter: ThoughtSplitter, reader: CallReader) -> None:
        self._builder, self._splitter, self._reader = builder, splitter, reader

    def __call__(self, ids: Sequence[int]) -> bool:
        pieces = self._builder.push(int(ids[-1]), "")
        parts = [part for piece in pieces for part in self._splitter.feed(piece.text)]
        events = [event for part in parts if part.kind == "text" for event in self._reader.feed(part.text)]
        return any(event.kind == "end" for event in events)
