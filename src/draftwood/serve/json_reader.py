"""Reads JSON from a text that comes in pieces: as it was written where it is valid, else repaired."""

from __future__ import annotations

import json
import re
from collections.abc import Generator, Iterable, Iterator
from math import isfinite

BLANKS = " \t\n\r"
BLANK = re.compile(f"[{BLANKS}]+")
_RUN = re.compile(r'[^"\\\x00-\x1f]+')  # characters of a string that need no escape
_ESCAPE = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_LONGEST_ESCAPE = 6
_WORD = re.compile(r"[\w.+-]+")
_ITEM = re.compile(r"[\w.+{\[-]")  # begins a value that is no string
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_WORDS = {"None": "null", "NaN": "null", "Infinity": "null", "-Infinity": "null", "True": "true", "False": "false"}
_KNOWN = ("null", "true", "false")
_HEX = r"\\u([0-9a-fA-F]{4})"
_WRITTEN_OUT = re.compile(rf"\\[^u]|\\u[dD][89abAB]..{_HEX}|{_HEX}")


class JsonReader:
    """A text that comes in pieces, and a place in it. The methods that read it yield None where they need more."""

    def __init__(self, text: str = "", *, is_ended: bool = False) -> None:
        self.text, self.at = text, 0
        self.is_ended = is_ended  # no more text comes
        self.is_cut = False  # a length limit has cut the text: what is open at its end is not closed
        self.is_open = False  # a value was open at its end, and was not closed

    def value(self) -> Iterator[str | None]:
        """Yield the pieces of the JSON value that begins here, and read past its last character.

        Where the text is valid JSON, the pieces are the text. Else it is repaired: control characters in strings
        and backslashes of wrong escapes are escaped, words that JSON does not have become null, true, false,
        numbers or strings, commas are added and left out, and where nothing helps, all that is open is closed.
        """
        nest = _Nest()
        while True:
            yield from self.ahead()
            if self.at == len(self.text):
                if self.is_cut:
                    self.is_open = True
                    return
                break
            if (blank := BLANK.match(self.text, self.at)) is not None:
                self.at = blank.end()
                yield nest.blank(blank[0])
                continue
            letter = self.text[self.at]
            if (said := nest.punctuation(letter)) is not None:
                self.at += 1
                yield said
            elif letter == '"' and nest.expected not in ("comma", "colon"):
                self.at += 1
                yield nest.before() + letter
                yield from self._string()
                nest.expected = "colon" if nest.expected in ("key", "first key") else "comma"
            elif nest.takes_value and _WORD.match(self.text, self.at):
                word = yield from self._word()
                yield nest.before() + word
                nest.expected = "comma"
            elif not nest.lacks_comma(letter):
                break
            if not nest.closers:
                return
        yield nest.end()

    def _string(self) -> Iterator[str | None]:
        """Yield the pieces of a string after its opening quote, up to its closing one."""
        while True:
            yield from self.ahead()
            if self.at == len(self.text):
                if not self.is_cut:
                    yield '"'
                return
            if (run := _RUN.match(self.text, self.at)) is not None:
                self.at = run.end()
                yield run[0]
                continue
            letter = self.text[self.at]
            if letter == "\\":
                yield from self.ahead(_LONGEST_ESCAPE)
                escape = _ESCAPE.match(self.text, self.at)
                quote = self.text.startswith("\\'", self.at)
                self.at = self.at + 1 + quote if escape is None else escape.end()
                yield escape[0] if escape is not None else "'" if quote else "\\\\"
                continue
            self.at += 1
            yield letter if letter == '"' else json.dumps(letter)[1:-1]
            if letter == '"':
                return

    def _word(self) -> Generator[None, None, str]:
        """Read a word outside of strings; returns it as JSON."""
        word = ""
        while True:
            yield from self.ahead()
            found = _WORD.match(self.text, self.at)
            if found is None:
                break
            word, self.at = word + found[0], found.end()
        if word in _KNOWN or _NUMBER.fullmatch(word) or (self.is_cut and self.at == len(self.text)):
            return word
        return _WORDS.get(word) or _as_number(word)

    def whole(self) -> Generator[None, None, str]:
        """Read the JSON value that begins here; returns it as one text."""
        return "".join((yield from gathered(self.value())))

    def ahead(self, size: int = 1) -> Iterator[None]:
        """Yield None until so many characters are there, or the text has ended."""
        while len(self.text) - self.at < size and not self.is_ended:
            yield None

    def skip_blanks(self) -> Iterator[None]:
        while True:
            yield from self.ahead()
            if (blank := BLANK.match(self.text, self.at)) is None:
                return
            self.at = blank.end()

    def next_is(self, letter: str) -> bool:
        return self.text.startswith(letter, self.at)


def gathered(pieces: Iterable[str | None]) -> Generator[None, None, list[str]]:
    """Return the pieces of what is read; yields None where that needs more text."""
    found = list[str]()
    for piece in pieces:
        if piece is None:
            yield None
        else:
            found.append(piece)
    return found


class _Nest:
    """What is open in a value, and what JSON expects next.

    That is ``value``, ``key``, ``colon`` or ``comma``; ``first`` and ``first key`` where a bracket may close, too.
    """

    def __init__(self) -> None:
        self.closers, self.expected = list[str](), "value"  # the innermost bracket is the last
        self._held = ""  # a comma and the blanks after it, until it is known what follows

    @property
    def takes_value(self) -> bool:
        return self.expected in ("value", "first")

    def blank(self, text: str) -> str:
        """Return what to write for blanks: nothing outside of brackets or, until more follows, after a comma."""
        if self._held:
            self._held += text
            return ""
        return text if self.closers else ""

    def before(self) -> str:
        """Return what to write before a value or a key: the comma that was held back, if one was."""
        held, self._held = self._held, ""
        return held

    def punctuation(self, letter: str) -> str | None:
        """Return what to write for a bracket, a comma or a colon; None where it does not fit."""
        if self.closers and letter == self.closers[-1] and (self._held or self.expected[:5] in ("comma", "first")):
            self.expected, self._held = "comma", ""
            return self.closers.pop()
        if letter == "," and self.expected == "comma":
            self._comma()
            return ""
        if letter == ":" and self.expected == "colon":
            self.expected = "value"
            return letter
        if letter in "{[" and self.takes_value:
            self.closers.append("}" if letter == "{" else "]")
            self.expected = "first key" if letter == "{" else "first"
            return self.before() + letter
        return None

    def lacks_comma(self, letter: str) -> bool:
        """Return whether another key or value begins here without a comma; one is then held for it."""
        if self.expected != "comma" or not (letter == '"' or (self.closers[-1] == "]" and _ITEM.match(letter))):
            return False
        self._comma()
        return True

    def end(self) -> str:
        """Return what closes all that is open."""
        lacking = {"colon": ": null", "value": "null" if self.closers and not self._held else ""}
        return lacking.get(self.expected, "") + "".join(reversed(self.closers))

    def _comma(self) -> None:
        self.expected, self._held = "key" if self.closers[-1] == "}" else "value", ","


def nearest(text: str) -> str:
    """Return a text that is a JSON value, repaired where needed; else, the whole text as a JSON string."""
    reader = JsonReader(text, is_ended=True)
    found = "".join(piece for piece in reader.value() if piece)
    left = text[reader.at :].strip()
    return json.dumps(text, ensure_ascii=False) if left or not found else found


def readable(written: str) -> str:
    r"""Return JSON with \uXXXX replaced by the characters: escapes take more tokens, and models copy them."""
    return _WRITTEN_OUT.sub(_unescaped, written)


def _unescaped(found: re.Match[str]) -> str:
    whole = found[0]
    if whole[1] != "u" or int(whole[2:6], 16) < 0x80:
        return whole
    letter = json.loads(f'"{whole}"')
    return whole if any("\ud800" <= one <= "\udfff" for one in letter) else letter


def _as_number(word: str) -> str:
    """Return a word such as +5 or .5 as a number of JSON; one that is no number as a string."""
    try:
        value = float(word)
    except ValueError:
        return json.dumps(word, ensure_ascii=False)
    if not isfinite(value):
        return "null"
    return str(int(word)) if re.fullmatch(r"[+-]?[0-9]+", word) else repr(value)
