"""An A/B test that runs while decoding: alternates between two variants and keeps the one with more tokens/s."""

from __future__ import annotations

from dataclasses import dataclass, field

BLOCK = 24  # steps of one block; a block uses one variant throughout

_FIRST, _LONGEST = 2, 32  # blocks before the slower variant is tried again: doubled each time, at most 32
_KEEP = 0.6  # weight of a variant's earlier blocks in its average


@dataclass(slots=True)
class ABTest:
    """Compares the tokens per second of decoding with a feature (``on``) and without it, in blocks of steps."""

    on: bool = True
    _rates: dict[bool, float] = field(default_factory=dict)  # tokens per second of each variant
    _tokens: int = 0
    _seconds: float = 0.0
    _steps: int = 0
    _blocks: int = 0
    _wait: int = _FIRST

    def learn(self, tokens: int, seconds: float) -> None:
        """Record a step that used the variant ``on``; ignored if its time is not positive and finite."""
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
        if self.on != better:  # the slower variant was being retried, or the one in use has become the slower
            self.on, self._blocks = better, 0
            self._wait = min(_LONGEST, 2 * self._wait)
        elif self._blocks >= self._wait:
            self.on, self._blocks = not better, 0

    def why(self) -> str:
        """Return the result so far as text, for ``draftwood explain``."""
        if len(self._rates) < 2:
            return "being tried"
        return f"{self._rates[True]:.1f} tokens/s with, {self._rates[False]:.1f} without"
