"""Of the drafters of a set that own models, at most one is asked at a time: the one that pays best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from draftwood.contracts import Declaration, State
from draftwood.planning.learned import Learned
from draftwood.planning.turns import Turns

_MOST_SETS = 256  # sets of drafters that are known; the oldest is forgotten
_NONE = 0  # the arm in which none of them is asked; arm ``1 + i`` is the i-th of them


@dataclass(slots=True)
class _Request:
    turns: Turns  # of its set of drafters when it was asked last
    arm: int
    is_first: bool = True  # whether the step under way is the first one with this arm


class Exclusive:
    """Chooses which of the drafters with models is asked beside the others, for each kind of text.

    What each has given is kept in ``learned``, whose lock the caller holds (`TreePlanner` does). A model that is
    not asked reads nothing. When it is asked again it reads what it has missed; that step is not used to rate any
    drafter.
    """

    def __init__(self, learned: Learned) -> None:
        self._turns = learned.turns
        self._requests: WeakKeyDictionary[State, _Request] = WeakKeyDictionary()

    @staticmethod
    def concerns(drafters: Sequence[Declaration | None]) -> bool:
        """Whether there is something to choose: a drafter with a model, and another drafter."""
        here = [drafter for drafter in drafters if drafter is not None]
        return len(here) > 1 and any(drafter.needs.prices for drafter in here)

    def mask(self, state: State, kind: str) -> tuple[list[bool], str]:
        """Return which drafters may be asked in the step that begins, and who that is in a few words."""
        drafters = state.drafters
        owners = [i for i, drafter in enumerate(drafters) if drafter is not None and drafter.needs.prices]
        turns = self._of(state)
        arm = turns.arm(kind)
        request = self._requests.get(state)
        if request is None or request.turns is not turns or request.arm != arm:
            self._requests[state] = _Request(turns, arm)
        chosen = None if arm == _NONE else owners[arm - 1]
        mask = [i not in owners or i == chosen for i in range(len(drafters))]
        named = drafters[chosen] if chosen is not None else None
        return mask, "no draft model" if named is None else named.name

    def learn(self, state: State, kind: str, rows: int) -> None:
        """Learn from a finished step of one of ``rows`` texts that shared the pass."""
        request, step = self._requests.get(state), state.step
        if request is None:
            return
        if request.is_first:
            request.is_first = False
            request.turns.skip(kind, request.arm)
            return
        drafting = sum(source.draft_s for source in step.by_source)
        seconds = step.score_s / rows + step.overhead_s - step.draft_s + drafting
        request.turns.learn(kind, request.arm, len(step.emitted), seconds)

    def _of(self, state: State) -> Turns:
        labels = tuple(drafter.label for drafter in state.drafters if drafter is not None)
        turns = self._turns.get(labels)
        if turns is None:
            if len(self._turns) >= _MOST_SETS:
                del self._turns[next(iter(self._turns))]
            owners = sum(drafter is not None and drafter.needs.prices for drafter in state.drafters)
            turns = self._turns[labels] = Turns(1 + owners)
        return turns
