"""Text whose tokens are told besides: which bytes of it each token has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from draftwood.api.text import Piece, Spelling, TextBuilder, as_text
from draftwood.decoding.stopping import StopStrings


class SpelledToken(NamedTuple):
    """A token in a text: its own text, its bytes within that text, and how many characters stand before them.

    Joined they are the text's bytes: a special token has none, nor what a stop string cut off.
    """

    text: str
    bytes: bytes
    offset: int

    def behind(self, characters: int) -> SpelledToken:
        """Return the same in a text that has so many characters before this one."""
        return self._replace(offset=self.offset + characters)


class SpelledText(TextBuilder):
    """As `TextBuilder`; also tells the tokens.

    Parameters
    ----------
    spelling
        Of the tokenizer.
    stop
        As in `TextBuilder`.

    Attributes
    ----------
    tokens
        Those whose text is complete, in order; at the end all.
    shown
        How many of them have no bytes in text that is held back.
    """

    def __init__(self, spelling: Spelling, stop: StopStrings | None = None) -> None:
        super().__init__(spelling, stop)
        self._spelled_by = spelling
        self._group: list[int] = []  # tokens since the last one that ended with a character
        self._told = self._characters = self._bytes = self._shown_bytes = 0
        self._ends: list[int] = []  # of the tokens, in bytes
        self.tokens: list[SpelledToken] = []
        self.shown = 0

    def push(self, token: int, source: str) -> list[Piece]:
        """As `TextBuilder.push`."""
        self._group.append(token)
        return self._tell(super().push(token, source))

    def finish(self, source: str) -> list[Piece]:
        """As `TextBuilder.finish`."""
        return self._tell(super().finish(source))

    def _take(self, now: str, held: int, source: str) -> None:
        super()._take(now, held, source)
        if not held:
            self._divide()

    def _divide(self) -> None:
        """Divide the text that came since the last call among its tokens."""
        text, self._told = self.text[self._told :], len(self.text)
        pieces = [b"" if self._spelled_by.special(t) else self._spelled_by.piece(t) for t in self._group]
        for token, own in zip(self._group, divided(pieces, text), strict=True):
            self._append(token, own)
        self._group = []

    def _append(self, token: int, own: bytes) -> None:
        name = self._spelled_by.name(token)
        if own and name == f" {as_text(own)}":  # the blank before a text that some vocabularies add
            name = as_text(own)
        self.tokens.append(SpelledToken(name, own, self._characters))
        self._characters += characters(own)
        self._bytes += len(own)
        self._ends.append(self._bytes)

    def _cut(self, end: int) -> None:
        super()._cut(end)
        left = len(self.text.encode())
        for place, (token, until) in enumerate(zip(self.tokens, self._ends, strict=True)):
            if until > left:
                own = token.bytes[: max(0, len(token.bytes) - (until - left))]
                self.tokens[place], self._ends[place] = token._replace(bytes=own), min(until, left)

    def _tell(self, pieces: list[Piece]) -> list[Piece]:
        self._shown_bytes += sum(len(piece.text.encode()) for piece in pieces)
        while self.shown < len(self.tokens) and self._ends[self.shown] <= self._shown_bytes:
            self.shown += 1
        return pieces


def spelled_prompt(spelling: Spelling, ids: Sequence[int], text: str | None) -> tuple[str, list[SpelledToken]]:
    """Return a prompt's text (``text`` where its tokens spell that) and its tokens, special ones by name."""
    pieces = [spelling.piece(token) for token in ids]
    own = None if text is None else _aligned(spelling, ids, pieces, text.encode())
    if text is None or own is None:
        text = (
            spelling.full(ids)
            if None in pieces
            else b"".join([piece or b"" for piece in pieces]).decode(errors="replace")
        )
        own = divided(pieces, text)
    found, place = list[SpelledToken](), 0
    for token, some in zip(ids, own, strict=True):
        found.append(SpelledToken(spelling.name(token), some, place))
        place += characters(some)
    return text, found


def _aligned(
    spelling: Spelling, ids: Sequence[int], pieces: Sequence[bytes | None], whole: bytes
) -> list[bytes] | None:
    """Return what each token has of a text, which may lack tokens and blanks that the tokenizer has added."""
    found, place = list[bytes](), 0
    for token, piece in zip(ids, pieces, strict=True):
        if piece is None:
            return None
        forms = [form for form in (piece, piece.removeprefix(b" ")) if whole.startswith(form, place)]
        if not forms and not spelling.special(token):
            return None
        found.append(forms[0] if forms else b"")
        place += len(found[-1])
    return found if place == len(whole) else None


def divided(pieces: Sequence[bytes | None], text: str) -> list[bytes]:
    """Divide a text's bytes among the tokens that it was made of, of which these are the bytes, where known.

    What the text lacks at its beginning (a blank) its first tokens lack. A text that is another one goes to the
    last token.
    """
    whole, found = text.encode(), [b""] * len(pieces)
    parts = _replaced(b"".join([piece or b"" for piece in pieces]))
    spelled = b"".join(parts)
    if None in pieces or not spelled.endswith(whole):
        return [*found[1:], whole] if found else []
    owners = [place for place, piece in enumerate(pieces) for _ in piece or b""]
    missing = len(spelled) - len(whole)
    for owner, part in zip(owners, parts, strict=True):
        found[owner] += part[missing:]
        missing = max(0, missing - len(part))
    return found


def _replaced(some: bytes) -> list[bytes]:
    """Return for each byte what it becomes in a text: itself, or in half a character U+FFFD and then nothing."""
    found, start = [some[place : place + 1] for place in range(len(some))], 0
    while start < len(some):
        try:
            some[start:].decode()
        except UnicodeDecodeError as error:
            begin, start = start + error.start, start + error.end
            found[begin:start] = ["\ufffd".encode(), *[b""] * (start - begin - 1)]
        else:
            break
    return found


def characters(some: bytes) -> int:
    """Return how many characters begin in these bytes of a text."""
    return sum(byte & 0xC0 != 0x80 for byte in some)
