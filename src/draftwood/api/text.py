"""From tokens to text while they come: no half characters, no stop strings, each piece with its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from draftwood.decoding.stopping import StopStrings

Decode = Callable[[Sequence[int]], str]


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text and where its tokens came from: the name of a drafter, or ``"model"``.

    ``prompt`` is the number of the prompt that it answers, where several are written together.
    """

    text: str
    source: str
    prompt: int = 0


class TextBuilder:
    """Turns tokens into pieces whose texts, joined, are the text of all tokens up to a stop string.

    Parameters
    ----------
    decode
        Token ids to text.
    stop
        Stop strings; what may turn out to begin one is held back.
    prompt
        Number of the prompt that the pieces answer.
    """

    def __init__(self, decode: Decode, stop: StopStrings | None = None, prompt: int = 0) -> None:
        self._decode, self._stop, self._prompt = decode, stop, prompt
        self._ids: list[int] = []
        self._prefix = self._read = 0  # ids[prefix:read] give the context in which the next token is decoded
        self._shown = 0
        self._marks: list[tuple[int, str]] = []  # text up to this offset came from this source
        self.text = ""

    def push(self, token: int, source: str) -> list[Piece]:
        """Take in a token; returns what can be shown now."""
        self._ids.append(token)
        now = self._decode(self._ids[self._prefix :])
        if now.endswith("\ufffd"):  # in the middle of a character
            return []
        self._take(now, source)
        if self._stop is None:
            return self._show(len(self.text))
        before_stop = self._shown + len(self._stop.cut(self.text[self._shown :]))
        return self._show(min(before_stop, len(self.text) - self._stop.held_back(self.text)))

    def finish(self, source: str) -> list[Piece]:
        """No more tokens come; returns what was held back, cut before a stop string.

        After an interrupt in `push`, too: state changes in one statement each, between which no signal is handled.
        """
        self._take(self._decode(self._ids[self._prefix :]), source)
        if self._stop is not None:
            self.text = self._stop.cut(self.text)
        return self._show(len(self.text))

    def _take(self, now: str, source: str) -> None:
        """Take in what the tokens from ``prefix`` on say beyond those that were read."""
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
