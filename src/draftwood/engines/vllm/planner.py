"""Which tokens of many chains to draft: sorted by how likely they are. Importing this loads kernels.

Behind a pass numpy's calls take several times as long, since their code has left the processor's caches.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.index.compiling import compiled, inner
from draftwood.planning.base import TreePlanner
from draftwood.planning.cooldown import Cooldown
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel, octave
from draftwood.planning.exploring import earn, explored
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.load import load as load_planner
from draftwood.planning.losses import Losses
from draftwood.step import RunningStep

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]
Doubles = NDArray[np.float64]

_REACH = "Array(float32, 2, 'C', readonly=True)"
_TIMES = "Array(float64, 1, 'C', readonly=True)"


@inner
def _sift(reach: Floats, taken: Longs, heap: Longs, size: int, at: int) -> None:
    """Move the chain at this place of the heap down to where it belongs: the likeliest next token is on top.

    Of equals the chain with the lower number goes first.
    """
    moved = heap[at]
    value = reach[moved, taken[moved]]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        lower = heap[child]
        likely = reach[lower, taken[lower]]
        if child + 1 < size:
            other = heap[child + 1]
            rival = reach[other, taken[other]]
            if rival > likely or (rival == likely and other < lower):
                child, lower, likely = child + 1, other, rival
        if value > likely or (value == likely and moved < lower):
            break
        heap[at] = lower
        at = child
    heap[at] = moved


@compiled(f"i8({_REACH}, i8, i8[::1], f8[::1])")
def likeliest_first(reach: Floats, width: int, order: Longs, tokens: Doubles) -> int:
    """Sort the tokens of all chains by how likely each is reached and right; returns how many there are.

    Parameters
    ----------
    reach : float32[chains, longest]
        How likely each token is reached and right: never rising along a chain, 0 behind its end.
    width
        Tokens of each chain that count.
    order : int64[chains * width]
        Written: the chain of each token. Tokens of a chain come in the chain's order.
    tokens : float64[1 + chains * width]
        Written: how many tokens the first so many of them are expected to bring, beginning with none.
    """
    chains = len(reach)
    taken, heap, size = np.zeros(chains, np.int64), np.empty(chains, np.int64), 0
    for chain in range(chains):
        if width > 0 and reach[chain, 0] > 0:
            heap[size] = chain
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift(reach, taken, heap, size, at)
    count, total = 0, 0.0
    tokens[0] = 0.0
    while size > 0:
        chain = heap[0]
        total += reach[chain, taken[chain]]
        order[count], tokens[count + 1] = chain, total
        count += 1
        taken[chain] += 1
        if taken[chain] == width or reach[chain, taken[chain]] <= 0:
            size -= 1
            heap[0] = heap[size]
        if size > 0:
            _sift(reach, taken, heap, size, 0)
    return count


@compiled(f"Tuple((i8, f8))(f8[::1], {_TIMES}, i8, i8)")
def best_count(tokens: Doubles, times: Doubles, count: int, rows: int) -> tuple[int, float]:
    """Return which of 0 to ``count`` drafted tokens gives most tokens per second, and what a drafted token costs.

    ``tokens`` float64[1 + count] are those expected of each number, the rows' own included; ``times`` float64[n]
    the seconds of each pass. The cost is in tokens of ``rows`` requests that plain passes would bring meanwhile:
    the least average over all numbers whose seconds are given.
    """
    best, most = 0, tokens[0] / times[0]
    for number in range(1, count + 1):
        rate = tokens[number] / times[number]
        if rate > most:
            best, most = number, rate
    least = np.inf
    for number in range(1, len(times)):
        least = min(least, rows * (times[number] / times[0] - 1) / number)
    return best, least


_WORTH = 0.05  # of plain decoding's tokens that a wide pass must promise beyond these to be tried
_OFTEN = 1024  # passes after which it may be tried again
_PATIENCE = 64  # choices after which it may be tried again where nothing was learnt, since other requests came
_GUESS, _SLOPE = 0.025, 0.05  # a guess: seconds of a pass over one token, by how much each further one adds to it
_KEPT = 0.5  # share of what is promised that is counted on where a wide pass is tried
_WIDEST = 1024  # drafted tokens up to which a guess tells costs apart
_LEAST, _MOST = 0.01, 0.5  # bounds of the floor
_SAFE = 0.5  # the floor is this share of what a draft token must promise on average


def planner_of(spec: str) -> FixedChains | GoodputChains:
    """Return the planner of this name; `UsageError` for one that is not offered inside vLLM."""
    named: Any = load_planner(spec)
    if isinstance(named, TreePlanner) and named.policies:
        names = " and ".join(policy.name for policy in named.policies)
        raise UsageError(
            f"policies ({names}) are not offered inside vLLM: name goodput, fixed:16, threshold or off"
        )
    if isinstance(named, FixedPlanner):
        return FixedChains(named.nodes, named.floor)
    assert isinstance(named, GoodputPlanner)
    return GoodputChains(named.most)


class FixedChains:
    """At most so many tokens of each chain, as far as they are likely enough; costs are not looked at."""

    def __init__(self, nodes: int, floor: float) -> None:
        self._nodes, self.floor = nodes, floor

    def wants_drafts(self, own_s: float, *, asked: bool) -> bool:  # noqa: ARG002
        """Return whether drafters are asked in this step."""
        return self._nodes > 0

    def choose(self, reach: Floats, rows: int, context: int) -> Longs:  # noqa: ARG002
        """Return how much of each chain is drafted."""
        return np.minimum((reach >= max(self.floor, 1e-9)).sum(axis=1), self._nodes)

    def learn(self, rows: int, drafted: int, given: int, context: int, seconds: float) -> None:
        """Learn from a pass."""

    def why(self) -> str:
        """Return what was learnt, in a few words."""
        return "a fixed number"


class GoodputChains:
    """As much as gives the most expected tokens per second, possibly nothing; at most ``most`` of each chain.

    Costs are learnt for each size of the batch (up to a fourth) by the number of drafted tokens; none is the plain
    pass. Where drafts do not pay, drafters are asked less and less, at least every 32nd step.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._costs: dict[int, CostModel] = {}  # by the size of the batch: of passes over 1 + drafted tokens
        self._losses: dict[int, Losses] = {}
        self._choices, self._again = (
            0,
            dict[tuple[int, int], int](),
        )  # number of choices; when to try a width again
        self._cooldown = Cooldown()
        self._own = _Own()
        self._expected = 0.0  # of the last pass with a draft: plain passes that it takes
        self.floor = 0.0

    def _size(self, rows: int) -> int:
        return rows if rows <= 4 else round(4 + 3 * math.log2(rows / 4))

    def _cost(self, rows: int) -> CostModel:
        """Return the costs for this size of the batch, at first those of the nearest one, or a guess."""
        size = self._size(rows)
        if size not in self._costs:
            nearest = min(self._costs, key=lambda known: abs(known - size), default=None)
            guess = CostCurve.of({n: _GUESS * (1 + _SLOPE * (rows + n - 2)) for n in (1, _WIDEST)})
            known = self._costs[nearest].widened(guess) if nearest is not None else CostModel(guess=guess)
            self._costs[size] = known
        return self._costs[size]

    def wants_drafts(self, own_s: float, *, asked: bool) -> bool:
        """Return whether drafters are asked now; the last step took ``own_s`` seconds here, ``asked`` or not."""
        self._own.step.draft_s = own_s
        return self._cooldown.begin([cast("State", self._own)], asked=asked)

    def choose(self, reach: Floats, rows: int, context: int) -> Longs:
        """Return how much of each chain is drafted, int64[chains].

        Parameters
        ----------
        reach : float32[chains, longest]
            How likely each token is reached and right, 0 behind the end of a chain.
        rows
            Requests of the batch, those without a chain included.
        context
            Tokens of the longest text.
        """
        chains, width = reach.shape[0], min(self._most, reach.shape[1])
        size = self._size(rows)
        model, losses = self._cost(rows), self._losses.setdefault(size, Losses())
        order, tokens = np.empty(chains * width, dtype=np.int64), np.empty(1 + chains * width)
        found = likeliest_first(reach, width, order, tokens)
        tokens = tokens[: 1 + found]
        tokens += rows
        times = model.table(1 + max(chains * width, 8 * rows), context)[1:] + self._cooldown.overhead
        best, needed = best_count(tokens, times, found, rows)
        plain = float(times[0])
        if tokens[best] * plain < losses.demand * tokens[0] * times[best]:
            best = 0
        count = self._explored(size, tokens, times[: 1 + found], best)
        self._cooldown.learn(float(tokens[best]) * plain / rows - float(times[best]), plain, keep_on=count > best)
        self._expected = float(times[count]) / plain
        self.floor = min(_MOST, max(_LEAST, _SAFE * needed))
        return np.bincount(order[:count], minlength=chains)

    def _explored(self, size: int, tokens: Doubles, times: Doubles, best: int) -> int:
        """Return ``best`` or, if the budget allows, a number whose cost is not known: far larger ones, too.

        A guess lies far off what passes with many requests cost on a GPU, where a hundred tokens more may take no
        time; and trying a few does not tell.
        """
        model, count = self._costs[size], len(tokens) - 1
        self._choices += 1
        if not count:
            earn(model, 1.0)
            return best
        while count > best and count > 1:
            promised = float(tokens[count] / tokens[0]) - 1
            regret = float(times[count] / times[0]) - 1 - _KEPT * promised
            known = model.is_known(1 + count, _OFTEN) or self._choices < self._again.get(
                (size, octave(1 + count)), 0
            )
            if promised > _WORTH and regret <= model.exploration_budget and not known:
                model.exploration_budget -= max(0.0, regret)
                self._again[size, octave(1 + count)] = self._choices + _PATIENCE
                return count
            count //= 4
        return explored(model, 1, tokens, times, best)  # type: ignore[arg-type]

    def learn(self, rows: int, drafted: int, given: int, context: int, seconds: float) -> None:
        """Learn from a pass over ``rows`` requests and ``drafted`` tokens, which has given so many tokens."""
        self._cost(rows).learn(1 + drafted, context, seconds)
        if drafted and (losses := self._losses.get(self._size(rows))) is not None:
            losses.learn(given / rows, self._expected)

    def why(self) -> str:
        """Return what was learnt, in a few words."""
        said = []
        for _, model in sorted(self._costs.items()):
            times = model.times(0, 9, 0)
            said.append(f"{times[1] * 1e3:.1f}/{times[9] * 1e3:.1f}")
        return f"ms of passes with 0/8 drafted tokens, by size of the batch: {', '.join(said) or 'none measured'}"


class _Own:
    """What this side of a step has taken: as much of a `State` as `Cooldown` looks at."""

    drafters = ()
    traced = False

    def __init__(self) -> None:
        self.step = RunningStep(0, 0)
