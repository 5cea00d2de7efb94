"""Policy ``switching``: asks only the drafter that has given most tokens per second, or all of them.

The rule is discounted UCB: Garivier and Moulines, "On Upper-Confidence Bound Policies for Switching Bandit
Problems", ALT 2011, arXiv 0805.3415, with a bonus that is a share of the rate, in turns of a few steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from draftwood.contracts import Declaration, State
from draftwood.planning import KEEP_LONG, LONGEST, SHORTEST
from draftwood.planning.base import Limit
from draftwood.planning.learned import Learned

TURN = 12  # steps for which an arm stays in use
_BONUS = 0.5
"""Exploration bonus after one step, as a share of the arm's rate; it falls with the square root of the steps."""
_FIRST = 8  # steps before which an arm counts as not tried
_LEAST = 0.25  # fewest steps in that, so the bonus is at most 1: an arm less than half as fast is not tried again
_CAP = 4.0  # a step counts as at most this many times the arm's usual seconds
_MOST_SETS = 256  # sets of drafters that are known; the oldest is forgotten


@dataclass(slots=True)
class _Tally:
    """Tokens, seconds and number of steps of an arm, older ones counting less."""

    tokens: float = 0.0
    seconds: float = 0.0
    steps: float = 0.0
    tried: int = 0  # all steps

    @property
    def value(self) -> float:
        if self.tried < _FIRST:
            return float("inf")
        rate = self.tokens / self.seconds if self.seconds > 0 else 0.0
        return rate * (1 + _BONUS / max(_LEAST, self.steps) ** 0.5)


class Turns:
    """Chooses one of ``arms``. The caller locks it."""

    def __init__(self, arms: int) -> None:
        self._tallies = [_Tally() for _ in range(arms)]
        self._arm = self._left = 0  # in use, for so many more steps

    def arm(self) -> int:
        """Return the arm to use in the next step."""
        if self._left <= 0:
            values = [tally.value for tally in self._tallies]
            best = max(values)
            if values[self._arm] < best:  # of equals the one in use stays
                self._arm = values.index(best)
            self._left = TURN
        return self._arm

    def learn(self, arm: int, tokens: float, seconds: float) -> None:
        for tally in self._tallies:
            tally.tokens *= KEEP_LONG
            tally.seconds *= KEEP_LONG
            tally.steps *= KEEP_LONG
        own = self._tallies[arm]
        seconds = min(seconds, _CAP * own.seconds / own.steps) if own.steps else seconds
        own.tokens, own.seconds, own.steps = own.tokens + tokens, own.seconds + seconds, own.steps + 1
        own.tried += 1
        self.skip(arm)

    def skip(self, arm: int) -> None:
        """Count a step that says nothing of the arm, as the first one after another arm."""
        self._left -= arm == self._arm


@dataclass(slots=True)
class _Request:
    turns: Turns  # of its set of drafters when it was asked last
    arm: int
    why: str
    asks: bool  # whether a drafter is asked with this arm
    is_first: bool = True  # whether the step under way is the first one with this arm


class SwitchingPolicy:
    """Tries the drafters of a set in turns and keeps to what gives most tokens per second.

    Of a set without models: all drafters, or one of them. Drafters that own models (`Needs.prices`) each take time
    and spoil the others' prices, so at most one of these is asked; the others of such a set always are.
    ``learned`` keeps what was found for all calls with the target; its lock is held by the planner. A model that
    was not asked reads what it has missed when it is asked again: that step rates no arm.
    """

    name = "switching"

    def __init__(self, *, learned: Learned | None = None) -> None:
        self._turns: dict[tuple[str, ...], Turns] = (learned if learned is not None else Learned()).turns
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
        if request.is_first or asked != request.asks:  # the planner or another policy has asked no drafter
            request.is_first = False
            request.turns.skip(request.arm)
            return
        drafting = sum(source.draft_s for source in step.by_source)
        seconds = step.score_s / self._rows + step.overhead_s - step.draft_s + drafting
        request.turns.learn(request.arm, len(step.emitted), seconds)

    def _of(self, drafters: Sequence[Declaration | None], arms: int) -> Turns:
        labels = tuple(drafter.label if drafter is not None else "" for drafter in drafters)
        if labels not in self._turns and len(self._turns) >= _MOST_SETS:
            del self._turns[next(iter(self._turns))]
        return self._turns.setdefault(labels, Turns(arms))


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
