"""Whether something pays whose effect comes later: done and left out in turns, by the tokens per second."""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK = 24
"""Steps in which nothing is changed."""

_FIRST, _LONGEST = 2, 32  # blocks of the better way before the other one is tried again: doubled while it stays so
_KEEP = 0.6  # of a way's rate when a new block of it ends


@dataclass(slots=True)
class ABTest:
    """Two ways, with and without; the better one is kept and the other tried more and more rarely.

    Attributes
    ----------
    on
        Whether to do it now.
    """

    on: bool = True
    _rates: dict[bool, float] = field(default_factory=dict)
    _tokens: int = 0
    _seconds: float = 0.0
    _steps: int = 0
    _blocks: int = 0
    _wait: int = _FIRST

    def learn(self, tokens: int, seconds: float) -> None:
        """Take in what a step emitted and took; a step without a time of its own tells nothing."""
        if not 0 < seconds < float("inf"):
            return
        self._tokens += tokens
        self._seconds += seconds
        self._steps += 1
        if self._steps >= BLOCK:
            self._end_block()

    def _end_block(self) -> None:
        rate, before = self._tokens / self._seconds, self._rates.get(self.on)
        self._rates[self.on] = rate if before is None else _KEEP * before + (1 - _KEEP) * rate
        self._tokens, self._seconds, self._steps = 0, 0.0, 0
        self._blocks += 1
        if len(self._rates) < 2:
            self.on = not self.on
            return
        better = self._rates[True] >= self._rates[False]
        if self.on != better:  # the other way was tried, or the one at hand has become the worse
            self.on, self._blocks = better, 0
            self._wait = min(_LONGEST, 2 * self._wait)
        elif self._blocks >= self._wait:
            self.on, self._blocks = not better, 0

    def why(self) -> str:
        """Say what was found."""
        if len(self._rates) < 2:
            return "being tried"
        return f"{self._rates[True]:.1f} tokens/s with, {self._rates[False]:.1f} without"
