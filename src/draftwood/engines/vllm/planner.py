"""How much of each request's chain is drafted, decided for a whole batch at once.

vLLM tells neither what a pass costs nor which drafts it took. The time between two calls stands for the cost of a
pass, with all that vLLM does around it.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from draftwood.contracts import Floats, Positions
from draftwood.errors import UsageError
from draftwood.planning.accounts import Losses, Overhead, QuietSteps, asking_accounts
from draftwood.planning.base import TreePlanner
from draftwood.planning.cost_curve import CostCurve
from draftwood.planning.cost_model import CostModel, Doubles, octave, of_size
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.load import load as load_planner

_WORTH = 0.05  # of plain decoding's tokens that a wide pass must promise beyond these to be tried
_OFTEN = 1024  # passes after which it may be tried again
_PATIENCE = 64  # choices after which it may be tried again where nothing was learnt, since other requests came
_GUESS, _SLOPE = 0.025, 0.05  # a guess: seconds of a pass over one token, by how much each further one adds to it
_KEPT = 0.5  # share of what is promised that is counted on where a wide pass is tried
_WIDEST = 1024  # drafted tokens up to which a guess tells costs apart


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
        self._nodes, self._floor = nodes, max(floor, 1e-9)

    def wants_drafts(self, own_s: float, *, asked: bool) -> bool:  # noqa: ARG002
        return self._nodes > 0

    def choose(self, reach: Floats, rows: int, context: int) -> Positions:  # noqa: ARG002
        return np.minimum((reach >= self._floor).sum(axis=1), self._nodes)

    def learn(self, rows: int, drafted: int, given: int, context: int, seconds: float) -> None:
        """Learn from a pass."""

    def why(self) -> str:
        """Return what was learnt, in a few words."""
        return "a fixed number"


@lru_cache
def _guess(rows: int) -> CostCurve:
    """Return what passes over so many requests may cost, by 1 + the number of drafted tokens."""
    return CostCurve.of({n: _GUESS * (1 + _SLOPE * (rows + n - 2)) for n in (1, _WIDEST)})


class GoodputChains:
    """As much as gives the most expected tokens per second, possibly nothing; at most ``most`` of each chain.

    Costs are learnt for each size of the batch (up to a fourth) by the number of drafted tokens; none is the plain
    pass. Where drafts do not pay, drafters are asked less and less, at least every 32nd step.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._costs: dict[int, CostModel] = {}  # by the size of the batch: of passes over 1 + drafted tokens
        self._losses: dict[int, Losses] = {}
        self._choices = 0
        self._again: dict[tuple[int, int], int] = {}  # by batch and width, the choice from which to try it again
        self._overhead, self._asking = Overhead(), QuietSteps(asking_accounts())
        self._expected = 0.0  # of the last pass with a draft: plain passes that it takes

    def _size(self, rows: int) -> int:
        return rows if rows <= 4 else round(4 + 3 * math.log2(rows / 4))

    def _cost(self, rows: int) -> CostModel:
        """Return the costs for this size of the batch, at first those of the nearest one, or a guess."""
        return of_size(self._costs, self._size(rows), guess=_guess(rows))

    def wants_drafts(self, own_s: float, *, asked: bool) -> bool:
        """Return whether drafters are asked now; the last step took ``own_s`` seconds here, ``asked`` or not."""
        self._overhead.count(own_s, asked=asked, drafted=False)
        return self._asking.begin(repeating=False)

    def choose(self, reach: Floats, rows: int, context: int) -> Positions:
        """Return how much of each chain is drafted, int64[chains].

        ``reach`` float32[chains, longest] says how likely each token is reached and right, 0 after the end of a
        chain. The batch has ``rows`` requests, with a chain or without; its longest text has ``context`` tokens.
        """
        chains, width = reach.shape[0], min(self._most, reach.shape[1])
        size = self._size(rows)
        model, losses = self._cost(rows), self._losses.setdefault(size, Losses())
        likely = reach[:, :width].ravel()
        order = (-likely).argsort(kind="stable")[: np.count_nonzero(likely)]  # stable: tokens stay in their chains
        tokens = np.concatenate(((0.0,), likely[order].cumsum(dtype=np.float64))) + rows
        times = model.table(1 + max(chains * width, 8 * rows), context)[1:] + self._overhead.vain
        plain = float(times[0])
        best = int((tokens / times[: len(tokens)]).argmax())
        if tokens[best] * plain < losses.demand * tokens[0] * times[best]:
            best = 0
        count = self._explored(size, tokens, times[: len(tokens)], best)
        saved = float(tokens[best]) * plain / rows - float(times[best])
        self._asking.learn(saved, self._overhead.of_asking, plain, keep_on=count > best)
        self._expected = float(times[count]) / plain
        return np.bincount(order[:count] // max(1, width), minlength=chains)

    def _explored(self, size: int, tokens: Doubles, times: Doubles, best: int) -> int:
        """Return ``best`` or, if the budget allows, a number whose cost is not known: far larger ones, too.

        A guess lies far off what passes with many requests cost on a GPU, where a hundred tokens more may take no
        time; and trying a few does not tell.
        """
        model, count = self._costs[size], len(tokens) - 1
        self._choices += 1
        if not count:
            model.earn(1.0)
            return best
        while count > best and count > 1:
            place = size, octave(1 + count)
            promised = float(tokens[count] / tokens[0]) - 1
            regret = float(times[count] / times[0]) - 1 - _KEPT * promised
            known = model.is_known(1 + count, _OFTEN) or self._choices < self._again.get(place, 0)
            if promised > _WORTH and regret <= model.exploration_budget and not known:
                model.regretted(regret)
                self._again[place] = self._choices + _PATIENCE
                return count
            count //= 4
        model.earn(float(times[best] / times[0]))
        count, regret = model.explored(1, tokens.tolist(), times.tolist(), best, 0.0)
        model.regretted(regret)
        return count

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
