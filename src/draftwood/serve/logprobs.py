"""Log-probabilities of a text's tokens, and which bytes of the text belong to each token."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from draftwood.api.text import Piece, Spelling, StopStrings, TextBuilder, as_text
from draftwood.api.thoughts import ThoughtReader
from draftwood.contracts import Sampling, Scores
from draftwood.verify.sampling import distribution

_NEVER = -9999.0  # the API's log-probability of a token that cannot come
_PLAIN = Sampling(temperature=1.0)


class TokenLogprobs(NamedTuple):
    """Log-probabilities at one place of a text: of the token that came, and of the best ones, best first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]


class _Row(NamedTuple):
    """Log-probabilities of all tokens at one place, float64[vocab], and the best ones' ids, best first."""

    logs: NDArray[np.float64]
    best: NDArray[np.int64]

    @classmethod
    def of(cls, scores: Any, sampling: Sampling, most: int) -> _Row:
        with np.errstate(divide="ignore"):
            logs = np.log(distribution(scores, sampling))
        best = np.argpartition(-logs, min(most, len(logs) - 1))[:most]
        return cls(logs, best[np.argsort(-logs[best], kind="stable")])

    def told(self, token: int) -> TokenLogprobs:
        top = tuple((int(i), max(_NEVER, float(self.logs[i]))) for i in self.best)
        return TokenLogprobs(token, max(_NEVER, float(self.logs[token])), top)


class LogprobRecorder:
    """Keeps the log-probabilities of the tokens that come, and of the ``most`` best ones at each place.

    It must be the last of a text's logits processors, since it sees the scores that they return.
    They are those of the distribution that tokens are drawn from; of a greedy text, those at temperature 1.
    Those of a ``prompt`` are the model's own, at temperature 1 and without cuts. Once the prompt is read,
    ``of_prompt`` has them of each token but the first, which nothing predicts.
    """

    def __init__(self, sampling: Sampling, most: int, prompt: Sequence[int] = ()) -> None:
        self._sampling, self._most, self._prompt = _PLAIN if sampling.greedy else sampling, most, prompt
        self.of_prompt: list[TokenLogprobs] = []
        self._next: _Row | None = None  # of the place whose token is not known yet
        self._told: list[TokenLogprobs] = []
        self._lock = Lock()  # one thread writes the text, another one tells the client

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        numbers = row.detach().float().cpu().numpy() if hasattr(row, "detach") else np.asarray(row, np.float32)
        found = _Row.of(numbers, self._sampling, self._most)
        with self._lock:
            if self._next is not None:
                self._told.append(self._next.told(int(prefix[-1])))
            self._next = found
        return row

    def show(self, positions: NDArray[np.intp], scores: Scores) -> None:
        """Take in the scores of some tokens of the prompt, as `Watch.show`."""
        for row, place in enumerate(positions.tolist()):
            if place + 1 < len(self._prompt):
                found = _Row.of(scores.numpy(scores.raw(row)), _PLAIN, self._most)
                self.of_prompt.append(found.told(self._prompt[place + 1]))

    def between(self, answer: Sequence[int], first: int, end: int) -> list[TokenLogprobs]:
        """Return the log-probabilities of the tokens from ``first`` to before ``end`` of an answer."""
        with self._lock:
            found = self._told[first:end]
            if first + len(found) < end and self._next is not None:  # the last token, after which nothing came
                found.append(self._next.told(answer[first + len(found)]))
        return found


class SpelledToken(NamedTuple):
    """A token in a text: its own text, its bytes within that text, and how many characters stand before them.

    The bytes of all tokens, joined, are the text's. Special tokens, and what a stop string cut off, have none.
    """

    text: str
    bytes: bytes
    offset: int


class SpelledText(TextBuilder):
    """A `TextBuilder` that lists the ``tokens`` whose text is complete, in order; at the end all of them.

    The first ``shown`` of them have no bytes in text that is held back.
    """

    def __init__(
        self, spelling: Spelling, stop: StopStrings | None = None, thoughts: ThoughtReader | None = None
    ) -> None:
        super().__init__(spelling, stop, thoughts=thoughts)
        self._spelled_by = spelling
        self._group: list[int] = []  # tokens since the last one that completed a character
        self._told = self._characters = 0
        self._surplus = 0  # bytes of text that were shown, beyond those of the tokens that are shown whole
        self.tokens: list[SpelledToken] = []
        self.shown = 0

    def push(self, token: int, source: str) -> list[Piece]:
        self._group.append(token)
        return self._tell(super().push(token, source))

    def finish(self, source: str) -> list[Piece]:
        return self._tell(super().finish(source))

    def _is_text(self, thoughts: ThoughtReader, token: int, source: str) -> bool:
        self._group, own = self._group[:-1], self._group[-1:]  # a mark is of the token that it stands for
        is_text = super()._is_text(thoughts, token, source)
        self._group += own
        if not is_text:
            self._divide()
        return is_text

    def _take(self, now: str, held: int, source: str) -> None:
        super()._take(now, held, source)
        if not held:
            self._divide()

    def _divide(self) -> None:
        """Divide the text that came since the last time among the tokens that came."""
        text, self._told = self.text[self._told :], len(self.text)
        pieces = [b"" if self._spelled_by.special(t) else self._spelled_by.piece(t) for t in self._group]
        for token, own in zip(self._group, _divided(pieces, text), strict=True):
            self._append(token, own)
        self._group = []

    def _append(self, token: int, own: bytes) -> None:
        name = self._spelled_by.name(token)
        if own and name == f" {as_text(own)}":  # the blank before a text that some vocabularies add
            name = as_text(own)
        self.tokens.append(SpelledToken(name, own, self._characters))
        self._characters += _characters(own)

    def _cut(self, end: int) -> None:
        super()._cut(end)
        left = len(_encoded(self.text))
        for place, token in enumerate(self.tokens):
            self.tokens[place] = token._replace(bytes=token.bytes[:left])
            left -= len(self.tokens[place].bytes)

    def _tell(self, pieces: list[Piece]) -> list[Piece]:
        self._surplus += sum(len(_encoded(piece.text)) for piece in pieces)
        while self.shown < len(self.tokens) and len(self.tokens[self.shown].bytes) <= self._surplus:
            self._surplus -= len(self.tokens[self.shown].bytes)
            self.shown += 1
        return pieces


def spelled_prompt(spelling: Spelling, ids: Sequence[int], text: str | None) -> tuple[str, list[SpelledToken]]:
    """Return a prompt's text (the given one if its tokens spell that) and its tokens, special ones by name."""
    pieces = [spelling.piece(token) for token in ids]
    own = None if text is None else _aligned(spelling, ids, pieces, text.encode())
    if text is None or own is None:
        known = b"".join([piece or b"" for piece in pieces])
        text = spelling.full(ids) if None in pieces else known.decode(errors="replace")
        own = _divided(pieces, text)
    found, place = list[SpelledToken](), 0
    for token, some in zip(ids, own, strict=True):
        found.append(SpelledToken(spelling.name(token), some, place))
        place += _characters(some)
    return text, found


def _aligned(
    spelling: Spelling, ids: Sequence[int], pieces: Sequence[bytes | None], whole: bytes
) -> list[bytes] | None:
    """Return each token's bytes of a text, none of what the tokenizer added; None if they do not spell it."""
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


def _divided(pieces: Sequence[bytes | None], text: str) -> list[bytes]:
    """Divide a text's bytes among its tokens, whose own bytes are ``pieces``, None where unknown.

    What the text lacks of these at its beginning (a blank), its first tokens lack. If they do not spell the text,
    the last token gets all of it.
    """
    whole, found = _encoded(text), [b""] * len(pieces)
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
    """Return for each byte its part of a text: itself; of an incomplete character U+FFFD, then nothing."""
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


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")  # marks of thoughts are halves of characters


def _characters(some: bytes) -> int:
    """Return how many characters begin in these bytes of a text."""
    return sum(byte & 0xC0 != 0x80 for byte in some)
