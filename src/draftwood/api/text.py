"""Turns tokens into text as they arrive: no half characters, no stop strings, each piece with its source."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import takewhile
from typing import Any

from draftwood.api.thoughts import ThoughtReader
from draftwood.decoding.request import Request
from draftwood.engines.tokens.file_tokenizer import FileTokenizer, decoder
from draftwood.errors import UsageError
from draftwood.files.foreign import whole

_BYTE = re.compile("<0x([0-9A-Fa-f]{2})>")
_REPLACED = "\ufffd"
_MOST_READ = 8
"""Most tokens to decode again while the last character is incomplete; its bytes lie in the last four."""
_MOST_HELD = 64
"""Most bytes of whole characters to hold back where a wrong byte behind them would make each of them U+FFFD."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text and its source: the name of the drafter that proposed its tokens, or ``"model"``.

    ``prompt`` is the index of the prompt that it answers, in a list of prompts.
    """

    text: str
    source: str
    prompt: int = 0


class StopStrings:
    """Finds stop strings in the text of the tokens, which ``decode`` gives, however the tokens cut it.

    It is a `draftwood.decoding.request.Criterion`. Raises `UsageError` for a stop string that is empty or holds
    half a character.
    """

    def __init__(self, strings: Sequence[str], decode: Callable[[Sequence[int]], str]) -> None:
        if not all(strings):
            raise UsageError("a stop string is empty: leave it out or write some text")
        for string in strings:
            whole(string, "a stop string", UsageError)
        self.strings, self._decode = tuple(strings), decode
        # In tokens: each may be a single byte of the text, and some spell nothing.
        self._window = 4 * max(len(s.encode()) for s in strings) + 8

    def __call__(self, ids: Sequence[int]) -> bool:
        """True if the end of the generated ``ids`` holds a stop string."""
        text = self._decode(ids[-self._window :])
        return any(s in text for s in self.strings)

    def cut(self, text: str) -> str:
        """Return ``text`` up to the first stop string."""
        ends = [text.find(s) for s in self.strings]
        return text[: min((e for e in ends if e >= 0), default=len(text))]

    def first(self, text: str) -> str | None:
        """Return the stop string at which ``text`` is cut; None where it has none."""
        rest = text[len(self.cut(text)) :]
        return next((one for one in self.strings if rest.startswith(one)), None)

    def held_back(self, text: str) -> int:
        """How many characters at the end of ``text`` may turn out to begin a stop string."""
        longest = 0
        for stop in self.strings:
            for n in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:n]):
                    longest = n
                    break
        return longest


def stop_strings_of(request: Request) -> StopStrings | None:
    """Return the stop strings among what ends a text."""
    return next((one for one in request.criteria if isinstance(one, StopStrings)), None)


class TextBuilder:
    """Turns tokens into pieces whose texts, joined, are the text of all tokens up to a stop string.

    Text that may be the beginning of a stop string is held back, as is what the tokens to come may still change:
    the bytes of a character, tokens of a byte each in a row, and everything where a decoder changes the text as a
    whole. Special tokens are no part of the text; a stop string may hold their names. ``thoughts`` puts what the
    model thinks between tags.
    """

    def __init__(
        self, spelling: Spelling, stop: StopStrings | None = None, prompt: int = 0,
        thoughts: ThoughtReader | None = None,
    ) -> None:  # fmt: skip
        self._spelling, self._stop, self._prompt = spelling, stop, prompt
        self._thoughts = None if thoughts is None or spelling.only_whole else thoughts
        self._ids: list[int] = []  # without special tokens
        # ids[prefix:] are decoded again with the next token; ids[:read] end with a whole character; of the text of
        # ids[prefix:], `done` characters were taken.
        self._prefix = self._read = self._done = 0
        self._source = ""  # of the last of them
        self._left = ""  # text that was not shown yet, with the names of special tokens if there are stop strings
        self._marks: list[tuple[int, str | None]] = []  # (end, source) within it, no source for special tokens
        self.text = ""
        self.stopped_by: str | None = None  # the stop string that has ended it
        self.is_thought = False  # the token that comes: stop strings are not looked for in it

    def push(self, token: int, source: str) -> list[Piece]:
        """Add a token; returns what can be shown now."""
        if self._thoughts is not None and not self._is_text(self._thoughts, token, source):
            pass
        elif name := self._spelling.special(token):
            self._add(name if self._stop else "", None, self._prefix, self._read, self._done)
        elif self._spelling.only_whole:
            self._ids.append(token)
        elif self._spells(token):
            if self._run(len(self._ids)) and not self._spelling.byte(token):
                self._take(self._unread(), 0, self._source)  # the bytes are all there
            self._ids.append(token)
            now = self._unread()
            self._take(now, self._unfinished(now), source)
            self._source = source
        if self._stop is None or self.is_thought:
            return self._show(len(self._left))
        before_stop = len(self._stop.cut(self._left))
        return self._show(min(before_stop, len(self._left) - self._stop.held_back(self._left)))

    def finish(self, source: str) -> list[Piece]:
        """Return what was held back, cut before a stop string, once no more tokens come.

        Safe after an interrupt in `push`, since each change of state is one statement, which no signal splits.
        """
        self._take(self._unread(), 0, source)
        if self._stop is not None and not self.is_thought:
            self.stopped_by = self._stop.first(self._left)
            self._cut(len(self._stop.cut(self._left)))
        return self._show(len(self._left))

    def _is_text(self, thoughts: ThoughtReader, token: int, source: str) -> bool:
        """Whether a token is text; adds what stands before it, and the name of one that is none."""
        mark, is_text = thoughts.read(token)
        if mark or not is_text:
            if self._read < len(self._ids):
                self._take(self._unread(), 0, self._source)  # no bytes of a character lie behind the mark
                self._ids, self._prefix, self._read, self._done = [], 0, 0, 0
            name = self._spelling.full([token]) if self._stop and not is_text else ""
            self._add(name, None, self._prefix, self._read, self._done)
            self._add(mark, source, self._prefix, self._read, self._done)
        return is_text

    def _unread(self) -> str:
        """Return the text of the tokens that are decoded again with the next one."""
        return self._spelling(self._ids[self._prefix :])

    def _spells(self, token: int) -> bool:
        """Whether a token can change the text: what spells nothing completes no character."""
        if self._spelling.steps:
            return self._spelling.byte(token) is not None
        piece = self._spelling.piece(token)
        return self._read == len(self._ids) or piece is None or len(piece) > 0

    def _unfinished(self, now: str) -> int:
        """Return how many characters at the end of ``now`` may still change."""
        if bytes_ := self._run(len(self._ids)):
            before = self._ids[self._prefix : len(self._ids) - len(bytes_)]
            return len(now) - len(self._spelling(before)) if _is_open(bytes_) else 0
        if not now.endswith(_REPLACED):
            return 0
        run = len(now) - len(now.rstrip(_REPLACED))
        pieces = [self._spelling.piece(token) for token in self._ids[self._prefix :]]
        known = b"".join([piece for piece in pieces if piece is not None])
        if None in pieces:
            return min(run, 3)
        reader = getincrementaldecoder("utf-8")("replace")
        text = reader.decode(known)
        begun = len(reader.getstate()[0])  # bytes of a character that may be completed
        as_one = len(text) - len(text.rstrip(_REPLACED)) + 1 == run  # some tokenizers replace each byte by itself
        return min(begun, 1 if as_one else run)

    def _take(self, now: str, held: int, source: str) -> None:
        """Add what is new in ``now``, the text of the tokens from ``prefix`` on, but for ``held`` characters."""
        prefix, read, context = self._prefix, self._read, now
        if not held:
            in_broken_run = now.endswith(_REPLACED) and self._run(read) and self._run(read + 1)
            begin = prefix if in_broken_run else max(prefix, read)  # tokens of the last character stay as context
            read = len(self._ids)
        else:
            is_long = len(self._ids) - prefix > _MOST_READ and not self._run(read + 1)
            begin = len(self._ids) - _MOST_READ // 2 if is_long else prefix
        # Without any text before them, some decoders would take the next tokens for the first of a text.
        if begin > prefix and (later := self._spelling(self._ids[begin:])):
            prefix, context = begin, later
            held = min(held, len(context))
        end = max(self._done, len(now) - held)
        done = end if context is now else len(context) - held
        self._add(now[self._done : end], source, prefix, read, done)

    def _run(self, end: int) -> bytes:
        """Return the bytes of the tokens before ``end`` that are decoded together, a byte each."""
        return self._spelling.run(self._ids[self._prefix : end])

    def _add(self, new: str, source: str | None, prefix: int, read: int, done: int) -> None:
        left, text = self._left + new, self.text if source is None else self.text + new
        marks = [*self._marks, (len(left), source)] if new else self._marks
        state = text, left, marks, prefix, read, done
        self.text, self._left, self._marks, self._prefix, self._read, self._done = state

    def _cut(self, end: int) -> None:
        """Drop what was not shown from ``end`` on."""
        dropped, begin, marks = 0, 0, list[tuple[int, str | None]]()
        for until, source in self._marks:
            dropped += 0 if source is None else max(0, until - max(begin, end))
            if begin < end:
                marks.append((min(until, end), source))
            begin = until
        self.text, self._left, self._marks = self.text[: len(self.text) - dropped], self._left[:end], marks

    def _show(self, end: int) -> list[Piece]:
        pieces = []
        while end > 0 and self._marks:
            until, source = self._marks[0]
            reached, rest = min(until, end), self._marks[1:] if until <= end else self._marks
            if source is not None:
                pieces.append(Piece(self._left[:reached], source, self._prompt))
            end -= reached
            self._left, self._marks = self._left[reached:], [(until - reached, source) for until, source in rest]
        return pieces


class Spelling:
    """Spells the tokens of a tokenizer. Called with ids it returns their text without special tokens, except those
    that are ``kept``; ``full`` returns it with the names of all of them."""

    def __init__(self, tokenizer: Any, kept: Collection[int] = ()) -> None:
        self._tokenizer, self._kept = tokenizer, kept
        self._shown, self.full = decoder(tokenizer), decoder(tokenizer, special=True)
        self._pieces: dict[int, bytes | None] = {}
        self._names: dict[int, str] = {}
        self._bytes: dict[int, bytes | None] = {}  # of tokens that stand for one byte

    @cached_property
    def steps(self) -> list[str]:
        """The kinds of steps of a decoder of the package tokenizers; none of another."""
        decoder = getattr(self._tokenizer, "decoder", {})
        if decoder is None:
            return ["Join"]  # by blanks
        state: Any = getattr(decoder, "__getstate__", dict)()
        return _kinds(json.loads(state)) if isinstance(state, bytes) else []

    @cached_property
    def only_whole(self) -> bool:
        """Whether the decoder changes a text as a whole, so that no beginning of it is certain before its end."""
        joined = next((place for place, kind in enumerate(self.steps) if kind in ("Fuse", "ByteLevel")), None)
        return joined is not None and not {"Fuse", "Strip"}.issuperset(self.steps[joined + 1 :])

    def run(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of tokens at the end of ``ids`` that the decoder takes together, as one text or, with a
        wrong byte anywhere, as a U+FFFD for each."""
        if "ByteFallback" not in self.steps:
            return b""
        return b"".join(byte for byte in takewhile(bool, map(self.byte, reversed(ids))) if byte)[::-1]

    def byte(self, token: int) -> bytes | None:
        """Return the byte that a token stands for, none for other tokens; None for an unknown id."""
        if token not in self._bytes:
            name = self._tokenizer.convert_ids_to_tokens([token])[0]
            byte = _BYTE.fullmatch(name or "")
            self._bytes[token] = bytes.fromhex(byte[1]) if byte else None if name is None else b""
        return self._bytes[token]

    def __call__(self, ids: Sequence[int]) -> str:
        if self._kept:
            return self.full([token for token in ids if not self.special(token)])
        return self._shown(ids)

    def special(self, token: int) -> str:
        """Return the name of a special token, which texts leave out; an empty string for others."""
        if token not in self._names:
            is_text = token in self._kept or bool(self._shown([token]))
            self._names[token] = "" if is_text else self.full([token])
        return self._names[token]

    def piece(self, token: int) -> bytes | None:
        """Return the bytes of a token, the same at every place; of a special one its name; None if unknown."""
        if token not in self._pieces:
            self._pieces[token] = self._found(token)
        return self._pieces[token]

    def name(self, token: int) -> str:
        """Return a token as text; bytes that are not UTF-8 as OpenAI writes them: ``bytes:\\xe6\\x9c``."""
        piece = self.piece(token)
        return self.full([token]) if piece is None else as_text(piece)

    def _found(self, token: int) -> bytes | None:
        if isinstance(self._tokenizer, FileTokenizer):
            return self._tokenizer.piece(token)
        text, names = self.full([token]), getattr(self._tokenizer, "convert_ids_to_tokens", None)
        name = None if names is None else names(token)
        if not isinstance(name, str) or self.special(token):
            return None if name is None and _REPLACED in text else text.encode(errors="replace")
        if (not self.steps or "ByteFallback" in self.steps) and (byte := _BYTE.fullmatch(name)):
            return bytes.fromhex(byte[1])
        if _REPLACED in text and _REPLACED not in name:  # letters that stand for bytes of a character
            found = bytes(map(_letters().get, name)) if set(name) <= set(_letters()) else b""  # type: ignore[arg-type]
            return found if found.decode(errors="replace") == text else None
        behind = self.full([token, token])[len(text) :]  # decoders drop the first blank, or put one between tokens
        return (behind or text).encode(errors="replace")


def _kinds(decoder: Mapping[str, Any]) -> list[str]:
    """Return the kinds of steps of a decoder, in order."""
    if "decoders" not in decoder:
        return [decoder["type"]]
    return [kind for one in decoder["decoders"] for kind in _kinds(one)]


def _is_open(run: bytes) -> bool:
    """Whether bytes to come may still turn tokens of these into something else than the text that they are now."""
    reader = getincrementaldecoder("utf-8")()
    try:
        reader.decode(run)
    except UnicodeDecodeError:  # each byte is a U+FFFD, whatever comes
        return False
    return bool(reader.getstate()[0]) or len(run) <= _MOST_HELD


def as_text(piece: bytes) -> str:
    """Return bytes as text; those that are not UTF-8 as OpenAI writes them."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in piece)


@cache
def _letters() -> dict[str, int]:
    from draftwood.engines.tokens.encoders import byte_letters

    return {letter: byte for byte, letter in byte_letters().items()}
