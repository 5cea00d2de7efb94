"""Drafter budget: a slow drafter is asked while it saves more time than it takes, and retried now and then."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import numpy as np

from draftwood.contracts import State
from draftwood.planning.cost_model import Doubles
from draftwood.planning.ranking import Ranking

NOTICEABLE = 0.02
"""A drafter that takes less than this share of a pass is always asked."""

_FIRST = 4  # steps in which a new or retried drafter is asked whatever it saves
_PAUSE, _LONGEST = 8, 256  # steps without it after it cost more than it saved; doubled each time
_STALL = 1.0  # one draft counts as taking at most so many passes
_KEEP = 0.9  # weight of earlier steps in cost and gain


@dataclass(slots=True)
class _Account:
    """Seconds that one drafter takes and saves per step."""

    cost: float = 0.0
    gain: float = 0.0
    asked: int = 0
    waiting: int = 0
    pause: int = _PAUSE


class DrafterBudget:
    """Compares what each slow drafter takes with what it saves, over all requests."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def allows(self, key: str) -> bool:
        """Return whether to ask this drafter in this step."""
        account = self._accounts.get(key)
        return account is None or not account.waiting

    def waits(self) -> None:
        """Count down the pauses: a step begins."""
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
        """Take in how long drafters took for this step, and how much slower the step would be without each.

        Parameters
        ----------
        states, rankings
            Of all requests of the pass.
        times : float64[n + 1]
            Seconds of the pass by how many candidates it scores.
        best
            How many it will score.
        apart
            Drafters that are judged elsewhere.
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
        """Return which drafters are not asked at present, and why, for people."""
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
