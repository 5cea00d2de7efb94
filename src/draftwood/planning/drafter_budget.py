"""Drafter budget: asks a slow drafter only while its drafts save more time than they take."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import truediv

import numpy as np

from draftwood.contracts import State
from draftwood.planning.ranking import Ranking

NOTICEABLE = 0.02  # A drafter that takes less than this share of a plain pass is always asked

_FIRST = 4  # steps in which a new or retried drafter is asked before it is judged
_PAUSE, _LONGEST = 8, 256  # steps without a drafter that costs more than it saves: doubled each time, at most 256
_STALL, _PASSES = 1.0, 4.0
"""The time of one draft counts as at most this many plain passes; the second is for drafters that run passes."""
_KEEP = 0.9  # weight of earlier steps in the averages


@dataclass(slots=True)
class _Account:
    """One drafter's average seconds per step taken (``cost``) and saved (``gain``), and its pause in steps."""

    cost: float = 0.0
    gain: float = 0.0
    asked: int = 0
    waiting: int = 0
    pause: int = _PAUSE


class DrafterBudget:
    """Decides for each slow drafter whether to ask it, from the seconds it takes and saves over all requests."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def allows(self, label: str) -> bool:
        """Return whether to ask the drafter with this label in this step."""
        account = self._accounts.get(label)
        return account is None or not account.waiting

    def begin(self) -> None:
        """Count down the pauses at the start of a step."""
        for account in self._accounts.values():
            if account.waiting:
                account.waiting -= 1
                account.asked = 0

    def learn(
        self, states: Sequence[State], rankings: Sequence[Ranking], times: Sequence[float], best: int,
        apart: Container[str] = (),
    ) -> None:  # fmt: skip
        """Learn from a step what each drafter costs and saves, labels in ``apart`` left out. ``times`` (float64[n
        + 1]): the pass's seconds by the number of candidates scored, of which it will score ``best``.
        """
        costs: dict[str, float] = {}
        plain, accounts = times[0], self._accounts
        for state in states:
            for drafter, own in zip(state.drafters, state.step.by_source, strict=True):
                if own.calls and drafter is not None:
                    costs[drafter.label] = costs.get(drafter.label, 0.0) + own.draft_s
        for label, cost in costs.items():
            account = accounts.get(label)
            if (cost < NOTICEABLE * plain and account is None) or label in apart:
                continue
            mine = [[d is not None and d.label == label for d in state.drafters] for state in states]
            runs_passes = any(d is not None and d.label == label and d.needs.prices for d in states[0].drafters)
            if account is None:
                account = accounts[label] = _Account()
                if runs_passes:  # its first draft has read the prompt, and warmed up
                    continue
            most = (_PASSES if runs_passes else _STALL) * plain
            _settle(account, min(cost, most), gain(mine, rankings, times, best), plain)

    def why(self) -> list[str]:
        """Return which drafters are not asked at present, and why, as text for ``draftwood explain``."""
        return [
            f"{label.partition(' ')[0]} is not asked for {own.waiting} steps: "
            f"drafting takes {1000 * own.cost:.1f} ms and saves {1000 * own.gain:.1f}"
            for label, own in self._accounts.items()
            if own.waiting
        ]


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


def gain(mine: Sequence[Sequence[bool]], rankings: Sequence[Ranking], times: Sequence[float], best: int) -> float:
    """Return how many seconds longer this step's expected tokens take without the drafter that ``mine`` marks."""
    rows = len(rankings)
    if rows == 1:
        return _gain_of_one(mine[0], rankings[0], times, best)
    every, others = [], []
    for own, ranking in zip(mine, rankings, strict=True):
        kept = np.zeros(len(ranking.tree) + 1, dtype=np.bool_)
        for is_mine, places in zip(own, ranking.node_map, strict=True):
            if not is_mine:
                kept[places] = True
        worth = np.array(ranking.worth)
        every.append(worth)
        others.append(worth[kept[list(ranking.order)]])
    all_worth, worth = (-np.sort(-np.concatenate(some)) for some in (every, others))
    tokens = np.cumsum(np.concatenate(((float(rows),), worth)))[: len(times)]
    without = (np.array(times[: len(tokens)]) / tokens).min()
    return float((rows + all_worth[:best].sum()) * without - times[best])


def _gain_of_one(mine: Sequence[bool], ranking: Ranking, times: Sequence[float], best: int) -> float:
    """Do what `gain` does for one request, on lists."""
    others: set[int] = set()
    for is_mine, places in zip(mine, ranking.node_map, strict=True):
        if not is_mine:
            others.update(places.tolist())
    without = times[0]
    if others:
        worth = [chance for node, chance in zip(ranking.order, ranking.worth, strict=True) if node in others]
        without = min(map(truediv, times, accumulate(worth, initial=1.0)))
    return (1 + sum(ranking.worth[:best])) * without - times[best]
