"""Turns tokens into text as they arrive: no half characters, no stop strings, each piece with its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftwood.decoding.stopping import StopStrings

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text and its source: the name of the drafter that proposed its tokens, or ``"model"``.

    ``prompt`` is the index of the prompt that it answers, in a list of prompts.
    """

    text: str
    source: str
    prompt: int = 0


class TextBuilder:
    """Turns tokens into pieces whose texts, joined, are the text of all tokens up to a stop string.

    Text that may be the beginning of a stop string is held back.
    """

    def __init__(self, decode: Decode, stop: StopStrings | None = None, prompt: int = 0) -> None:
        self._decode, self._stop, self._prompt = decode, stop, prompt
        self._ids: list[int] = []
        self._prefix = self._read = 0  # ids[prefix:read] are decoded again as context of the next token
        self._shown = 0
        self._marks: list[tuple[int, str]] = []  # (end, source) of text that was not shown yet
        self.text = ""

    def push(self, token: int, source: str) -> list[Piece]:
        """Add a token; returns what can be shown now."""
        self._ids.append(token)
        now = self._decode(self._ids[self._prefix :])
        if now.endswith("\ufffd"):  # the token ends within a character
            return []
        self._take(now, source)
        if self._stop is None:
            return self._show(len(self.text))
        before_stop = self._shown + len(self._stop.cut(self.text[self._shown :]))
        return self._show(min(before_stop, len(self.text) - self._stop.held_back(self.text)))

    def finish(self, source: str) -> list[Piece]:
        """Return what was held back, cut before a stop string, once no more tokens come.

        Safe after an interrupt in `push`, since each change of state is one statement, which no signal splits.
        """
        self._take(self._decode(self._ids[self._prefix :]), source)
        if self._stop is not None:
            self.text = self._stop.cut(self.text)
        return self._show(len(self.text))

    def _take(self, now: str, source: str) -> None:
        """Add the text ``now`` of the tokens from ``prefix`` on, less that of the tokens already read."""
        new = now[len(self._decode(self._ids[self._prefix : self._read])) :]
        text, read = self.text + new, len(self._ids)
        marks = [*self._marks, (len(text), source)] if new else self._marks
        if read > self._read:
            self.text, self._marks, self._prefix, self._read = text, marks, self._read, read

    def _show(self, end: int) -> list[Piece]:
        pieces = []
        while self._shown < end:
            until, source = self._marks[0]
            reached, rest = min(until, end), self._marks[1:] if until <= end else self._marks
            pieces.append(Piece(self.text[self._shown : reached], source, self._prompt))
            self._shown, self._marks = reached, rest
        return pieces
