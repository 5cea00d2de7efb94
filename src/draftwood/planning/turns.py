"""Chooses among ways to draft by what each really gives, in turns of a few steps.

The rule is discounted UCB: Garivier and Moulines, "On Upper-Confidence Bound Policies for Switching Bandit
Problems", ALT 2011, arXiv 0805.3415, with a bonus that is a share of the rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from draftwood.planning import KEEP_LONG

TURN = 12  # steps for which an arm stays in use
_BONUS = 0.5
"""Exploration bonus after one step, as a share of the arm's rate; it falls with the square root of the steps."""
_FIRST = 8  # steps before which an arm counts as not tried
_LEAST = 0.25  # steps that are assumed in that: an arm half as fast as another one is not tried again
_CAP = 4.0  # a step counts as at most this many times the arm's usual seconds


@dataclass(slots=True)
class _Tally:
    """Tokens, seconds and number of steps of an arm, older ones counting less."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0
    tried: int = 0  # all steps

    def fade(self) -> None:
        self.tokens *= KEEP_LONG
        self.seconds *= KEEP_LONG
        self.steps *= KEEP_LONG

    def add(self, tokens: float, seconds: float) -> None:
        if self.steps:
            seconds = min(seconds, _CAP * self.seconds / self.steps)
        self.tokens, self.seconds, self.steps = self.tokens + tokens, self.seconds + seconds, self.steps + 1
        self.tried += 1

    @property
    def rate(self) -> float:
        """Tokens per second; 0 where nothing is known."""
        return self.tokens / self.seconds if self.seconds > 0 else 0.0

    @property
    def value(self) -> float:
        if self.tried < _FIRST:
            return float("inf")
        return self.rate * (1 + _BONUS / max(_LEAST, self.steps) ** 0.5)


@dataclass(slots=True)
class Turns:
    """Chooses one of ``arms``. The caller locks it."""

    arms: int
    _tallies: list[_Tally] = field(init=False)
    _arm: int = 0  # in use, for so many more steps
    _left: int = 0

    def __post_init__(self) -> None:
        self._tallies = [_Tally() for _ in range(self.arms)]

    def arm(self) -> int:
        """Return the arm to use in the next step."""
        if self._left <= 0:
            values = [tally.value for tally in self._tallies]
            best = max(values)
            if values[self._arm] < best:  # of equals the one in use stays
                self._arm = values.index(best)
            self._left = TURN
        return self._arm

    def learn(self, arm: int, tokens: float, seconds: float) -> None:
        """Record a step with this arm."""
        for tally in self._tallies:
            tally.fade()
        self._tallies[arm].add(tokens, seconds)
        self._left -= arm == self._arm

    def skip(self, arm: int) -> None:
        """Count a step that says nothing of the arm, as the first one after another arm."""
        self._left -= arm == self._arm
