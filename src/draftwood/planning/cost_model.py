"""What a pass takes now: a measured curve, or a guess, corrected by every pass that was made.

The correction is a factor per width, kept in logarithms at powers of two: a random walk over the octaves that
starts anywhere, followed by a Kalman filter. A machine that slows down moves all widths alike, which the prior
thinks likely; a width that has become dear by itself moves its neighbours, which it thinks possible. A pass
that is far off is clipped, and the next ones count for more; one that confirms it (still off to the same side, by
half as much or more) is a change of the machine, after which every width is looked at again.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from draftwood.planning.cost_curve import CostCurve

Doubles = NDArray[np.float64]

GUESS = CostCurve.of({n: 0.025 * (1 + 0.25 * (n - 1)) for n in (1, 1024)})
"""Where nothing was measured: only its shape counts, and that little."""

_OCTAVES = 11  # knots at 1, 2, 4, .. 1024 tokens
_PACE, _SHAPE = 0.3, 0.06
"""Standard deviations (in logarithms) of a measured curve: as a whole, and per octave."""
_GUESSED_PACE, _GUESSED_SHAPE = 3.0, 0.3
_PACE_DRIFT, _SHAPE_DRIFT = 0.01, 0.002  # the same, per pass
_FORGET = 0.9999  # bounds what drifts unseen for hours: to 0.7 as a whole, 0.14 per octave
_NOISE = 0.05  # of one pass
_CLIP = 3.0  # standard deviations that one pass may be off before it is clipped
_CALM = 4  # of passes that took what was expected every so many is learnt from
_STALE = 32  # passes after which a width should be seen again
GRANT = 0.25
"""Plain passes that a measured curve may spend at once on being checked; a guess has eight times as much."""
_LONGEST = 3600.0  # seconds of a pass; anything longer is a clock that jumped


class CostModel:
    """Seconds of one pass over n tokens, by everything that is known at this moment.

    Parameters
    ----------
    curve
        As measured by ``draftwood profile``; None: a guess that the first passes correct.

    Attributes
    ----------
    passes
        Passes learnt from.
    purse
        Plain passes that may be spent on finding out what other widths cost.
    """

    def __init__(self, curve: CostCurve | None = None) -> None:
        self.measured = curve is not None
        self._curve = curve if curve is not None else GUESS
        pace, shape = (_PACE, _SHAPE) if self.measured else (_GUESSED_PACE, _GUESSED_SHAPE)
        self._log = np.zeros(_OCTAVES)
        self._cov = pace**2 + shape**2 * _WALK
        self._doubted = 0.0  # surprise of the last pass, if it was clipped
        self._at, self._base = -1, np.empty(0)  # context of the table, in pieces of 32 tokens, and the curve there
        self._table: Doubles | None = None
        self._seen = [0 if self.measured else -_STALE] * len(_SIZES)  # number of the last pass so wide
        self.passes = 0
        self.exploration_budget = GRANT if self.measured else 8 * GRANT

    def seconds(self, n: int, context: int) -> float:
        """Return the seconds expected of a pass over ``n`` tokens, the root included, at this context length."""
        return self._curve.seconds(n, context) * math.exp(float(_hat(n) @ self._log))

    def table(self, widest: int, context: int) -> Doubles:
        """Return the same for each width from 0 to ``widest``, float64[widest + 1]; not to be written to.

        The context is rounded down to 32 tokens. What is believed of widths that were seldom seen may make a
        narrower pass dearer than a wider one; here it never is.
        """
        if context >> 5 != self._at or len(self._base) <= widest:
            self._at = context >> 5
            self._base = self._curve.many(np.arange(max(128, 2 * widest)), context & ~31)
            self._table = None
        if self._table is None:
            table = self._base * np.exp(_hats(len(self._base) - 1) @ self._log)
            self._table = np.minimum.accumulate(table[::-1])[::-1]
        return self._table[: widest + 1]

    def deviation(self, n: int) -> float:
        """Return the standard deviation of the logarithm of `seconds` at this width, noise left out."""
        hat = _hat(n)
        return math.sqrt(max(0.0, float(hat @ self._cov @ hat)))

    def learn(self, n: int, context: int, seconds: float) -> None:
        """Take in that a pass over ``n`` tokens took so long; times that no pass can take are ignored."""
        if not 0 < seconds < _LONGEST or n < 1:
            return
        hat = _hat(n)
        surprise = math.log(seconds / self._curve.seconds(n, context)) - float(hat @ self._log)
        self.passes += 1
        self._seen[size(n)] = self.passes
        if self.passes > _STALE and self.passes % _CALM and abs(surprise) < 2 * _NOISE and not self._doubted:
            return  # as expected: microseconds saved
        reach = self._cov @ hat
        variance = float(hat @ reach) + _NOISE**2
        bound = _CLIP * math.sqrt(variance)
        clipped = min(bound, max(-bound, surprise))
        self._log += reach * (clipped / variance)
        self._cov -= np.outer(reach, reach / variance)
        self._cov *= _FORGET
        self._cov += _DRIFT
        if self._doubted * surprise > self._doubted**2 / 2:
            self._change()
        self._doubted = 0.0
        self._table = None
        if clipped != surprise:
            self._doubt(n, hat, surprise)

    def _doubt(self, n: int, hat: Doubles, surprise: float) -> None:
        """Believe the next passes more: it was an interrupt, the machine, widths from here on, or this one."""
        self._doubted = surprise
        self._cov += surprise**2 * (1 + np.diag(hat) + _UPWARDS[octave(n)])
        self._seen[size(n)] -= _STALE

    def _change(self) -> None:
        """Two passes tell the same: widths may have changed by themselves, and are worth looking at."""
        self._cov += _GUESSED_SHAPE**2 * _WALK
        self._seen = [self.passes - _STALE] * len(_SIZES)
        self.exploration_budget = max(self.exploration_budget, 4 * GRANT)

    def stale(self, chosen: int, least: int, widest: int) -> list[int]:
        """Return widths beside the chosen one that no recent pass had: half an octave up or down, the least."""
        at, found = size(chosen), []
        for width in (_SIZES[min(at + 1, len(_SIZES) - 1)], _SIZES[max(at - 1, 0)], least):
            k = size(width) if least <= width <= widest else at
            if k != at and self.passes - self._seen[k] >= _STALE:
                found.append(width)
        return found

    def widened(self) -> CostModel:
        """Return a copy that is less sure of it, for passes of another kind."""
        twin = CostModel(self._curve if self.measured else None)
        twin._log = self._log.copy()
        twin._cov = self._cov + _PACE**2 + _SHAPE**2 * _WALK
        return twin

    def points(self, context: int) -> dict[int, float]:
        """Return seconds at the knots, as believed now."""
        return {1 << k: self.seconds(1 << k, context) for k in range(_OCTAVES)}


def size(n: int) -> int:
    """Which of the widths 1, 2, 3, 4, 6, 8, 12, .. is next to a width from below."""
    return bisect_right(_SIZES, n) - 1


def octave(n: int) -> int:
    """The knot next to a width from below."""
    return min(_OCTAVES - 1, n.bit_length() - 1)


def _hat(n: int) -> Doubles:
    return _hats(max(64, n))[n]


_HATS: list[Doubles] = []


def _hats(widest: int) -> Doubles:
    """What each knot says about each width, float64[widest + 1, knots]: straight lines over log2(n)."""
    if not _HATS or len(_HATS[0]) <= widest:
        places = np.minimum(np.log2(np.maximum(np.arange(max(128, 2 * widest) + 1), 1)), _OCTAVES - 1)
        _HATS[:] = [np.maximum(0, 1 - np.abs(places[:, None] - np.arange(_OCTAVES)))]
    return _HATS[0][: widest + 1]


_SIZES = [1, *(w << k for k in range(_OCTAVES) for w in (2, 3))]
_WALK = np.minimum.outer(np.arange(_OCTAVES), np.arange(_OCTAVES)).astype(np.float64)
_UPWARDS = [np.outer(up, up) for up in np.tri(_OCTAVES).T]  # knots from the k-th on, moving together
_DRIFT = _PACE_DRIFT**2 + _SHAPE_DRIFT**2 * _WALK
