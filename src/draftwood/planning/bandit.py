"""Chooses one of several drafters, or all of them together, by the tokens per second that they bring.

Tokens per step vary so much that sixteen steps with one drafter give its rate to within a quarter only. Steps in
which all drafters are asked tell more: each is told which of its own nodes were accepted, so the step shows what
every one of them would have brought at the same place (its credit). So all are asked for a while; then the
drafter with the best credit is asked alone if it beats asking all, and its real rate corrects the credit. A
drafter that was not asked (disabled, or in its cooldown) gets no credit from that step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

ALL = 0
"""The choice of all drafters together; choice ``1 + i`` is drafter ``i`` alone."""

FIRST, TRIAL = 96, 32
"""Steps in which all are asked: at the beginning, and in later trials."""
DWELL = 64
"""Steps from one choice to the next."""
_GAP, _LONGEST_GAP = 128, 4096  # steps between trials, doubling: asking all costs 3 to 6 % more
_TIE = 0.05  # smaller differences are ignored: the choice in use stays, else the first named is taken
_KEEP = 0.999  # weight of earlier credit, per step that adds to it
_LEAST = 16.0  # steps of credit, over all kinds of text, below which the rate counts as unknown
_REAL_KEEP = 0.9997  # weight of earlier steps of a choice in its real rate
_POOLED = 256.0  # other kinds of text together count as so many steps
_BIAS = 0.05  # standard deviation of the logarithm of credited over real rate
_MOST = 3.0  # limit of that logarithm; more comes from a clock that jumped
_SPREAD = 2.0  # relative spread of tokens per step, doubled because neighbouring steps are alike


Told = Sequence[tuple[float, float] | None]
"""Tokens and seconds of a step as they would have been with each arm; None: its source was not asked."""


class Credit:
    """Tokens and seconds of steps in which all drafted, as they would have been with each arm.

    Parameters
    ----------
    arms
        How many.

    Attributes
    ----------
    tokens, seconds, steps
        Per arm, of the steps that told of it; later steps count more.
    """

    def __init__(self, arms: int) -> None:
        self.tokens, self.seconds, self.steps = [0.0] * arms, [0.0] * arms, [0.0] * arms

    def add(self, told: Told) -> None:
        """Take in one step, of each arm that it tells of."""
        for arm, one in enumerate(told):
            if one is not None:
                self.tokens[arm] = _KEEP * self.tokens[arm] + one[0]
                self.seconds[arm] = _KEEP * self.seconds[arm] + one[1]
                self.steps[arm] = _KEEP * self.steps[arm] + 1


@dataclass(slots=True)
class _Real:
    """What an arm gave: tokens, in how many seconds and steps."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0


@dataclass(slots=True)
class _Kind:
    """Where the choice for one kind of text stands: the arm in use, and for how many steps more.

    ``choice`` is None until something was chosen; ``since`` counts the steps since all drafted.
    """

    credit: Credit
    real: list[_Real]
    left: int
    arm: int = ALL
    choice: int | None = None
    since: int = 0
    gap: int = _GAP


@dataclass(slots=True)
class Bandit:
    """Chooses among the arms of one set of sources, for each kind of text apart.

    Attributes
    ----------
    sources
        How many; arms are one more.
    """

    sources: int
    _pool: Credit = field(init=False)
    _kinds: dict[str, _Kind] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pool = Credit(1 + self.sources)

    def arm(self, kind: str) -> int:
        """Return the arm to use in the next step of this kind of text; the same until a step was learnt."""
        found = self._kind(kind)
        if found.left <= 0:
            self._choose(found)
        return found.arm

    def together(self, kind: str, told: Told) -> None:
        """Take in a step in which all drafted that the planner asked; of the arm `ALL` it always tells."""
        found, real = self._kind(kind), told[ALL]
        if real is None:
            return
        self.alone(kind, ALL, *real)
        found.credit.add(told)
        self._pool.add(told)
        found.since = 0

    def alone(self, kind: str, arm: int, tokens: float, seconds: float) -> None:
        """Take in a step of this arm that tells nothing of the others."""
        found = self._kind(kind)
        real = found.real[arm]
        real.tokens = _REAL_KEEP * real.tokens + tokens
        real.seconds = _REAL_KEEP * real.seconds + seconds
        real.steps = _REAL_KEEP * real.steps + 1
        found.left -= 1
        found.since += 1

    def idle(self, kind: str) -> None:
        """Take in a step in which nobody was asked: time goes by for the source in use, and nothing is learnt."""
        found = self._kind(kind)
        found.left -= found.arm != ALL  # a trial waits for steps that tell
        found.since += 1

    def _kind(self, kind: str) -> _Kind:
        if kind not in self._kinds:  # it begins with what is good for other kinds, and has a trial soon
            arms = 1 + self.sources
            left = 0 if self._known else FIRST
            self._kinds[kind] = _Kind(Credit(arms), [_Real() for _ in range(arms)], left)
        return self._kinds[kind]

    @property
    def _known(self) -> bool:
        return self._pool.steps[ALL] >= FIRST / 2

    def _choose(self, kind: _Kind) -> None:
        if kind.since >= kind.gap:  # nobody knows what the others would have given lately
            kind.arm, kind.left = ALL, TRIAL
            kind.gap = min(_LONGEST_GAP, 2 * kind.gap)
            return
        if not self._known:  # no step told of what the others would have given
            kind.left = FIRST
            return
        values = [self._value(kind, arm) for arm in range(1 + self.sources)]
        good = (1 - _TIE) * max(values)
        if kind.choice is None or values[kind.choice] < good:
            kind.choice = next((arm for arm in range(1, len(values)) if values[arm] >= good), ALL)
        kind.arm, kind.left = kind.choice, DWELL

    def _rate(self, kind: _Kind, arm: int) -> float:
        """Tokens per second by credit; other kinds of text help out as long as little is known of this one."""
        own, pool = kind.credit, self._pool
        if pool.steps[arm] < _LEAST:
            return 0.0
        weight = _POOLED / pool.steps[arm]
        seconds = own.seconds[arm] + weight * pool.seconds[arm]
        return (own.tokens[arm] + weight * pool.tokens[arm]) / seconds if seconds > 0 else 0.0

    def _value(self, kind: _Kind, arm: int) -> float:
        """Credit, corrected by what came: a little where that may be luck, wholly where it cannot."""
        rate, real = self._rate(kind, arm), kind.real[arm]
        if not (rate > 0 and real.tokens > 0 and real.seconds > 0):
            return rate
        found = math.log(real.tokens) - math.log(real.seconds) - math.log(rate)
        found = max(-_MOST, min(_MOST, found))
        noise = _SPREAD**2 * (1 / real.steps + 1 / (1 + kind.credit.steps[arm]))
        gain = max(_BIAS**2 / (_BIAS**2 + noise), 1 - 4 * noise / found**2 if found else 0.0)
        return rate * math.exp(gain * found)
