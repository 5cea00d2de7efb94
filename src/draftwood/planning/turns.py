"""Chooses among drafters that own models by what each really gives, in turns of a few steps.

Where all of them draft at once, as `draftwood.planning.bandit` has it, each takes time and spoils the others'
prices; so each is tried alone. The rule is discounted UCB: Garivier and Moulines, "On Upper-Confidence Bound
Policies for Switching Bandit Problems", ALT 2011, arXiv 0805.3415, with a bonus that is a share of the rate.
"""

from __future__ import annotations

from dataclasses import dataclass, field

TURN = 12  # steps for which an arm stays in use
_KEEP = 0.998  # weight of earlier steps, also of arms that are not in use, so that they are tried again
_BONUS = 0.5
"""Exploration bonus after one step, as a share of the arm's rate; it falls with the square root of the steps."""
_FIRST = 8  # steps of any kind of text before which an arm has not been tried
_LEAST = 0.25  # steps that are assumed in that: an arm half as fast as another one is not tried again
_POOLED = 24.0  # the other kinds of text together count as this many steps at most
_CAP = 4.0  # a step counts as at most this many times the arm's usual seconds


@dataclass(slots=True)
class _Tally:
    """Tokens, seconds and number of steps of an arm, older ones counting less."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0

    def fade(self) -> None:
        self.tokens, self.seconds, self.steps = _KEEP * self.tokens, _KEEP * self.seconds, _KEEP * self.steps

    def add(self, tokens: float, seconds: float) -> None:
        if self.steps:
            seconds = min(seconds, _CAP * self.seconds / self.steps)
        self.tokens, self.seconds, self.steps = self.tokens + tokens, self.seconds + seconds, self.steps + 1


@dataclass(slots=True)
class _Kind:
    """The choice for one kind of text: the arm in use, and for how many more steps."""

    tallies: list[_Tally]
    arm: int = 0
    left: int = 0


@dataclass(slots=True)
class Turns:
    """Chooses one of ``arms`` for each kind of text. The caller locks it."""

    arms: int
    _pool: list[_Tally] = field(init=False)  # by arm, over all kinds of text
    _tried: list[int] = field(init=False)  # by arm, steps
    _kinds: dict[str, _Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._tried = [0] * self.arms
        self._pool = [_Tally() for _ in range(self.arms)]

    def arm(self, kind: str) -> int:
        """Return the arm to use in the next step of this kind of text."""
        found = self._kind(kind)
        if found.left <= 0:
            values = [self._value(found, arm) for arm in range(self.arms)]
            best = max(values)
            if values[found.arm] < best:  # of equals the one in use stays
                found.arm = values.index(best)
            found.left = TURN
        return found.arm

    def learn(self, kind: str, arm: int, tokens: float, seconds: float) -> None:
        """Record a step with this arm."""
        found = self._kind(kind)
        for tally in (*found.tallies, *self._pool):
            tally.fade()
        found.tallies[arm].add(tokens, seconds)
        self._pool[arm].add(tokens, seconds)
        self._tried[arm] += 1
        found.left -= arm == found.arm

    def skip(self, kind: str, arm: int) -> None:
        """Count a step that says nothing of the arm, as the first one behind another arm."""
        found = self._kind(kind)
        found.left -= arm == found.arm

    def rates(self, kind: str) -> list[float]:
        """Return tokens per second of each arm; 0 where it was not tried."""
        found = self._kind(kind)
        return [self._estimate(found, arm)[0] for arm in range(self.arms)]

    def _kind(self, kind: str) -> _Kind:
        if kind not in self._kinds:
            self._kinds[kind] = _Kind([_Tally() for _ in range(self.arms)])
        return self._kinds[kind]

    def _estimate(self, kind: _Kind, arm: int) -> tuple[float, float]:
        """Return the arm's rate and the steps that it rests on; the less is known of this kind, the more the
        others count."""
        own, pool = kind.tallies[arm], self._pool[arm]
        weight = min(1.0, _POOLED / pool.steps) if pool.steps > 0 else 0.0
        tokens, seconds = own.tokens + weight * pool.tokens, own.seconds + weight * pool.seconds
        return (tokens / seconds if seconds > 0 else 0.0), own.steps + weight * pool.steps

    def _value(self, kind: _Kind, arm: int) -> float:
        if self._tried[arm] < _FIRST:
            return float("inf")
        rate, steps = self._estimate(kind, arm)
        return rate * (1 + _BONUS / max(_LEAST, steps) ** 0.5)
