"""The cost model: how many seconds a pass takes now, a measured or guessed curve corrected by every pass.

A pass takes what its width (its number of tokens) costs after a short text and, for each further token of context,
two shares: one for the pass, which reads that token, and one for each token of the pass, which attends to it. A
Kalman filter follows the logarithm of measured over expected seconds, at each power of two of the width, and those
of both shares. So what surprises after a long text is laid to the context as far as its shares are uncertain, and
costs after a short text stay as they are. A pass that is far off is clipped, and the uncertainty of everything
grows by the same amount: on a busy machine any pass may take twice as long, whatever its width.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Prices, State
from draftwood.planning import KEEP_LATELY, KEEP_SOME, LONGEST, SELDOM, SHORTEST
from draftwood.planning.cost_curve import CostCurve

Doubles = NDArray[np.float64]

GUESS = CostCurve.of({n: 0.025 * (1 + 0.25 * (n - 1)) for n in (1, 1024)})
"""The curve where nothing was measured; the first passes correct it."""

_SHORT = 256  # tokens of a short text, up to which a pass costs the same
OCTAVES = 11  # knots at 1, 2, 4, .. 1024 tokens
_PASS, _TOKEN = OCTAVES, OCTAVES + 1  # places of the two shares behind the knots
_PACE, _SHAPE = 0.3, 0.06
"""Standard deviations, in logarithms of seconds, of a measured curve: as a whole, and per octave."""
_GUESSED_PACE, _GUESSED_SHAPE = 3.0, 0.3
_SHARE, _GUESSED_SHARE = 0.3, 1.0  # the same of the shares: by a curve of several contexts, or guessed
_SHARE_DRIFT = (
    0.022  # added by each pass to the shares: they end at 0.5, so a long text tells after many short ones
)
_DRIFT = 0.01  # standard deviation that each pass learnt from adds, as a whole and per octave
_FORGET = 0.998  # factor on the variances per such pass: either deviation ends at 0.22, but for clipped passes
_NOISE = 0.05  # standard deviation of one pass
_MOST_NOISE = 0.15  # on a machine that other programs use, by the passes so far
_CLIP = 3.0  # standard deviations that one pass may be off before it is clipped
_STALE = 32  # passes after which the cost of a width should be measured again
_GRANT = 1.25
"""First exploration budget of a guess, in plain passes: 2 % of an answer of 64 tokens. A measured curve has 0."""
_SLACK = 1.5  # plain passes per token that a pass can take; what is beyond comes from other programs
MOST_SHARE = 1e4  # times its guess
_EXPLORE = 0.003  # share of the decoding time that may be spent on passes of other widths, to measure their cost
_MOST_SAVED = 2.0  # plain passes: the exploration budget grows up to this
_MOST_SWITCH = 0.5  # plain passes that a change of width may take: more comes from something else
_FIRST_TOKENS, _FIRST_PASSES = 6, 3.6
"""The first guess of a text's pace: 6 tokens in the time of 3.6 plain passes, 0.6 of a pass each. What is measured
is added to both, so after 30 tokens the guess is about a sixth of the sums."""
_TOGETHER = 4
"""Passes that are learnt together, fewer at first and after a clipped one: caches of the processor that a pass has
emptied make learning from one of them, and working out the times anew, take a tenth of a millisecond each."""
_AHEAD = 8  # draft nodes over which the cost of one more is averaged


class CostModel:
    """Seconds of one pass over n tokens, as now believed; starts from a measured ``curve`` or a ``guess``."""

    def __init__(self, curve: CostCurve | None = None, guess: CostCurve | None = None) -> None:
        self.measured = curve is not None
        self._curve = curve or guess or GUESS
        self._first, self._guesses = max(_SHORT, self._curve.contexts[0]), self._curve.context_shares()
        pace, shape = (_PACE, _SHAPE) if self.measured else (_GUESSED_PACE, _GUESSED_SHAPE)
        share = _SHARE if len(self._curve.contexts) > 1 else _GUESSED_SHARE
        self.logs, self.shares = [0.0] * OCTAVES, [1.0, 1.0]  # the latter as multiples of the guesses
        # Lists: for matrices this small, several times faster than arrays.
        self._cov: list[list[float]] = (pace**2 + shape**2 * _WALK + share**2 * _OF_SHARES).tolist()
        self._noise = _NOISE  # average of how far passes were off
        self._doubted = False  # whether the last pass was clipped
        self._base = np.empty(0)  # the curve after a short text
        self._scaled: Doubles | None = None  # the same as now believed
        self._at, self._table = -1, np.empty(0)  # the context of the table, in units of 32 tokens
        self._seen = [0 if self.measured else -_STALE] * len(SIZES)  # number of the last pass of each width
        self._untold: list[tuple[int, int, float, bool]] = []  # passes that wait to be learnt from
        self._recorded = 0  # passes that were or are to be learnt from
        self.passes = 0  # how many were recorded
        # How much time may be spent on passes of other widths to measure their cost, in plain passes.
        self.exploration_budget = 0.0 if self.measured else _GRANT
        self.switch = SwitchCost()

    def seconds(self, n: int, context: int) -> float:
        """Return the expected seconds of a pass over ``n`` tokens (the root included) at this context length."""
        for_pass, for_tokens = self._guessed(n, context)
        return self._alone(n) + self.shares[0] * for_pass + self.shares[1] * for_tokens

    def _alone(self, n: int) -> float:
        """Return the seconds of a pass after a short text."""
        return self._curve.seconds(n, self._first) * math.exp(_between(self.logs, *_place(n)))

    def _guessed(self, n: int, context: int) -> tuple[float, float]:
        """Return by the first guess what this context adds for the pass, and for its tokens."""
        far = max(0, context - self._first)
        return far * self._guesses[0], far * n * self._guesses[1]

    def table(self, widest: int, context: int) -> Doubles:
        """Return the expected seconds of each width, float64[widest + 1], never falling; do not write to it."""
        if len(self._base) <= widest:
            self._base, self._scaled = self._curve.many(max(128, 2 * widest), self._first), None
        count, at = len(self._base), context >> 5
        if self._scaled is None:
            self._scaled, self._at = self._base * np.exp(_hats(count) @ self.logs), -1
        if at != self._at:
            for_pass, for_token = self._guessed(1, context & ~31)
            found = self._scaled + (self.shares[0] * for_pass + self.shares[1] * for_token * _widths(count))
            self._at, self._table = at, np.minimum.accumulate(found[::-1])[::-1]
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
        self._untold.append((n, context, seconds, self._is_calm(passes)))
        self._recorded += 1
        if self._doubted or len(self._untold) >= min(_TOGETHER, 1 + self._recorded // 4):
            self.catch_up()

    def catch_up(self) -> None:
        """Learn the passes that were only recorded."""
        for recorded in self._untold:
            self._learn(*recorded)
        self._untold.clear()

    def _learn(self, n: int, context: int, seconds: float, calm: bool) -> None:
        """Learn from the seconds of a recorded pass; from those of a ``calm`` one only if they surprise."""
        expected = self.seconds(n, context)
        if n > 1 and self._seen[0] > 0:
            seconds = min(seconds, max(_SLACK * n * self.seconds(1, context), expected))
        surprise = math.log(seconds / expected)
        noise = self._noise
        self._noise = KEEP_SOME * noise + (1 - KEEP_SOME) * min(abs(surprise), _MOST_NOISE)
        if abs(surprise) < 2 * max(_NOISE, noise) and calm:
            return  # it would change next to nothing: of plain passes only surprising ones teach (see LOG.md)
        alone = self._alone(n) / expected
        # By how much these seconds grow with each share, in units of the share, or of its guess if that is more.
        units = [max(1.0, share) for share in self.shares]
        pulls = [unit * more / expected for unit, more in zip(units, self._guessed(n, context), strict=True)]
        k, above = _place(n)
        reach = [  # covariances with that logarithm
            alone * _between(row, k, above) + pulls[0] * row[_PASS] + pulls[1] * row[_TOKEN] for row in self._cov
        ]
        variance = (
            alone * _between(reach, k, above) + pulls[0] * reach[_PASS] + pulls[1] * reach[_TOKEN] + _NOISE**2
        )
        bound = _CLIP * math.sqrt(variance)
        clipped = min(bound, max(-bound, surprise))
        self._doubted = clipped != surprise  # the machine may have changed
        self.logs = [
            known + one * clipped / variance for known, one in zip(self.logs, reach[:OCTAVES], strict=True)
        ]
        move = math.expm1(clipped) / variance  # shares are factors, not logarithms
        self.shares = [
            min(MOST_SHARE, max(0.0, share + unit * one * move))
            for share, unit, one in zip(self.shares, units, reach[OCTAVES:], strict=True)
        ]
        cov = []
        for row, one, growths in zip(self._cov, reach, _GROWTH, strict=True):
            gain = _FORGET * one / variance
            terms = zip(row, reach, growths, strict=True)
            cov.append([_FORGET * entry - gain * other + growth for entry, other, growth in terms])
        if self._doubted:
            cov = [[entry + clipped**2 for entry in row] for row in cov]
        self._cov = cov
        self._scaled = None
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

        A plain pass is tried, too, once what was earned since the last one suffices, whatever was lost before: all
        that drafts save is judged by it, and one pass by a broken clock can take the budget of 700.
        """
        plain = times[0]
        for width in self.stale(base + best, base, base + len(times) - 1):
            count = width - base
            sure = min(tokens[count], tokens[best])  # what more is promised may not come
            # Where the cost was learnt while other programs ran, it may be too high: for a look at it, it counts
            # as no more than its tokens one by one.
            seconds = min(times[count], plain * width / base + charge)
            regret = (seconds - sure * times[best] / tokens[best]) / plain
            earned = _EXPLORE * (self.passes - self._seen[size(width)]) if width == base else 0.0
            if regret <= max(self.exploration_budget, earned):
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
        beside = [k for k in (at + 1, at - 1) if 0 <= k < len(SIZES) and least <= SIZES[k] <= widest]
        found = [SIZES[k] for k in beside if seen[k] <= before]
        k = size(least)
        return [*found, least] if k != at and seen[k] <= before else found

    def is_known(self, width: int, within: int) -> bool:
        """Return whether the cost of about this width was measured, in the last so many passes."""
        seen = self._seen[size(width)]
        return seen > 0 and self.passes - seen < within

    def resume(self, logs: list[float], shares: list[float], passes: int) -> None:
        """Begin with what another model learnt from so many passes, in an earlier process, on the same curve.

        The machine may be slower or faster today by what `_PACE` says, with costs of the same shape. No time is
        spent on measuring widths anew until passes surprise, but for the share that every pass earns.
        """
        self.logs, self.shares, self.passes = logs, shares, passes
        self._seen = [passes] * len(SIZES)

    def widened(self, guess: CostCurve | None = None) -> CostModel:
        """Return a copy with larger uncertainty, for another batch size, for which there may be another guess."""
        twin = CostModel(self._curve if self.measured else None, guess or self._curve)
        twin.logs, twin.shares = self.logs, self.shares
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
    return bisect_right(SIZES, n) - 1


def octave(n: int) -> int:
    """Return the index of the largest knot (a power of two) that is at most ``n``."""
    return min(OCTAVES - 1, n.bit_length() - 1)


@lru_cache(maxsize=512)
def _place(n: int) -> tuple[int, float]:
    """Return the lower of the two knots that ``n`` lies between, and where between them, from 0 to 1."""
    k = octave(n)
    return (k, math.log2(n / (1 << k))) if k < OCTAVES - 1 else (k - 1, 1.0)


def _between(knots: Sequence[float], k: int, above: float) -> float:
    """Return the value at a `_place`, on a straight line between two knots."""
    return knots[k] + above * (knots[k + 1] - knots[k])


@lru_cache
def _widths(count: int) -> Doubles:
    """Return 0 to ``count - 1``, float64[count]."""
    return np.arange(float(count))


@lru_cache
def _hats(widths: int) -> Doubles:
    """Return the weight of each knot at each width, float64[widths, knots]: linear in log2(n)."""
    places = np.minimum(np.log2(np.maximum(np.arange(widths), 1)), OCTAVES - 1)
    return np.maximum(0, 1 - np.abs(places[:, None] - np.arange(OCTAVES)))


SIZES = [1, *(w << k for k in range(OCTAVES) for w in (2, 3))]
_STEPS = np.array([*range(OCTAVES), 0, 0])  # the shares are no part of the walk over the knots
_WALK = np.minimum.outer(_STEPS, _STEPS).astype(np.float64)
_OF_SHARES = np.diag(np.array([0.0] * OCTAVES + [1.0, 1.0]))
_GROWTH: list[list[float]] = (_DRIFT**2 * (1 + _WALK) + _SHARE_DRIFT**2 * _OF_SHARES).tolist()
