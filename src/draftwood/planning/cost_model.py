"""The cost model: how many seconds a pass takes now, a measured or guessed curve corrected by every pass.

A Kalman filter follows the logarithm of measured over expected seconds, at each power of two of the width (tokens
of a pass). A pass that is far off is clipped, and the uncertainty of all widths grows by the same amount: on a
busy machine any pass may take twice as long, whatever its width.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Prices, State
from draftwood.planning import KEEP_LATELY, KEEP_SOME, LONGEST, SELDOM, SHORTEST
from draftwood.planning.cost_curve import CostCurve

Doubles = NDArray[np.float64]

GUESS = CostCurve.of({n: 0.025 * (1 + 0.25 * (n - 1)) for n in (1, 1024)})
"""The curve where nothing was measured; the first passes correct it."""

_OCTAVES = 11  # knots at 1, 2, 4, .. 1024 tokens
_PACE, _SHAPE = 0.3, 0.06
"""Standard deviations, in logarithms of seconds, of a measured curve: as a whole, and per octave."""
_GUESSED_PACE, _GUESSED_SHAPE = 3.0, 0.3
_DRIFT = 0.01  # standard deviation that each pass learnt from adds, as a whole and per octave
_FORGET = 0.998  # factor on the variances per such pass: either deviation ends at 0.22, but for clipped passes
_NOISE = 0.05  # standard deviation of one pass
_MOST_NOISE = 0.15  # on a machine that other programs use, by the passes so far
_CLIP = 3.0  # standard deviations that one pass may be off before it is clipped
_STALE = 32  # passes after which the cost of a width should be measured again
_GRANT = 1.25
"""First exploration budget of a guess, in plain passes: 2 % of an answer of 64 tokens. A measured curve has 0."""
_SLACK = 1.5  # plain passes per token that a pass can take; what is beyond comes from other programs
_MOST_LOG = 100.0  # of what is restored, so that its exponential is a number
_EXPLORE = 0.003  # share of the decoding time that may be spent on passes of other widths, to measure their cost
_MOST_SAVED = 2.0  # plain passes: the exploration budget grows up to this
_MOST_SWITCH = 0.5  # plain passes that a change of width may take: more comes from something else
_FIRST_TOKENS, _FIRST_PASSES = 6, 3.6
"""The first guess of a text's pace: 6 tokens in the time of 3.6 plain passes, 0.6 of a pass each. What is measured
is added to both, so after 30 tokens the guess is about a sixth of the sums."""
_AHEAD = 8  # draft nodes over which the cost of one more is averaged


class CostModel:
    """Seconds of one pass over n tokens, as now believed; starts from a measured ``curve`` or a ``guess``."""

    def __init__(self, curve: CostCurve | None = None, guess: CostCurve | None = None) -> None:
        self.measured = curve is not None
        self._curve = curve or guess or GUESS
        pace, shape = (_PACE, _SHAPE) if self.measured else (_GUESSED_PACE, _GUESSED_SHAPE)
        self._log = [0.0] * _OCTAVES
        # Lists: for matrices this small, several times faster than arrays.
        self._cov: list[list[float]] = (pace**2 + shape**2 * _WALK).tolist()
        self._noise = _NOISE  # average of how far passes were off
        self._doubted = False  # whether the last pass was clipped
        self._at, self._base = -1, np.empty(0)  # the table's context in units of 32 tokens, and the curve there
        self._table: Doubles | None = None
        self._seen = [0 if self.measured else -_STALE] * len(_SIZES)  # number of the last pass of each width
        self.passes = 0  # how many were recorded
        # How much time may be spent on passes of other widths to measure their cost, in plain passes.
        self.exploration_budget = 0.0 if self.measured else _GRANT
        self.switch = SwitchCost()

    def seconds(self, n: int, context: int) -> float:
        """Return the expected seconds of a pass over ``n`` tokens (the root included) at this context length."""
        return self._curve.seconds(n, context) * math.exp(_between(self._log, *_place(n)))

    def table(self, widest: int, context: int) -> Doubles:
        """Return the expected seconds of each width, float64[widest + 1], never falling; do not write to it."""
        at = context >> 5 if len(self._curve.contexts) > 1 else 0  # else it is the same at every length
        if at != self._at or len(self._base) <= widest:
            self._at, self._table = at, None
            self._base = self._curve.many(max(128, 2 * widest), context & ~31)
        if self._table is None:
            found = self._base * np.exp(_hats(len(self._base)) @ self._log)
            self._table = np.minimum.accumulate(found[::-1])[::-1]
        return self._table[: widest + 1]

    def times(self, least: int, widest: int, context: int) -> list[float]:
        """Return the expected seconds of passes over ``least`` to ``widest`` tokens."""
        found: list[float] = self.table(widest, context)[least:].tolist()
        return found

    def learn(self, n: int, context: int, seconds: float, passes: int = 1) -> None:
        """Record the seconds of a pass over ``n`` tokens, the latest of so many; impossible times are ignored."""
        if not SHORTEST < seconds < LONGEST or n < 1:
            return
        self.passes += passes - 1
        calm = n == 1 and self._is_calm(passes)
        self.passes += 1
        self._seen[size(n)] = self.passes
        if calm:
            return  # plain passes are so many that looking at one in four is enough
        expected = self.seconds(n, context)
        if n > 1 and self._seen[0] > 0:
            seconds = min(seconds, max(_SLACK * n * self.seconds(1, context), expected))
        surprise = math.log(seconds / expected)
        noise = self._noise
        self._noise = KEEP_SOME * noise + (1 - KEEP_SOME) * min(abs(surprise), _MOST_NOISE)
        if abs(surprise) < 2 * max(_NOISE, noise) and self._is_calm(passes):
            return  # it would change next to nothing: of plain passes only surprising ones teach (see LOG.md)
        reach = [_between(row, *_place(n)) for row in self._cov]  # covariances of the knots with this width
        variance = _between(reach, *_place(n)) + _NOISE**2
        bound = _CLIP * math.sqrt(variance)
        clipped = min(bound, max(-bound, surprise))
        self._doubted = clipped != surprise  # the machine may have changed
        self._log = [known + one * clipped / variance for known, one in zip(self._log, reach, strict=True)]
        inflation = clipped**2 if self._doubted else 0.0
        self._cov = [
            [
                _FORGET * (entry - one * other / variance) + growth + inflation
                for entry, other, growth in zip(row, reach, growths, strict=True)
            ]
            for row, one, growths in zip(self._cov, reach, _GROWTH, strict=True)
        ]
        self._table = None
        if self._doubted:
            self._seen[size(n)] -= _STALE

    def explored(
        self, base: int, tokens: Sequence[float], times: Sequence[float], best: int, charge: float
    ) -> tuple[int, float]:
        """Return how many candidates to score, ``best`` or a number whose cost was not measured lately, and by how
        many plain passes the latter is expected to be worse.

        If ``best`` brings 3 tokens in 15 ms, a plain pass takes 10 ms and another number brings 3 tokens in 20 ms,
        that number is worse by 5 ms, half a plain pass: it is tried while the exploration budget is at least 0.5.
        When its pass is over, `regretted` takes from the budget by how much it was really worse.

        ``tokens`` and ``times`` are what passes bring and take by the number of candidates scored, with ``base``
        other tokens; ``charge``: seconds outside of the pass that scoring any adds.
        """
        plain = times[0]
        for width in self.stale(base + best, base, base + len(times) - 1):
            count = width - base
            sure = min(tokens[count], tokens[best])  # what more is promised may not come
            # Where the cost was learnt while other programs ran, it may be too high: for a look at it, it counts
            # as no more than its tokens one by one.
            seconds = min(times[count], plain * width / base + charge)
            regret = (seconds - sure * times[best] / tokens[best]) / plain
            if regret <= self.exploration_budget:
                return count, regret
        return best, 0.0

    def regretted(self, plain_passes: float) -> None:
        """Take from the exploration budget by how many plain passes a choice other than the best was worse."""
        self.exploration_budget -= min(_MOST_SAVED, max(0.0, plain_passes))

    def earn(self, plain_passes: float) -> None:
        """Let the exploration budget grow by its share of the time of so many plain passes."""
        budget = self.exploration_budget
        self.exploration_budget = max(budget, min(_MOST_SAVED, budget + _EXPLORE * plain_passes))

    def _is_calm(self, passes: int) -> bool:
        """Whether the last of so many passes need not be learnt from, if it took about the expected time."""
        return self.passes > _STALE and self.passes % SELDOM >= passes and not self._doubted

    def stale(self, chosen: int, least: int, widest: int) -> list[int]:
        """Return widths not seen in the last 32 passes: half an octave from the chosen one, or the least."""
        at, seen, before = size(chosen), self._seen, self.passes - _STALE
        beside = [k for k in (at + 1, at - 1) if 0 <= k < len(_SIZES) and least <= _SIZES[k] <= widest]
        found = [_SIZES[k] for k in beside if seen[k] <= before]
        k = size(least)
        return [*found, least] if k != at and seen[k] <= before else found

    def is_known(self, width: int, within: int) -> bool:
        """Return whether the cost of about this width was measured, in the last so many passes."""
        seen = self._seen[size(width)]
        return seen > 0 and self.passes - seen < within

    def state(self) -> dict[str, Any]:
        """Return what was learnt, JSON-ready, for `restored`."""
        return {
            "passes": self.passes,
            "switch": [float(f"{self.switch.after:.6g}"), round(self.switch.share, 6)],
            "log": [round(value, 6) for value in self._log],
            "cov": [[float(f"{value:.6g}") for value in row] for row in self._cov],
        }

    @classmethod
    def restored(cls, curve: CostCurve | None, state: Mapping[str, Any]) -> Self:
        """Return a model that knows what another one learnt in an earlier process; `ValueError` if it is damaged.

        The machine may be slower or faster today by what `_PACE` says, with costs of the same shape. No time is
        spent on measuring widths anew until passes surprise, but for the share that every pass earns.
        """
        log, cov = np.array(state["log"], np.float64), np.array(state["cov"], np.float64)
        passes, (after, share) = int(state["passes"]), map(float, state["switch"])
        shapes = log.shape == (_OCTAVES,) and cov.shape == (_OCTAVES, _OCTAVES) and np.isfinite(cov).all()
        fine = passes >= 0 and math.isfinite(after) and 0 <= share <= 1
        if not (shapes and fine and np.abs(log).max() < _MOST_LOG):
            raise ValueError("the learnt cost of passes is damaged")
        cov = (cov + cov.T) / 2
        if not np.linalg.eigvalsh(cov)[0] >= -1e-4 * np.trace(cov):  # it was rounded
            raise ValueError("the learnt cost of passes is damaged")
        model = cls(curve)
        model.switch.after, model.switch.share = after, share
        model._log, model._cov = log.tolist(), (cov + _PACE**2).tolist()
        model.measured, model.passes, model.exploration_budget = True, passes, 0.0
        model._seen = [passes] * len(_SIZES)
        return model

    def widened(self, guess: CostCurve | None = None) -> CostModel:
        """Return a copy with larger uncertainty, for another batch size, for which there may be another guess."""
        twin = CostModel(self._curve if self.measured else None, guess or self._curve)
        twin._log = self._log
        twin._cov = (np.array(self._cov) + _PACE**2 + _SHAPE**2 * _WALK).tolist()
        return twin


def of_size(
    models: dict[int, CostModel], size: int, curve: CostCurve | None = None, guess: CostCurve | None = None
) -> CostModel:
    """Return the model of a batch size among ``models``; a new one starts from that of the nearest size, the first
    one from a measured ``curve`` or a ``guess``.
    """
    if size not in models:
        nearest = min(models, key=lambda known: abs(known - size), default=None)
        models[size] = CostModel(curve, guess) if nearest is None else models[nearest].widened(guess)
    return models[size]


class SwitchCost:
    """An average of the seconds by which plain passes after wide ones took longer than others.

    llama.cpp plans its work anew when the width changes: 0.5 to 1 ms where a plain pass takes 5.5.
    """

    def __init__(self) -> None:
        self.after = 0.0  # seconds
        self.share = 0.5  # of the passes with a draft, how many are followed by a plain one

    @property
    def charge(self) -> float:
        """Seconds that a pass with a draft is expected to add to the next one."""
        return self.share * max(0.0, self.after)

    def learn(self, *, plain: bool, excess: float, expected: float) -> None:
        """Record the pass after one with a draft: whether it was plain, by how many seconds it took longer than
        ``expected``.
        """
        self.share = KEEP_LATELY * self.share + (1 - KEEP_LATELY) * plain
        if plain and math.isfinite(excess):
            clipped = min(_MOST_SWITCH * expected, max(-_MOST_SWITCH * expected, excess))
            self.after = KEEP_LATELY * self.after + (1 - KEEP_LATELY) * clipped


class Pace:
    """Seconds per emitted token of the texts of one call, lately; so that drafters with passes of their own can
    tell when another pass pays.
    """

    def __init__(self) -> None:
        self._seconds = self._tokens = 0.0

    def learn(self, states: Sequence[State]) -> None:
        tokens = sum([len(state.step.emitted) for state in states])
        seconds = states[0].step.score_s + sum([state.step.overhead_s for state in states])
        self._tokens = KEEP_SOME * self._tokens + tokens
        self._seconds = KEEP_SOME * self._seconds + seconds

    def prices(self, model: CostModel, states: Sequence[State]) -> Prices:
        """Return the prices for the step that begins, whose passes take what ``model`` says.

        A token is never worth more than a plain pass takes for it: that would be the faster way. While the cost of
        a draft node is only guessed it counts as nothing, so that drafts are tried.
        """
        if not (model.passes or model.measured):
            return Prices()
        rows = len(states)
        times = model.times(rows, rows + _AHEAD, max([state.length for state in states]))
        token = rows * (self._seconds / times[0] + _FIRST_PASSES) / (self._tokens + rows * _FIRST_TOKENS)
        knows_drafts = model.measured or max(model._seen[1:]) > 0
        node = max(0.0, times[-1] - times[0]) / (_AHEAD * times[0]) if knows_drafts else 0.0
        return Prices(times[0], min(token, 1.0) / rows, node)


def size(n: int) -> int:
    """Return the index of the largest of the widths 1, 2, 3, 4, 6, 8, 12, .. that is at most ``n``."""
    return bisect_right(_SIZES, n) - 1


def octave(n: int) -> int:
    """Return the index of the largest knot (a power of two) that is at most ``n``."""
    return min(_OCTAVES - 1, n.bit_length() - 1)


@lru_cache(maxsize=512)
def _place(n: int) -> tuple[int, float]:
    """Return the lower of the two knots that ``n`` lies between, and where between them, from 0 to 1."""
    k = octave(n)
    return (k, math.log2(n / (1 << k))) if k < _OCTAVES - 1 else (k - 1, 1.0)


def _between(knots: Sequence[float], k: int, above: float) -> float:
    """Return the value at a `_place`, on a straight line between two knots."""
    return knots[k] + above * (knots[k + 1] - knots[k])


@lru_cache
def _hats(widths: int) -> Doubles:
    """Return the weight of each knot at each width, float64[widths, knots]: linear in log2(n)."""
    places = np.minimum(np.log2(np.maximum(np.arange(widths), 1)), _OCTAVES - 1)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(_OCTAVES)))


_SIZES = [1, *(w << k for k in range(_OCTAVES) for w in (2, 3))]
_WALK = np.minimum.outer(np.arange(_OCTAVES), np.arange(_OCTAVES)).astype(np.float64)
_GROWTH: list[list[float]] = (_DRIFT**2 * (1 + _WALK)).tolist()
