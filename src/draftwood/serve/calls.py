"""Calls of tools within what a model writes, read as they are written: one reader for streams and whole answers.

Models write a call as ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, the form that Hermes models
began and most open models know, or as that JSON alone. Calls are told of from the moment their names and the first
character of their arguments are known; until then they may turn out to be text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator
from itertools import groupby
from typing import Any, Literal, NamedTuple

from draftwood.serve.json_reader import BLANK, JsonReader

TAGS = (OPENING := "<tool_call>", CLOSING := "</tool_call>")
_LONGEST = max(map(len, TAGS))
_ARGUMENTS = ("arguments", "parameters")


class Event(NamedTuple):
    """A part of an answer: text, or a call's name, a piece of its arguments, or its end, or what the model thinks.

    A call whose arguments are cut has no end.
    """

    kind: Literal["text", "call", "arguments", "end", "thought"]
    text: str
    number: int  # of the call in its answer, from 0


class CallReader(JsonReader):
    """Reads one answer without its thoughts; however its text is cut, the events joined are the same.

    Only functions of these ``names`` can be called. Blanks beside a call are left out where no other text follows;
    all else that is no call is text. ``hidden`` are those of `TAGS` that are control tokens of the model, which no
    client is shown.
    """

    def __init__(self, names: Collection[str], hidden: Collection[str] = ()) -> None:
        super().__init__()
        self._names, self._hidden = frozenset(names), frozenset(hidden)
        self._blank, self._said, self._is_trying, self.calls = "", False, False, 0
        self._events = self._answer()

    def feed(self, text: str) -> list[Event]:
        """Read more text; returns the events that no later text can change."""
        if not self._is_trying:
            self._text, self._at = self._text[self._at :], 0
        self._text += text
        return self._certain()

    def end(self, *, is_cut: bool) -> list[Event]:
        """Return the rest, once nothing more comes; ``is_cut``: a length limit has cut the text."""
        self.is_ended, self.is_cut = True, is_cut
        return self._certain()

    def _certain(self) -> list[Event]:
        found = list[Event]()
        for event in self._events:
            if event is None:
                break
            found.append(event)
        joined = groupby(found, lambda event: (event.kind, event.number))
        return [Event(kind, "".join(event.text for event in some), number) for (kind, number), some in joined]

    def _answer(self) -> Iterator[Event | None]:
        bare = True  # a call without tags may stand here, with nothing but calls before it
        while True:
            self._text, self._at = self._text[self._at :], 0
            yield from self._ahead()
            if not self._text:
                break
            if (blank := BLANK.match(self._text)) is not None:
                self._blank, self._at = self._blank + blank[0], blank.end()
                continue
            tag = yield from self._tag()
            if tag == OPENING or (bare and self._next_is("{")):
                before = self.calls
                yield from self._call(tag or "")
                if self.calls > before:
                    bare = True
                    continue
            if tag is None:
                end = self._text.find("<", 1)
                run = self._text if end < 0 else self._text[:end]
                kept = run.rstrip(" \t\n\r")
                yield self._as_text(kept)
                self._blank, self._at, bare = run[len(kept) :], len(run), False
                continue
            bare, self._at = False, len(tag)
            if tag not in self._hidden:
                yield self._as_text(tag)
        if self._blank and not self.calls:
            yield self._as_text("")

    def _as_text(self, text: str) -> Event:
        text, self._blank, self._said = self._blank + text, "", True
        return Event("text", text, self.calls)

    def _tag(self) -> Generator[None, None, str | None]:
        """Return the tag that stands here, if one does."""
        while True:
            if (found := next((tag for tag in TAGS if self._next_is(tag)), None)) is not None:
                return found
            here = self._text[self._at : self._at + _LONGEST]
            if self.is_ended or not any(tag.startswith(here) for tag in TAGS):
                return None
            yield None

    def _call(self, tag: str) -> Iterator[Event | None]:
        """Read a call and its tags; where none stands here, read nothing."""
        self._is_trying, self._at, name, written = True, len(tag), None, None
        yield from self._skip_blanks()
        if self._next_is("{"):
            self._at += 1
            name, written = yield from self._head()
        self._is_trying = False
        if name is None:
            self._at = 0
            return
        if not self._said:
            self._blank = ""
        yield Event("call", name, self.calls)
        if written is not None:
            yield Event("arguments", written, self.calls)
        else:
            for piece in self.value():
                yield None if piece is None else Event("arguments", piece, self.calls)
            yield from self._members()
        if not self.is_open:
            yield Event("end", "", self.calls)
        self.calls, self._is_trying, place = self.calls + 1, True, self._at
        yield from self._skip_blanks()
        closing = yield from self._tag()
        self._at = self._at + len(CLOSING) if closing == CLOSING else place
        self._is_trying = False

    def _head(self) -> Generator[None, None, tuple[str | None, str | None]]:
        """Read a call up to its arguments if its name stands before them, else to its end.

        Returns the name, None if this is no call, and the arguments if those were read, too.
        """
        name, written = None, "{}"
        while (key := (yield from self._key())) is not None:
            yield from self._skip_blanks()
            if key in _ARGUMENTS and name is not None and self._next_is("{"):
                return name, None
            value = yield from self._whole()
            if key == "name":
                name = _loaded(value)
                if not isinstance(name, str) or name not in self._names:
                    break
            elif key in _ARGUMENTS and not (written := _object(value)):
                break
            yield from self._skip_blanks()
            if self._next_is("}"):
                self._at += 1
                return name, written
            if not self._next_is(","):
                break
            self._at += 1
        return None, None

    def _members(self) -> Iterator[None]:
        """Read what a call's object has after its arguments, and its closing brace."""
        yield from self._skip_blanks()
        while self._next_is(","):
            self._at += 1
            if (yield from self._key()) is None:
                return
            yield from self._skip_blanks()
            yield from self._whole()
            yield from self._skip_blanks()
        self._at += self._next_is("}")

    def _key(self) -> Generator[None, None, str | None]:
        """Read the next key of an object and its colon; None if none is there."""
        yield from self._skip_blanks()
        if not self._next_is('"'):
            return None
        key = _loaded((yield from self._whole()))
        yield from self._skip_blanks()
        if not self._next_is(":"):
            return None
        self._at += 1
        return str(key)

    def _whole(self) -> Generator[None, None, str]:
        pieces = list[str]()
        for piece in self.value():
            if piece is None:
                yield None
            else:
                pieces.append(piece)
        return "".join(pieces)


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
