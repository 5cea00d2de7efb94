"""Where a text ends: the one place that knows about end tokens, stop strings and the limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from draftwood.errors import UsageError
from draftwood.files.foreign import whole

Decode = Callable[[Sequence[int]], str]
Criterion = Callable[[Sequence[int]], bool]
"""Told all emitted tokens after each one, in order; True ends the text there."""


class StopStrings:
    """Finds stop strings in the text of the tokens, however the tokens cut it.

    Parameters
    ----------
    strings
        What ends the text.
    decode
        Token ids to text.

    Raises
    ------
    UsageError
        If a stop string is empty, or holds half a character.
    """

    def __init__(self, strings: Sequence[str], decode: Decode) -> None:
        if not all(strings):
            raise UsageError("a stop string is empty: leave it out or write some text")
        for string in strings:
            whole(string, "a stop string", UsageError)
        self.strings, self._decode = tuple(strings), decode
        # A token may be a single byte of the text; special tokens may be none at all.
        self._window = 4 * max(len(s.encode()) for s in strings) + 8

    def found(self, ids: Sequence[int]) -> bool:
        """True if the end of the generated ``ids`` holds a stop string."""
        text = self._decode(ids[-self._window :])
        return any(s in text for s in self.strings)

    def cut(self, text: str) -> str:
        """Return ``text`` up to the first stop string."""
        ends = [text.find(s) for s in self.strings]
        return text[: min((e for e in ends if e >= 0), default=len(text))]

    def held_back(self, text: str) -> int:
        """How many characters at the end of ``text`` may turn out to begin a stop string."""
        longest = 0
        for stop in self.strings:
            for n in range(min(len(stop) - 1, len(text)), longest, -1):
                if text.endswith(stop[:n]):
                    longest = n
                    break
        return longest


class Stopping:
    """Told every emitted token in order; answers why the text ends with it, or None.

    Parameters
    ----------
    limit
        Most tokens to emit, at least 1.
    end_ids
        End-of-sequence tokens.
    stop
        Stop strings, or None.
    criteria
        What else may end the text; every one is asked after every token, as transformers does.
    seconds
        From now on, after which the next token is the last; None: as long as it takes.
    """

    def __init__(
        self,
        limit: int,
        end_ids: frozenset[int] = frozenset(),
        stop: StopStrings | None = None,
        criteria: Sequence[Criterion] = (),
        seconds: float | None = None,
    ) -> None:
        self.limit, self.end_ids, self.stop, self.criteria = limit, end_ids, stop, tuple(criteria)
        self._until = None if seconds is None else monotonic() + seconds
        self.emitted: list[int] = []

    @property
    def remaining(self) -> int:
        """Tokens that may still be emitted."""
        return self.limit - len(self.emitted)

    def __call__(self, token: int) -> str | None:
        emitted = self.emitted
        emitted.append(token)
        # All are asked: they may count their calls.
        met = self.criteria and any([criterion(emitted) for criterion in self.criteria])
        if token in self.end_ids:
            return "eos"
        if met or (self.stop is not None and self.stop.found(emitted)):
            return "stop"
        late = self._until is not None and monotonic() >= self._until
        return "length" if late or len(emitted) >= self.limit else None
