"""An A/B test while decoding: blocks of steps with and without something, compared by tokens per second."""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK = 24
"""Steps of one block, all with or all without."""

_FIRST, _LONGEST = (
    2,
    32,
)  # blocks of the better variant until the other is tried again, doubled each time
_KEEP = 0.6  # weight of a variant's earlier blocks when a new block of it ends


@dataclass(slots=True)
class ABTest:
    """Compares decoding with and without something; the worse variant is retried ever more rarely.

    Attributes
    ----------
    on
        Whether the variant with it is in use now.
    """

    on: bool = True
    _rates: dict[bool, float] = field(default_factory=dict)
    _tokens: int = 0
    _seconds: float = 0.0
    _steps: int = 0
    _blocks: int = 0
    _wait: int = _FIRST

    def learn(self, tokens: int, seconds: float) -> None:
        """Take in the tokens and seconds of a step; one with an impossible time is ignored."""
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
        if self.on != better:  # a retry of the worse variant ends, or the variant in use has become the worse
            self.on, self._blocks = better, 0
            self._wait = min(_LONGEST, 2 * self._wait)
        elif self._blocks >= self._wait:
            self.on, self._blocks = not better, 0

    def why(self) -> str:
        """Return the result so far, for people."""
        if len(self._rates) < 2:
            return "being tried"
        return f"{self._rates[True]:.1f} tokens/s with, {self._rates[False]:.1f} without"
