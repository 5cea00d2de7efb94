"""How much of each request's chain is drafted, decided for a whole batch at once.

vLLM tells neither what a pass costs nor which drafts it took. The time between two calls stands for the cost of a
pass, with all that vLLM does around it.
"""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import State
from draftwood.errors import UsageError
from draftwood.planning.base import TreePlanner
from draftwood.planning.cooldown import Cooldown
from draftwood.planning.cost_model import CostModel
from draftwood.planning.exploring import earn, explored
from draftwood.planning.fixed import FixedPlanner
from draftwood.planning.goodput import GoodputPlanner
from draftwood.planning.learned import Learned
from draftwood.planning.load import load as load_planner
from draftwood.planning.losses import Losses
from draftwood.step import RunningStep

Floats = NDArray[np.float32]
Longs = NDArray[np.int64]

_LEAST, _MOST = 0.01, 0.5  # bounds of the floor
_SAFE = 0.5  # the floor is this share of what a draft token must promise on average


def planner_of(spec: str, learned: Learned) -> FixedChains | GoodputChains:
    """Return the planner of this name; `UsageError` for one that is not offered inside vLLM."""
    named: Any = load_planner(spec, learned)
    if isinstance(named, TreePlanner) and named.policies:
        names = " and ".join(policy.name for policy in named.policies)
        raise UsageError(
            f"policies ({names}) are not offered inside vLLM: name goodput, fixed:16, threshold or off"
        )
    if isinstance(named, FixedPlanner):
        return FixedChains(named.nodes, named.floor)
    assert isinstance(named, GoodputPlanner)
    return GoodputChains(named.most, learned)


class FixedChains:
    """At most so many tokens of each chain, as far as they are likely enough; costs are not looked at."""

    def __init__(self, nodes: int, floor: float) -> None:
        self._nodes, self.floor = nodes, floor

    def wants_drafts(self, own_s: float, *, asked: bool) -> bool:  # noqa: ARG002
        """Return whether drafters are asked in this step."""
        return self._nodes > 0

    def choose(self, reach: Floats, context: int) -> Longs:  # noqa: ARG002
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

    def __init__(self, most: int, learned: Learned) -> None:
        self._most, self._learned = most, learned
        self._losses: dict[int, Losses] = {}
        self._cooldown = Cooldown()
        self._own = _Own()
        self._expected = 0.0  # of the last pass with a draft: plain passes that it takes
        self.floor = 0.0

    def _size(self, rows: int) -> int:
        return rows if rows <= 4 else round(4 + 3 * math.log2(rows / 4))

    def _cost(self, rows: int) -> CostModel:
        return self._learned.cost(1 << self._size(rows))  # models are kept by the number of bits

    def wants_drafts(self, own_s: float, *, asked: bool) -> bool:
        """Return whether drafters are asked now; the last step took ``own_s`` seconds here, ``asked`` or not."""
        self._own.step.draft_s = own_s
        return self._cooldown.begin([cast("State", self._own)], asked=asked)

    def choose(self, reach: Floats, context: int) -> Longs:
        """Return how much of each chain is drafted, int64[rows].

        ``reach`` float32[rows, longest]: how likely each token is reached and right, 0 behind the end of a chain.
        """
        rows, longest = reach.shape
        model, losses = self._cost(rows), self._losses.setdefault(self._size(rows), Losses())
        every = reach[:, : self._most].ravel() if self._most < longest else reach.ravel()
        order = (-every).argsort(kind="stable")[: int(np.count_nonzero(every))]
        tokens = np.empty(1 + len(order))
        tokens[0] = 0
        np.cumsum(every[order], out=tokens[1:])
        tokens += rows
        table = model.table(1 + max(len(order), 8 * rows), context)[1:] + self._cooldown.overhead
        times = table[: len(tokens)]
        rates = tokens / times
        best = int(rates.argmax())
        if rates[best] < losses.demand * rates[0]:
            best = 0
        plain = float(times[0])
        count = explored(model, 1, tokens, times, best) if len(order) else best  # type: ignore[arg-type]
        if not len(order):
            earn(model, 1.0)
        self._cooldown.learn(float(tokens[best]) * plain / rows - float(times[best]), plain, keep_on=False)
        self._expected = float(times[count]) / plain
        needed = (rows * (table[1:] / plain - 1) / np.arange(1, len(table))).min()
        self.floor = min(_MOST, max(_LEAST, _SAFE * float(needed)))
        width = min(self._most, longest)
        return np.bincount(order[:count] // width, minlength=rows) if count else np.zeros(rows, dtype=np.int64)

    def learn(self, rows: int, drafted: int, given: int, context: int, seconds: float) -> None:
        """Learn from a pass over ``rows`` requests and ``drafted`` tokens, which has given so many tokens."""
        self._cost(rows).learn(1 + drafted, context, seconds)
        if drafted and (losses := self._losses.get(self._size(rows))) is not None:
            losses.learn(given / rows, self._expected)

    def why(self) -> str:
        """Return what was learnt, in a few words."""
        known = sorted(size for size, model in self._learned.costs.items() if model.passes)
        said = []
        for size in known:
            times = self._learned.costs[size].times(0, 9, 0)
            said.append(f"{times[1] * 1e3:.1f}/{times[9] * 1e3:.1f}")
        return f"ms of passes with 0/8 drafted tokens, by size of the batch: {', '.join(said) or 'none measured'}"


class _Own:
    """What this side of a step has taken: as much of a `State` as `Cooldown` looks at."""

    drafters = ()
    traced = False

    def __init__(self) -> None:
        self.step = RunningStep(0, 0)
