"""The cost model: how many seconds a pass takes now, a measured or guessed curve corrected by every pass.

A Kalman filter follows the correction, a logarithm at each power of two of the width (tokens of a pass). An
outlier is clipped and raises the weight of the next passes; if the next one is off to the same side by at least
half as much, the machine has changed, and all widths are measured again.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.planning import KEEP_SOME, LONGEST, SELDOM, SHORTEST
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.switch_cost import SwitchCost

Doubles = NDArray[np.float64]

GUESS = CostCurve.of({n: 0.025 * (1 + 0.25 * (n - 1)) for n in (1, 1024)})
"""The curve where nothing was measured; the first passes correct it."""

_OCTAVES = 11  # knots at 1, 2, 4, .. 1024 tokens
_PACE, _SHAPE = 0.3, 0.06
"""Standard deviations, in logarithms of seconds, of a measured curve: as a whole, and per octave."""
_GUESSED_PACE, _GUESSED_SHAPE = 3.0, 0.3
_PACE_DRIFT, _SHAPE_DRIFT = 0.01, 0.002  # how much they grow per pass
_FORGET = 0.9999  # bounds that growth: to 0.7 as a whole, 0.14 per octave
_NOISE = 0.05  # standard deviation of one pass
_MOST_NOISE = 0.15  # on a machine that other programs use, by the passes so far
_CLIP = 3.0  # standard deviations that one pass may be off before it is clipped
_UNNOTICED = 0.002  # the table of all widths is made anew where one may have changed by more
_STALE = 32  # passes after which the cost of a width should be measured again
GRANT = 1.25
"""First exploration budget of a guess, in plain passes: 2 % of an answer of 64 tokens. A measured curve has 0."""
_SETTLED = 256  # passes after which a machine that has changed again is worth another such budget
_SLACK = 1.5
"""How many times longer than its tokens one by one a pass may be believed to take."""
_MOST_LOG = 100.0  # of what is restored, so that its exponential is a number
_EXPLORE = 0.003  # share of the decoding time that may be spent on passes of other widths, to measure their cost
_MOST_SAVED = 2.0  # plain passes: the exploration budget grows up to this


class CostModel:
    """Seconds of one pass over n tokens, as now believed; starts from a measured ``curve`` or a ``guess``."""

    def __init__(self, curve: CostCurve | None = None, guess: CostCurve = GUESS) -> None:
        self.measured = curve is not None
        self._curve = curve if curve is not None else guess
        pace, shape = (_PACE, _SHAPE) if self.measured else (_GUESSED_PACE, _GUESSED_SHAPE)
        self._log = np.zeros(_OCTAVES)
        self._cov = pace**2 + shape**2 * _WALK
        self._noise = _NOISE  # average of how far passes were off
        self._doubted = 0.0  # logarithm of measured over expected seconds of the last pass, if it was clipped
        self._at, self._base = -1, np.empty(0)  # the table's context in units of 32 tokens, and the curve there
        self._table: Doubles | None = None
        self._moved = 0.0  # at most so far has any width's logarithm moved since the table was made
        self._times: list[float] | None = None  # the same numbers
        self._seen = [0 if self.measured else -_STALE] * len(_SIZES)  # number of the last pass of each width
        self.passes = 0  # how many were recorded
        # How much time may be spent on passes of other widths to measure their cost, in plain passes.
        self.exploration_budget = 0.0 if self.measured else GRANT
        self._granted = -_SETTLED if self.measured else 0  # number of the pass at which it was last raised
        self.switch = SwitchCost()

    def seconds(self, n: int, context: int) -> float:
        """Return the expected seconds of a pass over ``n`` tokens (the root included) at this context length."""
        return self._curve.seconds(n, context) * math.exp(self._correction(n))

    @property
    def knows_drafts(self) -> bool:
        """Whether the cost of a pass over more than one token was measured."""
        return self.measured or max(self._seen[1:]) > 0

    def table(self, widest: int, context: int) -> Doubles:
        """Return the expected seconds of each width to 0.2 %, float64[widest + 1], never falling and kept: do not
        write to it.
        """
        at = context >> 5 if len(self._curve.contexts) > 1 else 0  # else it is the same at every length
        if at != self._at or len(self._base) <= widest:
            self._at = at
            self._base = self._curve.many(np.arange(max(128, 2 * widest)), context & ~31)
            self._table = None
        if self._table is None:
            hats = _hats(len(self._base) - 1)
            self._table = np.minimum.accumulate((self._base * np.exp(hats @ self._log))[::-1])[::-1]
            self._times = None
            self._moved = 0.0
        return self._table[: widest + 1]

    def times(self, least: int, widest: int, context: int) -> list[float]:
        """Return the expected seconds of passes over ``least`` to ``widest`` tokens."""
        self.table(widest, context)
        if self._times is None:
            assert self._table is not None
            self._times = self._table.tolist()
        return self._times[least : widest + 1]

    def learn(self, n: int, context: int, seconds: float, passes: int = 1) -> None:
        """Record the seconds of a pass over ``n`` tokens, the latest of so many; times that no pass can take are
        ignored.
        """
        if not SHORTEST < seconds < LONGEST or n < 1:
            return
        self.passes += passes - 1
        if n == 1 and self._is_calm(passes):
            self.passes += 1  # plain passes are so many that one in four tells enough
            self._seen[0] = self.passes
            return
        surprise = math.log(seconds / self._curve.seconds(n, context)) - self._correction(n)
        self.passes += 1
        self._seen[size(n)] = self.passes
        off = abs(surprise)
        noise, self._noise = self._noise, KEEP_SOME * self._noise + (1 - KEEP_SOME) * min(off, _MOST_NOISE)
        if off < 2 * max(_NOISE, noise) and self._is_calm(passes):
            return  # it would change next to nothing
        hat = _hat(n)
        reach = self._cov @ hat
        variance = float(hat @ reach) + _NOISE**2
        bound = _CLIP * math.sqrt(variance)
        clipped = min(bound, max(-bound, surprise))
        self._log += reach * (clipped / variance)
        self._moved += abs(clipped) / variance * max(map(abs, reach.tolist()))
        self._cov -= np.outer(reach, reach / variance)
        self._cov *= _FORGET
        self._cov += _DRIFT
        if self._doubted * surprise > self._doubted**2 / 2:
            self._change()
        self._doubted = 0.0
        if self._moved > _UNNOTICED:
            self._table = None
        if clipped != surprise:
            self._doubt(n, hat, surprise)

    def explored(
        self, base: int, tokens: Sequence[float], times: Sequence[float], best: int, charge: float
    ) -> tuple[int, float]:
        """Return ``best`` or, if the exploration budget allows, a number of candidates whose cost was not measured
        lately; `regretted` takes what that has really cost.

        ``tokens`` and ``times`` are what passes bring and take by the number of candidates scored, with ``base``
        other tokens; ``charge``: seconds outside of the pass that scoring any adds.
        """
        plain = times[0]
        for width in self.stale(base + best, base, base + len(times) - 1):
            count = width - base
            sure = min(tokens[count], tokens[best])  # what more is promised may not come
            # Where the cost was learnt while other programs ran, it may be far too high: no pass takes longer than
            # its tokens would one by one.
            seconds = min(times[count], plain * width / base + charge)
            regret = (seconds - sure * times[best] / tokens[best]) / plain
            if regret <= self.exploration_budget:
                return count, regret
        return best, 0.0

    def regretted(self, plain_passes: float) -> None:
        """Take from the exploration budget what a pass of another width took longer than the best choice."""
        self.exploration_budget -= min(_MOST_SAVED, max(0.0, plain_passes))

    def earn(self, plain_passes: float) -> None:
        """Let the exploration budget grow by its share of the time of so many plain passes."""
        budget = self.exploration_budget
        self.exploration_budget = max(budget, min(_MOST_SAVED, budget + _EXPLORE * plain_passes))

    def _is_calm(self, passes: int) -> bool:
        """Whether the last of so many passes need not be learnt from, if it took about the expected time."""
        return self.passes > _STALE and self.passes % SELDOM >= passes and not self._doubted

    def _correction(self, n: int) -> float:
        """Return the logarithm of believed over curve's seconds: between two knots, without numpy's calls."""
        knot = octave(n)
        share = min(math.log2(n) - knot, 1.0)
        if not share or knot == _OCTAVES - 1:
            return float(self._log[knot])
        return (1 - share) * float(self._log[knot]) + share * float(self._log[knot + 1])

    def _doubt(self, n: int, hat: Doubles, surprise: float) -> None:
        """Give the next passes more weight: all widths, those from here on, or this one may have changed."""
        self._doubted = surprise
        self._cov += surprise**2 * (1 + np.diag(hat) + _UPWARDS[octave(n)])
        self._seen[size(n)] -= _STALE

    def _change(self) -> None:
        """Have all widths measured again: two passes in a row say that the machine has changed."""
        self._cov += _GUESSED_SHAPE**2 * _WALK
        self._seen = [self.passes - _STALE] * len(_SIZES)
        if self.passes - self._granted >= _SETTLED:
            self._granted = self.passes
            self.exploration_budget = max(self.exploration_budget, GRANT)

    def stale(self, chosen: int, least: int, widest: int) -> list[int]:
        """Return widths not seen in the last 32 passes: half an octave beside the chosen one, or the least."""
        at, seen, before = size(chosen), self._seen, self.passes - _STALE
        beside = [k for k in (at + 1, at - 1) if 0 <= k < len(_SIZES) and least <= _SIZES[k] <= widest]
        found = [_SIZES[k] for k in beside if seen[k] <= before]
        k = size(least)
        return [*found, least] if k != at and seen[k] <= before else found

    def is_known(self, width: int, within: int) -> bool:
        """Return whether the cost of about this width was measured, in the last so many passes."""
        seen = self._seen[size(width)]
        return seen > 0 and self.passes - seen < within

    @property
    def is_plausible(self) -> bool:
        """Whether no pass is believed to take much longer than its tokens would one by one.

        Such costs were learnt while other programs kept the processor busy, and would keep drafts off for long.
        """
        one = self.seconds(1, 0)
        return all(self.seconds(n, 0) <= _SLACK * n * one for n in (2, 4, 8, 16, 32))

    def state(self) -> dict[str, Any]:
        """Return what was learnt, JSON-ready, for `restored`."""
        return {
            "passes": self.passes,
            "noise": round(self._noise, 6),
            "switch": self.switch.state(),
            "log": [round(value, 6) for value in self._log.tolist()],
            "cov": [[float(f"{value:.6g}") for value in row] for row in self._cov.tolist()],
        }

    @classmethod
    def restored(cls, curve: CostCurve | None, state: Mapping[str, Any]) -> Self:
        """Return a model that knows what another one learnt in an earlier process; `ValueError` if it is damaged.

        The machine may be slower or faster today by what `_PACE` says, with costs of the same shape. No time is
        spent on measuring widths anew until passes surprise, but for the share that every pass earns.
        """
        log, cov = np.array(state["log"], np.float64), np.array(state["cov"], np.float64)
        noise, passes = float(state["noise"]), int(state["passes"])
        shapes = log.shape == (_OCTAVES,) and cov.shape == (_OCTAVES, _OCTAVES)
        if not shapes or not np.abs(log).max() < _MOST_LOG or not 0 < noise < 1 or passes < 0:
            raise ValueError("the learnt cost of passes is damaged")
        cov = (cov + cov.T) / 2
        if not np.isfinite(cov).all() or not np.linalg.eigvalsh(cov)[0] >= -1e-4 * np.trace(cov):  # it was rounded
            raise ValueError("the learnt cost of passes is damaged")
        model = cls(curve)
        model.switch = SwitchCost.restored(state["switch"])
        model._log, model._cov, model._noise = log, cov + _PACE**2, noise
        model.measured, model.passes, model.exploration_budget = True, passes, 0.0
        model._granted = passes - _SETTLED
        model._seen = [passes] * len(_SIZES)
        return model

    def widened(self, guess: CostCurve | None = None) -> CostModel:
        """Return a copy with larger uncertainty, to begin with for another batch size, for which there may be
        another ``guess``.
        """
        twin = CostModel(self._curve if self.measured else None, guess if guess is not None else self._curve)
        twin._log = self._log.copy()
        twin._cov = self._cov + _PACE**2 + _SHAPE**2 * _WALK
        return twin


def size(n: int) -> int:
    """Return the index of the largest of the widths 1, 2, 3, 4, 6, 8, 12, .. that is at most ``n``."""
    return bisect_right(_SIZES, n) - 1


def octave(n: int) -> int:
    """Return the index of the largest knot (a power of two) that is at most ``n``."""
    return min(_OCTAVES - 1, n.bit_length() - 1)


def _hat(n: int) -> Doubles:
    return _hats(max(64, n))[n]


_HATS: list[Doubles] = []


def _hats(widest: int) -> Doubles:
    """Return the weight of each knot at each width, float64[widest + 1, knots]: linear in log2(n)."""
    if not _HATS or len(_HATS[0]) <= widest:
        places = np.minimum(np.log2(np.maximum(np.arange(max(128, 2 * widest) + 1), 1)), _OCTAVES - 1)
        _HATS[:] = [np.maximum(0, 1 - np.abs(places[:, None] - np.arange(_OCTAVES)))]
    return _HATS[0][: widest + 1]


_SIZES = [1, *(w << k for k in range(_OCTAVES) for w in (2, 3))]
_WALK = np.minimum.outer(np.arange(_OCTAVES), np.arange(_OCTAVES)).astype(np.float64)
_UPWARDS = [np.outer(up, up) for up in np.tri(_OCTAVES).T]  # covariance of a change of all knots from the k-th on
_DRIFT = _PACE_DRIFT**2 + _SHAPE_DRIFT**2 * _WALK
