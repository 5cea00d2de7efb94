"""Reads JSON out of a text that comes in pieces: as it was written where it is JSON, else as the nearest JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterator
from math import isfinite

BLANK = re.compile(r"[ \t\n\r]+")
_RUN = re.compile(r'[^"\\\x00-\x1f]+')  # of a string
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LONGEST_ESCAPE = 6
_WORD = re.compile(r"[\w.+-]+")
_ITEM = re.compile(r"[\w.+{\[-]")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"None": "null", "NaN": "null", "Infinity": "null", "-Infinity": "null", "True": "true", "False": "false"}
_KNOWN = frozenset({"null", "true", "false"})
_HEX = r"\\u([0-9a-fA-F]{4})"
_WRITTEN_OUT = re.compile(rf"\\[^u]|\\u[dD][89abAB]..{_HEX}|{_HEX}")


class JsonReader:
    """A text that comes in pieces, and a place in it. What reads it yields None where it needs more text.

    Attributes
    ----------
    is_ended
        Whether no more text comes.
    is_cut
        Whether the text would have gone on: then nothing is added to what is open at its end.
    is_open
        Whether a value was open there.
    """

    def __init__(self, text: str = "", *, is_ended: bool = False) -> None:
        self._text, self._at = text, 0
        self.is_ended, self.is_cut, self.is_open = is_ended, False, False

    def value(self) -> Iterator[str | None]:
        """Yield the pieces of the JSON value that begins here, and read behind its last character.

        Wherever the text is JSON, the pieces are what is written. Else they are the nearest JSON: control
        characters in strings and wrong escapes are escaped, words that JSON does not have become null, true, false
        or strings, commas come between values alone, and where nothing fits what is open is closed.
        """
        closers, expected, held = list[str](), "value", ""  # held: a comma, until it is known what follows it
        while True:
            yield from self._ahead()
            if self._at == len(self._text):
                if self.is_cut:
                    self.is_open = True
                    return
                break
            letter = self._text[self._at]
            if (blank := BLANK.match(self._text, self._at)) is not None:
                self._at = blank.end()
                if held:
                    held += blank[0]
                elif closers:
                    yield blank[0]
                continue
            if closers and letter == closers[-1] and (held or expected in ("comma", "first", "first key")):
                yield closers.pop()
                self._at, expected, held = self._at + 1, "comma", ""
            elif letter == "," and expected == "comma":
                self._at, expected, held = self._at + 1, "key" if closers[-1] == "}" else "value", ","
            elif letter == ":" and expected == "colon":
                yield ":"
                self._at, expected = self._at + 1, "value"
            elif letter == '"' and expected not in ("comma", "colon"):
                yield held + '"'
                self._at, held = self._at + 1, ""
                yield from self._string()
                expected = "colon" if expected in ("key", "first key") else "comma"
            elif letter in "{[" and expected in ("value", "first"):
                yield held + letter
                closers.append("}" if letter == "{" else "]")
                self._at, expected, held = self._at + 1, "first key" if letter == "{" else "first", ""
            elif expected in ("value", "first") and _WORD.match(self._text, self._at):
                word = yield from self._word()
                yield held + word
                expected, held = "comma", ""
            elif expected == "comma" and (letter == '"' or (closers[-1] == "]" and _ITEM.match(letter))):
                expected, held = "key" if closers[-1] == "}" else "value", ","
            else:
                break
            if not closers:
                return
        lacking = {"colon": ": null", "value": "" if held or not closers else "null"}.get(expected, "")
        yield lacking + "".join(reversed(closers))

    def _string(self) -> Iterator[str | None]:
        """Yield the pieces of a string behind its first quote, the last one among them."""
        while True:
            yield from self._ahead()
            if self._at == len(self._text):
                if not self.is_cut:
                    yield '"'
                return
            if (run := _RUN.match(self._text, self._at)) is not None:
                self._at = run.end()
                yield run[0]
                continue
            letter = self._text[self._at]
            if letter == "\\":
                yield from self._ahead(_LONGEST_ESCAPE)
                escape = _ESCAPE.match(self._text, self._at)
                quote = self._text.startswith("\\'", self._at)
                self._at = self._at + 1 + quote if escape is None else escape.end()
                yield escape[0] if escape is not None else "'" if quote else "\\\\"
                continue
            self._at += 1
            yield letter if letter == '"' else json.dumps(letter)[1:-1]
            if letter == '"':
                return

    def _word(self) -> Generator[None, None, str]:
        """Read a word outside of strings; returns the nearest JSON."""
        word = ""
        while True:
            yield from self._ahead()
            found = _WORD.match(self._text, self._at)
            if found is None:
                break
            word, self._at = word + found[0], found.end()
        if word in _KNOWN or _NUMBER.fullmatch(word) or (self.is_cut and self._at == len(self._text)):
            return word
        return _WORDS.get(word) or _as_number(word)

    def _ahead(self, size: int = 1) -> Iterator[None]:
        """Ask for more text until so many characters are there, or the end."""
        while len(self._text) - self._at < size and not self.is_ended:
            yield None

    def _skip_blanks(self) -> Iterator[None]:
        while True:
            yield from self._ahead()
            if (blank := BLANK.match(self._text, self._at)) is None:
                return
            self._at = blank.end()

    def _next_is(self, letter: str) -> bool:
        return self._text.startswith(letter, self._at)


def nearest(text: str) -> str:
    """Return the JSON value that a text is, as written, or the nearest one; if none is, a string of the text."""
    reader = JsonReader(text, is_ended=True)
    found = "".join(piece for piece in reader.value() if piece)
    left = text[reader._at :].strip()
    return json.dumps(text, ensure_ascii=False) if left or not found else found


def readable(written: str) -> str:
    r"""Return JSON with characters beyond ASCII as they are: \uXXXX takes more tokens, and models copy it."""
    return _WRITTEN_OUT.sub(_unescaped, written)


def _unescaped(found: re.Match[str]) -> str:
    whole = found[0]
    if whole[1] != "u" or int(whole[2:6], 16) < 0x80:
        return whole
    letter = json.loads(f'"{whole}"')
    return whole if any("\ud800" <= one <= "\udfff" for one in letter) else letter


def _as_number(word: str) -> str:
    """Return a word that is no number of JSON as one, if it means one; else as a string."""
    try:
        value = float(word)
    except ValueError:
        return json.dumps(word, ensure_ascii=False)
    if not isfinite(value):
        return "null"
    return str(int(word)) if re.fullmatch(r"[+-]?[0-9]+", word) else repr(value)
