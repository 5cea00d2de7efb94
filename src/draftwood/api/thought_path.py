"""Where an answer is after each of its tokens: within a thought, how far into it, or behind it.

Budgets, grammars and stop strings ask. Each answer has a path of its own; what it says of a place depends on the
tokens before it alone, so that drafts change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.api.text import Spelling, StopStrings
from draftwood.api.thoughts import CLOSING, OPENING, thought_reader
from draftwood.engines.tokens.file_tokenizer import single_token

_TAIL = 16  # tokens at the end of a prompt that hold the tag that a template may have written there


class AnswerPlace(NamedTuple):
    """What is known behind some tokens of an answer."""

    reading: Any  # the state of what reads the tokens
    thinks: bool  # a thought is open
    tokens: int = 0  # of thoughts so far
    closing: int = 0  # how many tokens of the forced end of a thought are still to come
    begins: int | None = 0  # tokens before the answer; None within a thought and its tags


class Reading(Protocol):
    """Reads tokens; its states do not change."""

    first: Any  # behind the prompt
    end: str  # what ends a thought, as text

    def after(self, state: Any, token: int) -> Any: ...
    def thinks(self, state: Any) -> bool: ...
    def says(self, state: Any) -> bool: ...
    def opening(self, state: Any) -> Iterable[int]:
        """Return tokens that would open a thought here."""
        ...


class TextThoughts:
    """Thoughts whose tags are text, at the beginning of an answer; the states are (thinks, may open one, text)."""

    end = f"\n{CLOSING}"

    def __init__(self, tokenizer: Any, prompt: Sequence[int]) -> None:
        self._spelling, self._opening = Spelling(tokenizer), single_token(tokenizer, OPENING)
        opened = opens_thought(self._spelling, prompt)
        self.first = (opened, True, b"")

    def after(self, state: tuple[bool, bool, bytes], token: int) -> tuple[bool, bool, bytes]:
        thinks, may_open, text = state
        if not thinks and not may_open:
            return state
        piece = self._spelling.piece(token)
        text += self._spelling.full([token]).encode(errors="replace") if piece is None else piece
        while True:
            if thinks:
                _, closed, rest = text.partition(CLOSING.encode())
                if not closed:
                    return True, True, text[1 - len(CLOSING) :]
                thinks, text = False, rest
            begin, tag = text.lstrip(), OPENING.encode()
            if not begin.startswith(tag):
                may_open = tag.startswith(begin)
                return False, may_open, begin if may_open else b""
            thinks, text = True, begin[len(tag) :]

    def thinks(self, state: tuple[bool, bool, bytes]) -> bool:
        return state[0]

    def says(self, state: tuple[bool, bool, bytes]) -> bool:
        return not state[0]

    def opening(self, state: tuple[bool, bool, bytes]) -> Iterable[int]:
        _, may_open, _ = state
        return [] if self._opening is None or not may_open else [self._opening]


def opens_thought(spelling: Spelling, prompt: Sequence[int]) -> bool:
    """Whether a prompt ends with the text that opens a thought."""
    return spelling.full(prompt[-_TAIL:]).rstrip().endswith(OPENING)


def _reading(tokenizer: Any, prompt: Sequence[int]) -> Reading:
    return thought_reader(tokenizer, prompt) or TextThoughts(tokenizer, prompt)


class ThoughtPath:
    """The places of one answer to a ``prompt``; ``budget``: most tokens of its thoughts, None for no limit."""

    def __init__(self, tokenizer: Any, prompt: Sequence[int], budget: int | None = None) -> None:
        self._reading = _reading(tokenizer, prompt)
        self._budget = budget
        self._end = [int(i) for i in tokenizer(self._reading.end, add_special_tokens=False)["input_ids"]]
        thinks = self._reading.thinks(self._reading.first)
        closing = len(self._end) if thinks and budget == 0 else 0
        self.first = AnswerPlace(self._reading.first, thinks, closing=closing, begins=None if thinks else 0)
        self._places, self._path = [self.first], list[int]()

    def at(self, answer: Sequence[int]) -> AnswerPlace:
        """Return the place behind these tokens; fast near the place that was asked about last."""
        common = len(self._path)
        if answer[:common] != self._path:
            pairs = zip(self._path, answer, strict=False)
            common = next((n for n, (ours, theirs) in enumerate(pairs) if ours != theirs), len(answer))
        del self._path[common:], self._places[common + 1 :]
        for token in answer[common:]:
            self._path.append(token)
            self._places.append(self._next(self._places[-1], token))
        return self._places[-1]

    def begins(self, answer: Sequence[int]) -> int | None:
        """Return how many of these tokens stand before what the model says; None where it does not speak yet."""
        return self.at(answer).begins

    def opening(self, answer: Sequence[int]) -> Collection[int]:
        """Return the tokens that may open a thought where the answer could begin."""
        place = self.at(answer)
        return () if self._is_spent(place) else list(self._reading.opening(place.reading))

    def is_thought(self, answer: Sequence[int]) -> bool:
        """Whether the last of these tokens belongs to a thought, as part of its tags, too."""
        begins = self.at(answer).begins
        return begins is None or begins == len(answer)

    def forced(self, place: AnswerPlace) -> int | None:
        """Return the token that must come next to end a thought, None where others may."""
        return self._end[-place.closing] if place.closing else None

    def banned(self, place: AnswerPlace) -> Iterable[int]:
        """Return the tokens that would open a thought for which no token is left."""
        return self._reading.opening(place.reading) if self._is_spent(place) and not place.thinks else ()

    def _is_spent(self, place: AnswerPlace) -> bool:
        return self._budget is not None and place.tokens >= self._budget

    def _next(self, before: AnswerPlace, token: int) -> AnswerPlace:
        reading = self._reading.after(before.reading, token)
        thinks = self._reading.thinks(reading)
        tokens, closing = before.tokens + (before.thinks and thinks), max(0, before.closing - 1)
        if thinks and not before.closing and self._budget is not None and tokens >= self._budget:
            closing = len(self._end)
        begins = before.begins
        if closing or not self._reading.says(reading):
            begins = None
        elif begins is None:
            begins = len(self._path)
        return AnswerPlace(reading, thinks, tokens, closing, begins)


class ThoughtBudget:
    """A processor that ends a thought once its tokens are spent; rows are float32[vocab] of NumPy or torch.

    It must come behind the others, since it undoes what they forbid. ``start``: tokens of the prompt.
    """

    def __init__(self, path: ThoughtPath, start: int) -> None:
        self._path, self._start = path, start

    def __call__(self, prefix: NDArray[np.int64], row: Any) -> Any:
        place = self._path.at(prefix[self._start :].tolist())
        token = self._path.forced(place)
        if token is not None:
            row[:] = -np.inf
            row[token] = 0.0
        for token in self._path.banned(place):
            row[token] = -np.inf
        return row


class AnswerStops(StopStrings):
    """Stop strings of a chat: they are looked for in what the model says, not in its thoughts.

    The tag that closes a thought, as a stop string, ends the text with the thought, whatever tokens mark it.
    """

    def __init__(self, stop: StopStrings, path: ThoughtPath) -> None:
        vars(self).update(vars(stop))
        self._path = path

    def __call__(self, ids: Sequence[int]) -> bool:
        begins = self._path.begins(ids)
        if begins is None:
            return False
        if begins == len(ids):  # the thought has just ended
            return CLOSING in self.strings
        return super().__call__(ids[max(begins, len(ids) - self._window) :])
