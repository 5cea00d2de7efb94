"""Watching: drafters that need the target's top tokens cost time in every step, asked or not. While their drafts
save less than that they rest: they are neither asked nor shown scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from draftwood.contracts import Declaration, State
from draftwood.planning.drafter_budget import gain
from draftwood.planning.ranking import Ranking

_TRIAL = 24  # steps after which a drafter is judged, and again after half as many
_REST, _LONGEST = 32, 512  # steps of the first rest and of the longest; each is twice as long as the one before


@dataclass(slots=True)
class _Account:
    """One drafter's seconds taken and saved since its trial began, in so many steps; its rest in steps."""

    taken: float = 0.0
    saved: float = 0.0
    steps: int = 0
    left: int = 0
    rest: int = _REST


class Watching:
    """Decides which drafters that need scores rest, from the seconds that they take and save over all requests."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self.resting: frozenset[str] = frozenset()  # labels

    def begin(self, states: Sequence[State]) -> None:
        """Count what the drafters took in the last step, and judge those whose trial is over."""
        if not self._accounts and not any([_needs_scores(d) for state in states for d in state.drafters]):
            return
        taken: dict[str, float] = {}
        for state in states:
            watching = [
                (drafter.label, own)
                for drafter, own in zip(state.drafters, state.step.by_source, strict=False)
                if drafter is not None and _needs_scores(drafter) and drafter.label not in self.resting
            ]
            if watching and state.step.emitted and not state.traced:
                # What all have learnt is not yet everything: finding the top tokens is in the step's time alone.
                shared = state.step.learn_s - sum([own.learn_s for own in state.step.by_source])
                for label, own in watching:
                    spent = own.draft_s + own.learn_s + max(0.0, shared) / len(watching)
                    taken[label] = taken.get(label, 0.0) + spent
        for label, seconds in taken.items():
            account = self._accounts.setdefault(label, _Account())
            account.taken += seconds
            account.steps += 1
        for account in self._accounts.values():
            _judge(account)
        self.resting = frozenset([label for label, account in self._accounts.items() if account.left])

    def learn(
        self, states: Sequence[State], rankings: Sequence[Ranking], times: Sequence[float], best: int
    ) -> None:
        """Count what the drafters save in this step, of which ``best`` candidates will be scored."""
        if not best:
            return
        for label, account in self._accounts.items():
            if not account.left:
                mine = [[d is not None and d.label == label for d in state.drafters] for state in states]
                account.saved += max(0.0, gain(mine, rankings, times, best))

    def why(self) -> list[str]:
        """Return which drafters rest at present, and why, as text for ``draftwood explain``."""
        return [
            f"{label.partition(' ')[0]} rests for {own.left} steps: it takes more time than it saves"
            for label, own in self._accounts.items()
            if own.left
        ]


def _needs_scores(drafter: Declaration | None) -> bool:
    return drafter is not None and drafter.needs.top_k > 0


def _judge(account: _Account) -> None:
    if account.left:
        account.left -= 1
        return
    if account.steps < _TRIAL:
        return
    if account.saved >= account.taken:
        account.taken, account.saved, account.steps = account.taken / 2, account.saved / 2, _TRIAL // 2
        account.rest = _REST
    else:
        account.left, account.rest = account.rest, min(_LONGEST, 2 * account.rest)
        account.taken = account.saved = 0.0
        account.steps = _TRIAL // 3
