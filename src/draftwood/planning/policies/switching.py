"""Policy ``switching``: asks only the drafter that has given most tokens per second, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from draftwood.contracts import Declaration, State
from draftwood.planning import LONGEST, SHORTEST
from draftwood.planning.base import Limit
from draftwood.planning.learned import Learned
from draftwood.planning.turns import Turns

_MOST_SETS = 256  # sets of drafters that are known; the oldest is forgotten


@dataclass(slots=True)
class _Request:
    turns: Turns  # of its set of drafters when it was asked last
    arm: int
    why: str
    asks: bool  # whether anybody is asked with this arm
    is_first: bool = True  # whether the step under way is the first one with this arm


class SwitchingPolicy:
    """Tries the drafters of a set in turns and keeps to what gives most tokens per second.

    Of a set without models: all drafters, or one of them. Drafters that own models (`Needs.prices`) each take time
    and spoil the others' prices, so at most one of these is asked; the others of such a set always are.
    ``learned`` keeps what was found for all calls with the target; its lock is held by the planner. A model that
    was not asked reads what it has missed when it is asked again: that step rates nobody.
    """

    name = "switching"

    def __init__(self, *, learned: Learned | None = None) -> None:
        self._turns = (learned if learned is not None else Learned()).turns
        self._requests: WeakKeyDictionary[State, _Request] = WeakKeyDictionary()
        self._rows = 1  # requests that share the pass

    def limit(self, state: State, rows: int, nodes: int) -> Limit:
        self._rows, drafters = rows, state.drafters
        if sum(drafter is not None for drafter in drafters) < 2:
            self._requests.pop(state, None)
            return Limit(why="one drafter: nothing to choose")
        known = self._requests.get(state)
        if not nodes:  # no drafter will be asked, so there is nothing to choose
            return Limit(why="nothing decided yet" if known is None else known.why)
        chosen = _arms(drafters)
        turns = self._of(drafters, len(chosen))
        arm = turns.arm()
        mask, who = chosen[arm]
        if known is None or known.turns is not turns or known.arm != arm:
            self._requests[state] = _Request(turns, arm, who, any(mask))
        return Limit(drafters=None if all(mask) else mask, why=who)

    def learn(self, state: State) -> None:
        request, step = self._requests.get(state), state.step
        if request is None or not SHORTEST < step.score_s <= step.seconds < LONGEST:
            return
        asked = any(source.calls for source in step.by_source)
        if request.is_first or asked != request.asks:  # the planner or another policy has asked nobody
            request.is_first = False
            request.turns.skip(request.arm)
            return
        drafting = sum(source.draft_s for source in step.by_source)
        seconds = step.score_s / self._rows + step.overhead_s - step.draft_s + drafting
        request.turns.learn(request.arm, len(step.emitted), seconds)

    def _of(self, drafters: Sequence[Declaration | None], arms: int) -> Turns:
        labels = tuple(drafter.label if drafter is not None else "" for drafter in drafters)
        turns = self._turns.get(labels)
        if turns is None:
            if len(self._turns) >= _MOST_SETS:
                del self._turns[next(iter(self._turns))]
            turns = self._turns[labels] = Turns(arms)
        return turns


def _arms(drafters: Sequence[Declaration | None]) -> list[tuple[list[bool], str]]:
    """Return what there is to choose from: which drafters are asked, and who that is in a few words."""
    here = [(i, drafter) for i, drafter in enumerate(drafters) if drafter is not None]
    owners = [(i, drafter) for i, drafter in here if drafter.needs.prices]
    if owners:
        others = [drafter is not None and not drafter.needs.prices for drafter in drafters]
        alone = [([may or i == owner for i, may in enumerate(others)], drafter.name) for owner, drafter in owners]
        return [(others, "no draft model"), *alone]
    every = ([True] * len(drafters), "all drafters")
    return [every, *[([i == one for i in range(len(drafters))], drafter.name) for one, drafter in here]]
