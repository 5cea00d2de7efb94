"""Sources whose drafting takes a noticeable share of a pass: asked while they pay, and again now and then."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.contracts import State
from draftwood.planning.cost_model import Doubles
from draftwood.planning.ranking import Ranking

NOTICEABLE = 0.02
"""Share of a pass below which a source is always asked: finding out more would cost as much."""

_FIRST = 4  # steps in which a new source, or one that is tried again, is asked whatever it gives
_PAUSE, _LONGEST = 8, 256  # steps without it after it did not pay: doubled each time
_STALL = 1.0  # passes that one draft may take at most, as far as accounts go
_KEEP = 0.9  # of what a source gained in the steps before


@dataclass(slots=True)
class _Account:
    """What one source took and gave per step, in seconds."""

    cost: float = 0.0
    gain: float = 0.0
    asked: int = 0
    waiting: int = 0
    pause: int = _PAUSE


class DrafterBudget:
    """Keeps the accounts of sources, over all requests."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def allows(self, key: str) -> bool:
        """Whether to ask this source now."""
        account = self._accounts.get(key)
        return account is None or not account.waiting

    def waits(self) -> None:
        """A step begins."""
        for account in self._accounts.values():
            if account.waiting:
                account.waiting -= 1
                account.asked = 0

    def learn(
        self,
        states: Sequence[State],
        rankings: Sequence[Ranking],
        times: Doubles,
        best: int,
        apart: Container[str] = (),
    ) -> None:
        """Take in what sources took for this step's proposals, and how much slower it would go without them.

        Parameters
        ----------
        states, rankings
            Of all requests of the pass.
        times : float64[n + 1]
            Seconds of the pass by how many candidates it scores.
        best
            How many it will score.
        apart
            Sources that are judged elsewhere.
        """
        costs: dict[str, float] = {}
        for state in states:
            for drafter, own in zip(state.drafters, state.step.by_source, strict=True):
                if drafter is not None and own.calls and (key := drafter.label) not in apart:
                    costs[key] = costs.get(key, 0.0) + own.draft_s
        plain = float(times[0])
        for key, cost in costs.items():
            account = self._accounts.get(key)
            if account is None and cost < NOTICEABLE * plain:
                continue
            account = self._accounts.setdefault(key, _Account())
            mine = [[d is not None and d.label == key for d in state.drafters] for state in states]
            self._settle(account, min(cost, _STALL * plain), _gain(mine, rankings, times, best), plain)

    @staticmethod
    def _settle(account: _Account, cost: float, gain: float, plain: float) -> None:
        account.asked += 1
        keep = min(_KEEP, 1 - 1 / account.asked)
        account.cost = keep * account.cost + (1 - keep) * cost
        account.gain = keep * account.gain + (1 - keep) * gain
        if account.asked < _FIRST:
            return
        if account.cost < NOTICEABLE * plain or account.gain >= account.cost:
            account.pause = _PAUSE
        else:
            account.waiting, account.pause = account.pause + 1, min(_LONGEST, 2 * account.pause)

    def why(self) -> list[str]:
        """Say which sources are not asked, and why."""
        return [
            f"{key.partition(' ')[0]} rests for {own.waiting} steps: "
            f"drafting takes {1000 * own.cost:.1f} ms and saves {1000 * own.gain:.1f}"
            for key, own in self._accounts.items()
            if own.waiting
        ]


def _gain(mine: Sequence[Sequence[bool]], rankings: Sequence[Ranking], times: Doubles, best: int) -> float:
    """Seconds that this step's tokens would take more without a source; ``mine`` says which it is in each set."""
    every, others = [], []
    for own, ranking in zip(mine, rankings, strict=True):
        kept = np.zeros(len(ranking.tree) + 1, dtype=np.bool_)
        for is_mine, places in zip(own, ranking.node_map, strict=True):
            if not is_mine:
                kept[places] = True
        every.append(ranking.worth)
        others.append(ranking.worth[kept[ranking.order]])
    rows = len(rankings)
    all_worth, worth = (-np.sort(-np.concatenate(some)) for some in (every, others))
    tokens = np.cumsum(np.concatenate(((float(rows),), worth)))[: len(times)]
    without = (times[: len(tokens)] / tokens).min()
    return float((rows + all_worth[:best].sum()) * without - times[best])
