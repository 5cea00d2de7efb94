"""Which of several sources to ask, or all of them together, by the tokens per second that they give.

Trying a source by itself costs as much as it is worse, and tokens per step vary as much as they are many: sixteen
steps tell a rate to a quarter. A step in which all draft is worth more. It shows what each would have given at the
same place, for every source is told which of its own nodes were taken. So all draft for a while; then the one that
gives most by this credit does, if it beats them all; and what it really gives corrects the credit. A source that
was not asked (it is disabled, or rests) is told nothing; steps in which nobody was asked tell nothing at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

ALL = 0
"""The arm of all sources together; arm ``1 + i`` is source ``i`` alone."""

FIRST, TRIAL = 96, 32
"""Steps in which all draft: before anything is known, and now and then."""
DWELL = 64
"""Steps from one choice to the next."""
_GAP, _LONGEST_GAP = 128, 4096  # steps from trial to trial, doubling: in a trial all together cost 3 to 6 % more
_TIE = 0.05  # arms no further apart are alike, by what credit can tell: that in use stays, else the first named
_KEEP = 0.999  # of the credit, per step that told of the arm
_LEAST = 16.0  # steps of credit, of all kinds of text, below which an arm is unknown
_REAL_KEEP = 0.9997  # of what an arm gave by itself, per step of it
_POOLED = 256.0  # steps that other kinds of text count for
_BIAS = 0.05  # standard deviation of the logarithm of credit over what comes
_MOST = 3.0  # of the same logarithm; more is a clock that jumped
_SPREAD = 2.0  # of the tokens of a step over their mean, twice what it is: neighbours are of the same text


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
