"""The default planner: scores the number of candidates that gives the most expected tokens per second. All numbers
are compared, because costs rise in jumps; LOG.md compares this rule with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, chain, repeat
from operator import add, truediv
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Ask, Capabilities, Feedback, Plan, State
from draftwood.errors import UsageError
from draftwood.planning.ab_test import ABTest
from draftwood.planning.base import NOTHING, RESTING, Policy, TreePlanner
from draftwood.planning.cooldown import Cooldown
from draftwood.planning.cost_model import CostModel
from draftwood.planning.drafter_budget import DrafterBudget
from draftwood.planning.exploring import earn, explored
from draftwood.planning.learned import Learned
from draftwood.planning.losses import Losses
from draftwood.planning.pace import Pace
from draftwood.planning.ranking import Ranking, nothing_planned
from draftwood.planning.repeats import Repeats
from draftwood.planning.watching import Watching
from draftwood.tree import TokenTree

MOST = 64  # most draft nodes of one request

_MOST_LOOKAHEAD = 256  # lookahead nodes of one drafter in one pass
_FEW = 4  # requests whose texts are looked at for repeats
_LEAST = 8  # a step asks drafters for at least this many draft nodes
_SOON, _SELDOM = 16, 4
"""After so many steps in which drafters were asked, only each fourth is judged: what they save, and which width to
measure."""
_IDLE = 4  # of the steps in which nobody is asked, only each fourth is learnt from
_SHRINK, _SPARE = 0.98, 1.5  # the number asked for shrinks by 2 % per step, to 1.5 times what was worth scoring


@dataclass(slots=True)
class _Choice:
    """The decision for the pass under way: expected seconds and tokens by the number of candidates scored."""

    model: CostModel
    context: int
    times: Sequence[float]
    tokens: Sequence[float]
    best: int  # number of candidates with the highest rate
    count: int  # number that is scored: ``best``, or another one to measure its cost


class GoodputPlanner(TreePlanner):
    """Scores at most ``most`` draft nodes per request, as many as give the most expected tokens per second."""

    name = "goodput"

    def __init__(
        self, most: int = MOST, *, learned: Learned | None = None, policies: Sequence[Policy] = ()
    ) -> None:
        super().__init__(learned, policies)
        if most < 0:
            raise UsageError(f"goodput: most is {most}: use 0 draft nodes or more")
        self.most = most
        self._reach = self._first_reach()
        self._cooldown = Cooldown()
        self._asking = False  # whether drafters are asked in this session's step
        self._asked = 0  # steps in which they were
        self._judged = True  # whether this step says something about what drafters save
        self._budget = DrafterBudget()
        self._watching = Watching()
        self._ab_tests: dict[str, ABTest] = {}  # of lookahead nodes, by the drafter's label
        self._losses = Losses()
        self._repeats: dict[int, Repeats] = {}  # by the identity of the request
        self._choice: _Choice | None = None
        self._drafted = False  # whether the last pass had a draft
        self._pace, self._priced = Pace(), False  # whether a drafter goes by prices
        self._is_idle = False  # nobody is asked in this step, nor shown why
        self._unlearnt = 0  # idle steps that were not learnt from yet

    def open(self) -> Self:
        session = super().open()
        session._losses, session._repeats, session._drafted = Losses(), {}, False
        session._pace = Pace()
        with self.learned.lock:
            session._reach = self._first_reach()
        return session

    def _first_reach(self) -> float:
        """Return the draft nodes to ask for in a first step: few while the cost of a pass is only guessed."""
        model = self.learned.cost(1)
        known = model.measured or model.passes > _LEAST
        return float(min(self.most, 2 * _LEAST if known else _LEAST // 2))

    def wish(self, states: Sequence[State]) -> int:
        self._choice = None
        self._asking = any([state.drafters for state in states]) and self._is_time(states)
        nodes = min(self.most, int(self._reach)) if self._asking else 0
        self._asked += self._asking
        self._judged = self._asked <= _SOON or not self._asked % _SELDOM
        self._is_idle = not (nodes or self.policies or any([state.traced for state in states]))
        if nodes:
            drafters = [drafter for state in states for drafter in state.drafters]
            self._priced = any([drafter is not None and drafter.needs.prices for drafter in drafters])
            if self._priced:
                self.prices = self._pace.prices(self.learned.cost(len(states)), states)
        return nodes

    def _is_time(self, states: Sequence[State]) -> bool:
        """Return whether drafters are asked in the step that begins."""
        self._budget.begin()
        self._watching.begin(states)
        return self._cooldown.begin(states, asked=self._asking, repeating=self._is_repeating(states))

    def _is_repeating(self, states: Sequence[State]) -> bool:
        """Whether one of the texts repeats itself at its end; of many texts one would nearly always."""
        if len(states) > _FEW:
            return False
        known, found = self._repeats, False
        for state in states:
            repeats = known.get(id(state))
            if repeats is None:  # somebody has come; who has left is forgotten
                known = self._repeats = {id(one): known.get(id(one)) or Repeats() for one in states}
                repeats = known[id(state)]
            found = repeats.at_end_of(state.ids) or found
        return found

    def _ask(self, state: State, rows: int) -> list[Ask]:
        asks = super()._ask(state, rows)
        if resting := self._watching.resting:
            for i, drafter in enumerate(state.drafters):
                if drafter is not None and drafter.label in resting:
                    asks[i] = RESTING
        return asks

    def ask_one(self, drafter: Any, state: State, nodes: int, lookahead_nodes: int) -> Ask:
        key = drafter.label
        if not self._budget.allows(key) or key in self._watching.resting:
            return NOTHING
        if drafter.needs.prices and not self.prices.pass_s:  # no pass was measured yet
            return NOTHING
        ab_test = self._ab_tests.get(key)
        if ab_test is not None and not ab_test.on:
            lookahead_nodes = 0
        return super().ask_one(drafter, state, nodes, min(lookahead_nodes, _MOST_LOOKAHEAD))

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        if self._is_idle:
            return [nothing_planned(len(trees)) for trees in proposals]
        return super().plan(states, proposals)

    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:
        rows, context = len(states), max([state.length for state in states])
        model = self.learned.cost(rows)
        base = rows + sum([state.step.replayed for state in states])
        if not any([len(ranking.order) or ranking.n_lookahead for ranking in rankings]) and not states[0].traced:
            self._choose_nothing(states, rankings, model, base, context)
            return [0] * rows
        n_lookahead = sum([ranking.n_lookahead for ranking in rankings])
        base += n_lookahead
        worth, owner = _pooled(rankings, self.most)
        tokens = list(accumulate(worth, initial=float(rows)))
        times = self._times(model, states[0].capabilities, base, len(worth), context)
        if states[0].capabilities.rollback == "snapshot":
            times = _replayed(tokens, rows, worth, times)
        # Lists: a pass empties the processor's caches, and each of numpy's functions is read from memory anew.
        rates = list(map(truediv, tokens, times))
        highest = max(rates)
        best = rates.index(highest) if highest >= self._losses.demand * rates[0] else 0
        self._budget.learn(states, rankings, times, best, apart=self._in_ab_test())
        self._watching.learn(states, rankings, times, best)
        count = explored(model, base, tokens, times, best, self._every) if self._judged else best
        if self._asking:
            self._adapt(best, rankings)
            if self._judged:
                gain = tokens[best] * times[0] / rows - times[best]
                self._cooldown.learn(gain, times[0], keep_on=n_lookahead > 0)
        self._choice = _Choice(model, context, times, tokens, best, count)
        return [count] if owner is None else np.bincount(owner[:count], minlength=rows).tolist()

    @property
    def _every(self) -> int:
        """How many steps one that is judged stands for."""
        return 1 if self._asked <= _SOON else _SELDOM

    def _in_ab_test(self) -> Sequence[str]:
        """Return the labels of drafters whose lookahead nodes are on trial: their budget is not judged."""
        return [label for label, test in self._ab_tests.items() if test.on] if self._ab_tests else ()

    def _times(
        self, model: CostModel, capabilities: Capabilities, base: int, most: int, context: int
    ) -> list[float]:
        """Return the seconds of steps that score ``base`` tokens and 0 to ``most`` more."""
        if capabilities.widths:
            stairs = _stairs(capabilities, base + most)[base : base + most + 1]
            table = model.times(0, stairs[-1], context)
            found = [table[width] for width in stairs]
        else:
            found = model.times(base, base + most, context)
        overhead, charge = self._cooldown.overhead, model.switch.charge
        times = list(map(add, found, repeat(overhead + charge)))
        times[0] -= charge
        return times

    def _choose_nothing(
        self, states: Sequence[State], rankings: Sequence[Ranking], model: CostModel, base: int, context: int
    ) -> None:
        """Do what `choose` does where nobody proposes anything, as in most steps of a chat, without its arrays."""
        if self._judged:
            earn(model, self._every)
        if self._asking:
            times = self._times(model, states[0].capabilities, base, 0, context)
            self._budget.learn(states, rankings, times, 0, apart=self._in_ab_test())
            self._adapt(0, rankings)
            if self._judged:
                self._cooldown.learn(0.0, times[0], keep_on=False)
        self._choice = _Choice(model, context, (), (), 0, 0)

    def _adapt(self, best: int, rankings: Sequence[Ranking]) -> None:
        """Ask for twice as many nodes next time if nearly all were worth scoring, else for slightly fewer."""
        rows, proposed = len(rankings), max([len(r.order) for r in rankings])
        if best >= 0.75 * self._reach * rows and proposed >= int(self._reach):
            self._reach = min(float(self.most), 2 * self._reach)
        else:
            self._reach = max(float(min(_LEAST, self.most)), _SHRINK * self._reach, _SPARE * best / rows)

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        if self._is_idle:
            self._learn_idle(states)
            return
        if self._priced:
            self._pace.learn(states)
        with self.learned.lock:
            super().learn(states, feedback)
            choice = self._choice
            if choice is None or not states:
                return
            tokens = sum([1 + s.step.replayed + s.step.drafted + s.step.lookahead_scored for s in states])
            width = states[0].capabilities.filled(tokens)
            if choice.count:
                given = sum([len(s.step.emitted) for s in states]) / len(states)
                self._losses.learn(given, choice.times[choice.count] / choice.times[0])
            self._learn_cost(choice, width, states[0].step.score_s)
            if self._ab_tests or any([state.step.lookahead_scored for state in states]):
                self._learn_lookahead(states)

    def _learn_idle(self, states: Sequence[State]) -> None:
        """Learn from a plain pass for which nobody was asked; most of these tell nothing new."""
        self._unlearnt += 1
        if not states or (self._unlearnt < _IDLE and not self._drafted):
            return
        with self.learned.lock:
            passes, self._unlearnt = self._unlearnt, 0
            model, context = self.learned.cost(len(states)), max([state.length for state in states])
            earn(model, passes)
            width = states[0].capabilities.filled(sum([1 + state.step.replayed for state in states]))
            seconds = states[0].step.score_s
            self._learn_cost(_Choice(model, context, (), (), 0, 0), width, seconds, passes)

    def _learn_cost(self, choice: _Choice, width: int, seconds: float, passes: int = 1) -> None:
        """Learn what the pass took; of a plain one behind a draft without what is the draft's."""
        model, plain = choice.model, not choice.count
        if self._drafted:
            expected = model.seconds(width, choice.context)
            model.switch.learn(plain=plain, excess=seconds - expected, expected=expected)
            if plain:
                seconds -= model.switch.behind
        self._drafted = not plain
        model.learn(width, choice.context, seconds, passes)

    def _learn_lookahead(self, states: Sequence[State]) -> None:
        """Update the A/B tests of lookahead nodes; a drafter's test begins when one of its nodes is scored."""
        asked = set()
        for state in states:
            for drafter, own in zip(state.drafters, state.step.by_source, strict=True):
                if drafter is not None and (own.lookahead_nodes or (own.calls and self._ab_tests)):
                    asked.add(key := drafter.label)
                    if own.lookahead_nodes:
                        self._ab_tests.setdefault(key, ABTest())
        if not asked:
            return
        tokens = sum(len(s.step.emitted) for s in states)
        seconds = states[0].step.score_s + sum(s.step.overhead_s - s.step.plan_s for s in states)
        for key in asked & self._ab_tests.keys():
            self._ab_tests[key].learn(tokens, seconds)

    def trace(self, state: State, ranking: Ranking, count: int, rows: int) -> dict[str, Any]:
        choice = self._choice
        if choice is None:
            return super().trace(state, ranking, count, rows)
        shown = sorted({n for n in _SHOWN if n < len(choice.times)} | {choice.best, choice.count})
        times, tokens = choice.times, choice.tokens
        notes = [f"lookahead nodes of {label.partition(' ')[0]}: {t.why()}" for label, t in self._ab_tests.items()]
        return super().trace(state, ranking, count, rows) | {
            "most": self.most,
            "pooled": choice.count,
            "best": choice.best,
            "explored": choice.count != choice.best,
            "context": choice.context,
            "alternatives": [[n, round(tokens[n], 3), round(1000 * times[n], 3)] for n in shown],
            "overhead_ms": round(1000 * self._cooldown.overhead, 3),
            "sources": self._budget.why() + self._watching.why() + notes,
        }


_SHOWN = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


@lru_cache(maxsize=64)
def _stairs(capabilities: Capabilities, most: int) -> list[int]:
    """Return how wide passes over 0 to at least ``most`` tokens are; ``most`` is rounded up to a power of two."""
    if most & (most - 1):
        return _stairs(capabilities, 1 << most.bit_length())
    return [capabilities.filled(tokens) for tokens in range(most + 1)]


def _pooled(rankings: Sequence[Ranking], most: int) -> tuple[list[float], NDArray[np.intp] | None]:
    """Return the probabilities of all requests' candidates, best first, and the index of each one's request."""
    if len(rankings) == 1:
        return rankings[0].worth[:most], None
    every = [r.worth[:most] for r in rankings]
    worth = np.array(list(chain.from_iterable(every)))
    order = np.argsort(-worth, kind="stable")
    owner = np.repeat(np.arange(len(rankings)), [len(some) for some in every])[order]
    return worth[order].tolist(), owner


def _replayed(tokens: Sequence[float], rows: int, worth: Sequence[float], times: Sequence[float]) -> list[float]:
    """Add the expected seconds for reading accepted tokens again, on a target that restores snapshots."""
    whole = np.array((1.0, *worth)) * (np.arange(len(tokens)) + 1)
    again = np.maximum(0.0, np.array(tokens) - rows + 1 - whole)
    slope = (times[-1] - times[0]) / max(1, len(times) - 1)
    found: list[float] = (np.array(times) + again * max(0.0, slope)).tolist()
    return found
