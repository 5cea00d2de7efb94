"""Chooses one of several drafters, or all of them together, by tokens per second.

While all are asked, each one's own accepted nodes show how many tokens it would have brought alone (its credit): a
step with one drafter would tell little of the others. Then the drafter with the best credit is asked alone, if it
beats asking all, and its real rate corrects its credit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

ALL = 0  # the arm "all drafters together"; arm ``1 + i`` is drafter ``i`` alone

FIRST, ROUND = 96, 32  # steps in which all drafters are asked: at the beginning, and in each later comparison
DWELL = 64  # steps from one choice to the next
_GAP, _LONGEST_GAP = 128, 4096  # steps between comparisons: doubled each time, as asking all costs 3 to 6 % more
_TIE = 0.05  # smaller relative differences are ignored: the arm in use stays, else the first drafter is taken
_KEEP = 0.999  # weight of earlier credit, per step that adds to it
_LEAST = 16.0  # steps of credit, over all kinds of text, below which an arm's rate counts as unknown
_REAL_KEEP = 0.9997  # weight of earlier steps in an arm's real rate
_POOLED = 256.0  # the other kinds of text together count as this many steps
_BIAS = 0.05  # standard deviation of the logarithm of credited over real rate
_MOST = 3.0  # limit of that logarithm; more comes from a clock that jumped
_SPREAD = 2.0  # relative spread of tokens per step, doubled because neighbouring steps are alike

Credits = Sequence[tuple[float, float] | None]
"""Tokens and seconds of a step as they would have been with each arm; None if its drafter was not asked."""


@dataclass(slots=True)
class _Tally:
    """Tokens, seconds and number of steps, older steps counting less."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0

    def add(self, keep: float, tokens: float, seconds: float) -> None:
        self.tokens = keep * self.tokens + tokens
        self.seconds = keep * self.seconds + seconds
        self.steps = keep * self.steps + 1


def _tallies(arms: int) -> list[_Tally]:
    return [_Tally() for _ in range(arms)]


@dataclass(slots=True)
class _Kind:
    """The state of the choice for one kind of text."""

    credit: list[_Tally]  # by arm: what it would have given in the steps in which all were asked
    real: list[_Tally]  # by arm: what it gave in the steps in which it was used
    left: int  # steps for which the arm stays in use
    arm: int = ALL
    choice: int | None = None  # the arm that was chosen last
    since: int = 0  # steps since all drafters were asked
    gap: int = _GAP


@dataclass(slots=True)
class Bandit:
    """Chooses among the arms of one set of drafters, separately for each kind of text."""

    drafters: int
    _pool: list[_Tally] = field(init=False)  # credit by arm, over all kinds of text
    _kinds: dict[str, _Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pool = _tallies(1 + self.drafters)

    def arm(self, kind: str) -> int:
        """Return the arm to use in the next step of this kind of text; the same until a step was learnt."""
        found = self._kind(kind)
        if found.left <= 0:
            self._choose(found)
        return found.arm

    def learn_all(self, kind: str, credits_: Credits) -> None:
        """Record a step in which all drafters were asked, unless the entry of the arm `ALL` is None."""
        found, real = self._kind(kind), credits_[ALL]
        if real is None:
            return
        self.learn_one(kind, ALL, *real)
        for own, pooled, one in zip(found.credit, self._pool, credits_, strict=True):
            if one is not None:
                own.add(_KEEP, *one)
                pooled.add(_KEEP, *one)
        found.since = 0

    def learn_one(self, kind: str, arm: int, tokens: float, seconds: float) -> None:
        """Record a step with this arm that tells nothing of the others."""
        found = self._kind(kind)
        found.real[arm].add(_REAL_KEEP, tokens, seconds)
        found.left -= 1
        found.since += 1

    def idle(self, kind: str) -> None:
        """Record a step in which no drafter was asked; a comparison of all waits for steps that tell something."""
        found = self._kind(kind)
        found.left -= found.arm != ALL
        found.since += 1

    def _kind(self, kind: str) -> _Kind:
        if kind not in self._kinds:  # it begins with what is good for other kinds, and has a comparison soon
            arms = 1 + self.drafters
            self._kinds[kind] = _Kind(_tallies(arms), _tallies(arms), left=0 if self._known else FIRST)
        return self._kinds[kind]

    @property
    def _known(self) -> bool:
        return self._pool[ALL].steps >= FIRST / 2

    def _choose(self, kind: _Kind) -> None:
        if kind.since >= kind.gap:
            kind.arm, kind.left = ALL, ROUND
            kind.gap = min(_LONGEST_GAP, 2 * kind.gap)
            return
        if not self._known:  # too few steps told what each arm would have given
            kind.left = FIRST
            return
        values = [self._value(kind, arm) for arm in range(1 + self.drafters)]
        good = (1 - _TIE) * max(values)
        if kind.choice is None or values[kind.choice] < good:
            kind.choice = next((arm for arm in range(1, len(values)) if values[arm] >= good), ALL)
        kind.arm, kind.left = kind.choice, DWELL

    def _rate(self, kind: _Kind, arm: int) -> float:
        """Return tokens per second by credit; the less is known of this kind, the more the others count."""
        own, pool = kind.credit[arm], self._pool[arm]
        if pool.steps < _LEAST:
            return 0.0
        weight = _POOLED / pool.steps
        seconds = own.seconds + weight * pool.seconds
        return (own.tokens + weight * pool.tokens) / seconds if seconds > 0 else 0.0

    def _value(self, kind: _Kind, arm: int) -> float:
        """Return the credited rate, moved towards the real one the more surely the difference is no chance."""
        rate, real = self._rate(kind, arm), kind.real[arm]
        if not (rate > 0 and real.tokens > 0 and real.seconds > 0):
            return rate
        found = math.log(real.tokens) - math.log(real.seconds) - math.log(rate)
        found = max(-_MOST, min(_MOST, found))
        noise = _SPREAD**2 * (1 / real.steps + 1 / (1 + kind.credit[arm].steps))
        gain = max(_BIAS**2 / (_BIAS**2 + noise), 1 - 4 * noise / found**2 if found else 0.0)
        return rate * math.exp(gain * found)
