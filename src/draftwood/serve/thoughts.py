"""Divides a chat's text into what the model thinks and what it says, as the text comes.

Models whose thoughts are text write ``<think>`` at the beginning of an answer, or their templates have written it
at the end of the prompt; elsewhere these letters are text. Thoughts that are marked by control tokens may stand
anywhere. As in llama.cpp, blanks beside the tags are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from draftwood.api.thoughts import CLOSING, OPENING
from draftwood.serve.calls import Event

MARKS = ("\ud83e", "\udd14")
"""Stand for the tags of thoughts that control tokens mark: halves of a character, which no tokenizer writes."""
TAGS = {ord(mark): tag for mark, tag in zip(MARKS, (OPENING, CLOSING), strict=True)}
"""For `str.translate`: the marks, and the tags that people read."""


class ThoughtSplitter:
    """Divides one answer; however its text is cut, the events joined are the same.

    ``is_marked``: control tokens mark the thoughts, by `MARKS`; ``within``: the prompt has opened one. ``at`` is
    how many characters were divided so far; ``spans`` are the places of each thought, with its tags and the blanks
    beside them: where it begins, and where what follows begins.
    """

    def __init__(self, *, is_marked: bool, within: bool) -> None:
        self._opening, self._closing = MARKS if is_marked else (OPENING, CLOSING)
        self._anywhere, self._text, self._is_ended, self._is_new = is_marked, "", False, True
        self._thinks = self._said = False  # whether a thought is open; whether the answer has begun
        self.at, self.spans = 0, list[tuple[int, int]]()
        if within:
            self._open(0)

    def feed(self, text: str) -> list[Event]:
        """Read more text; returns the events that no later text can change."""
        self._text += text
        return [event for event in self._parts() if event.text]

    def end(self) -> list[Event]:
        """Return the rest, once nothing more comes."""
        self._is_ended = True
        return self.feed("")

    def is_thought(self, begin: int, end: int) -> bool:
        """Whether characters that were divided are part of a thought."""
        return any(first <= begin and end <= last for first, last in self.spans)

    def _parts(self) -> Iterator[Event]:
        before = None
        while before != self._text:
            before = self._text
            yield self._thought() if self._thinks else self._answer()

    def _thought(self) -> Event:
        if self._is_new:
            self._skip_blanks()
            while self._text.startswith(self._opening):  # some write again what their template has written
                self._take(len(self._opening))
                self._skip_blanks()
            if self._may_begin(self._opening):
                return Event("thought", "", 0)
        text, closing, _ = self._text.partition(self._closing)
        if closing:
            self._take(len(text) + len(closing))
            self._thinks, self._said, self._is_new = False, False, True
            self._skip_blanks()
            return Event("thought", text.rstrip(), 0)
        held = next(n for n in range(len(self._closing) - 1, -1, -1) if text.endswith(self._closing[:n]))
        kept = (text if self._is_ended else text[: len(text) - held]).rstrip()
        self._is_new = self._is_new and not kept
        self._take(len(text) if self._is_ended else len(kept))
        return Event("thought", kept, 0)

    def _answer(self) -> Event:
        if not self._said:
            if self.spans and self.spans[-1][1] == self.at:
                self._skip_blanks()
            begin = self._text.lstrip()
            if begin.startswith(self._opening):
                self._open(self.at)
                self._take(len(self._text) - len(begin) + len(self._opening))
                return Event("text", "", 0)
            if self._may_begin(self._opening):
                return Event("text", "", 0)
            self._said = True
        end = self._text.find(self._opening) if self._anywhere else -1
        text = self._text if end < 0 else self._text[:end]
        self._take(len(text))
        self._said = end < 0
        return Event("text", text, 0)

    def _may_begin(self, tag: str) -> bool:
        """Whether the text, but for blanks, may turn out to begin with a tag."""
        return not self._is_ended and tag.startswith(self._text.lstrip())

    def _open(self, begin: int) -> None:
        self._thinks = self._is_new = True
        self.spans.append((begin, begin))

    def _skip_blanks(self) -> None:
        self._take(len(self._text) - len(self._text.lstrip()))

    def _take(self, size: int) -> None:
        """Go on behind so many characters, which are part of the thought if one is open or has just ended."""
        begin, self._text, self.at = self.at, self._text[size:], self.at + size
        if self._thinks or (self.spans and not self._said and self.spans[-1][1] == begin):
            self.spans[-1] = (self.spans[-1][0], self.at)
