"""What readers of all forms share: the events of an answer, and a text in which tags are found as they come."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from draftwood.grammar.calls import Part
from draftwood.serve.json_reader import JsonReader

FENCE = "```"
BARE_OPENINGS = ("{", FENCE)
"""Some models put a call in a block of Markdown, Qwen2.5-Coder most often."""
_NAME = re.compile(r"[\w.-]*", re.ASCII)
_TAG = re.compile(r"<[^<]*|\[[^\[]*|[^<\[]+")


class Event(NamedTuple):
    """A part of an answer: text, or a call's name, a piece of its arguments, or its end, or what the model thinks.

    A call whose arguments are cut has no end.
    """

    kind: Literal["text", "call", "arguments", "end", "thought"]
    text: str
    number: int = 0  # of the call in its answer, from 0


class FormReader(JsonReader):
    """A text that comes in pieces, in which calls of ``functions`` are read: their schemas by name."""

    def __init__(self, functions: Mapping[str, Mapping[str, Any]]) -> None:
        super().__init__()
        self.functions = functions
        self.is_trying = False  # what is read now may be read again: it must be kept

    def one_of(self, texts: Sequence[str]) -> Generator[None, None, str | None]:
        """Return the longest of these texts that stands here; None if none does."""
        while True:
            here = self.text[self.at : self.at + max(map(len, texts), default=0)]
            more = any(len(text) > len(here) and text.startswith(here) for text in texts)
            if self.is_ended or not more:
                return max((text for text in texts if here.startswith(text)), key=len, default=None)
            yield None

    def passes(self, *texts: str) -> Generator[None, None, bool]:
        """Go past these texts, with blanks before each; where one is lacking, go nowhere and return False."""
        place, self.is_trying, before = self.at, True, self.is_trying
        for text in texts:
            yield from self.skip_blanks()
            if (yield from self.one_of((text,))) is None:
                self.at, self.is_trying = place, before
                return False
            self.at += len(text)
        self.is_trying = before
        return True

    def enters(self, opening: Sequence[str]) -> Generator[None, None, bool]:
        """Go past the tags that open a call, of which the first ones may be lacking; False if none stands here."""
        first = yield from self.one_of(opening)
        return first is not None and (yield from self.passes(*opening[opening.index(first) :]))

    def name(self) -> Generator[None, None, str | None]:
        """Go past the name of a function that stands here; None where it is none that can be called."""
        while True:
            found = _NAME.match(self.text, self.at)
            assert found is not None
            if self.is_ended or found.end() < len(self.text):
                break
            yield None
        name = found[0].removeprefix("functions.")
        self.at = found.end()
        return name if name in self.functions else None


class CallForm(ABC):
    """A form of calls.

    ``openings`` are texts at which a call may begin, ``tags`` all that belong to the form. ``may_be_bare``: a call
    may begin without an opening at the beginning of an answer, with one of `BARE_OPENINGS`.
    """

    openings: tuple[str, ...]
    tags: tuple[str, ...]
    may_be_bare = False
    around: tuple[str, str]  # what the template writes before the name, or before a list, and behind a call
    separator = ""  # between the calls of a list
    in_messages = False  # each call stands in a message of its own, with a header

    @abstractmethod
    def read(self, reader: FormReader) -> Iterator[Event | None]:
        """Yield the events of calls that stand here, before their opening; None where more text is needed.

        Where no call stands here, none is yielded. What was read before the first event may be read again.
        """

    @abstractmethod
    def written(self, name: str, schema: Mapping[str, Any] | None) -> Sequence[Part]:
        """Return what a call of a function consists of; without a ``schema`` its arguments are free."""


def tags_of(*texts: str) -> tuple[str, ...]:
    """Return the parts of texts between which there may be blanks: each tag with what follows it."""
    return tuple(found.strip() for text in texts for found in _TAG.findall(text) if found.strip())


def arguments(reader: JsonReader) -> Iterator[Event | None]:
    """Yield the JSON value that begins here as a call's arguments, and the call's end unless it was cut."""
    for piece in reader.value():
        yield None if piece is None else Event("arguments", piece)


def end(reader: JsonReader) -> Iterator[Event]:
    """Yield the end of a call, unless it was cut."""
    if not reader.is_open:
        yield Event("end", "")
