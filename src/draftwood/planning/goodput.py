"""The default planner: scores the number of candidates that gives the most expected tokens per second. All numbers
are compared, because costs rise in jumps; LOG.md compares this rule with others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np

from draftwood.contracts import Ask, Capabilities, Declaration, Feedback, Needs, Plan, State
from draftwood.errors import LARGEST, number
from draftwood.planning import MOST, SELDOM
from draftwood.planning.accounts import DrafterAccounts, Losses, Overhead, QuietSteps, Repeats
from draftwood.planning.base import NOTHING, RESTING, Policy, TreePlanner
from draftwood.planning.cost_model import SIZES, CostModel, Pace
from draftwood.planning.learned import Learned
from draftwood.planning.ranking import Ranking, depth_limit, gain, never_rises, node_limit, pooled
from draftwood.tree import TokenTree

_MOST_LOOKAHEAD = 256  # lookahead nodes of one drafter in one pass
_FEW = 4  # requests whose texts are looked at for repeats
_LEAST = 8  # a step asks drafters for at least this many draft nodes
_SOON = 16
"""The first 16 steps of a call that ask drafters are all judged, and later ones one in four (`SELDOM`). Of steps
that ask no drafter one in 16 is judged."""
_SWIFT = 7.5e-3
"""Seconds of a plain pass below which a text is to repeat itself before drafters that copy it are asked, while
nothing was learnt of them: asking in vain takes 0.6 ms in a new process. With passes of 3, 6 and 9 ms, answers of
9 tokens gain 7, 2 and 0 % by it (mean of nine kinds; the worst 10, 6 and 3), above that longer ones lose more."""
_NO_NEEDS = Needs()
_SHRINK, _SPARE = 0.98, 1.5  # the number asked for shrinks by 2 % per step, to 1.5 times what was worth scoring


@dataclass(slots=True)
class _Choice:
    """The decision for the pass under way: expected seconds and tokens by the number of candidates scored."""

    model: CostModel
    context: int
    times: Sequence[float] = ()  # of the step, what it takes outside of the pass included
    tokens: Sequence[float] = (1.0,)
    best: int = 0  # number of candidates with the highest rate
    count: int = 0  # number that is scored: ``best``, or another one to measure its cost
    saved: dict[str, float] = field(default_factory=dict)  # seconds that each drafter's nodes save, by label


class GoodputPlanner(TreePlanner):
    """Scores at most ``most`` draft nodes per request, as many as give the most expected tokens per second."""

    name = "goodput"

    def __init__(
        self, most: int = MOST, *, learned: Learned | None = None, policies: Sequence[Policy] = ()
    ) -> None:
        super().__init__(learned, policies)
        number(most, 0, LARGEST, "goodput: most is {}: use 0 draft nodes or more", whole=True)
        self.most = most
        self._begin_call()

    def open(self) -> Self:
        session = super().open()
        with self.learned.lock:
            session._begin_call()
        return session

    def _begin_call(self) -> None:
        """Forget all that belongs to one call."""
        model = self.learned.cost(1)
        known = model.measured or model.passes > _LEAST
        # Draft nodes to ask for: few in a first step while the cost of a pass is only guessed.
        self._reach = float(min(self.most, 2 * _LEAST if known else _LEAST // 2))
        self._asks: QuietSteps  # as of the texts that are asked for first
        self._known_as: tuple[int, bool, tuple[Declaration | None, ...]] | None = None
        self._accounts = DrafterAccounts()
        self._repeats: WeakKeyDictionary[State, Repeats] = WeakKeyDictionary()
        self._losses = Losses()
        self._pace, self._priced = Pace(), False  # the latter: whether a drafter goes by prices
        self._asking = self._is_idle = False  # whether drafters are asked; whether not, and no policy either
        self._asked = self._unasked = 0  # steps of either kind, the latter since one was judged
        self._stands_for = 1  # how many such steps this one stands for where it is judged; else 0
        self._is_timed = True  # whether it tells what steps take outside of the pass
        # Of the steps of one text that ask its only drafter one in four is planned as a whole. The others are
        # light: they go by the times that it has found, which takes less time.
        self._is_light = False
        self._alone: Declaration | None = None  # that drafter
        self._times_known: Sequence[float] = ()  # seconds of a step by how many draft nodes it scores
        self._drafted = False  # whether the last pass had a draft
        self._overhead = Overhead()
        self._choice: _Choice | None = None

    def ask(self, states: Sequence[State]) -> list[list[Ask]]:
        if self._is_timed:
            with self.learned.lock:
                self._overhead.learn(states, asked=self._asking)
        self._begin_step(states)
        drafters = any([state.drafters for state in states])
        self._accounts.begin()
        self._asking = drafters and self._asks.begin(repeating=self._is_repeating(states))
        if self._asking:
            self._asked += 1
            turn = self._asked % SELDOM
            self._stands_for = 1 if self._asked <= _SOON else 0 if turn else SELDOM
            self._is_light = turn > 0 and len(self._times_known) > 0 and not states[0].traced
            self._is_timed = self._asked <= _SOON or turn == 1
        else:
            self._unasked += 1
            self._stands_for = self._unasked if self._unasked >= _SOON or self._drafted else 0
            self._is_timed, self._is_light = self._stands_for > 0, False
            if self._is_timed:
                self._unasked = 0
        self._choice = None
        self._is_idle = not (self._asking or self.policies)
        if self._is_idle:
            return [self._rested(state, [NOTHING] * len(state.drafters)) for state in states]
        return [[self._ask_alone(states[0])]] if self._is_light else super().ask(states)

    def _begin_step(self, states: Sequence[State]) -> None:
        """Find what is known of asking these drafters; the texts that share the pass may have changed."""
        first, rows = states[0], len(states)
        key = rows.bit_length(), first.greedy, tuple(first.drafters)
        if key != self._known_as:
            self._known_as = key
            with self.learned.lock:
                self._overhead, steps, passes = self.learned.asking(rows, first.drafters, greedy=first.greedy)
                swift = rows <= _FEW and self.learned.cost(rows).seconds(1, 0) < _SWIFT
                waiting = swift and all([drafter.copies_text for drafter in first.drafters if drafter is not None])
                self._asks = QuietSteps(steps, waiting=waiting)
                self._accounts.go_on(passes)
            single = rows == len(first.drafters) == 1 and first.capabilities.trees and not self.policies
            drafter = first.drafters[0] if single else None
            self._alone = drafter if drafter is not None and drafter.needs == _NO_NEEDS else None
            self._times_known = ()

    def _ask(self, state: State, rows: int) -> list[Ask]:
        return self._rested(state, super()._ask(state, rows))

    def _ask_alone(self, state: State) -> Ask:
        """Return what a light step asks of the only drafter."""
        drafter = self._alone
        if drafter is None or self._accounts.is_skipped(drafter):
            return NOTHING
        nodes = min(self.most, int(self._reach), depth_limit(state), node_limit(state))
        with self.learned.lock:
            return Ask(nodes, 0, self.learned.beliefs.accept_rates(drafter, greedy=state.greedy))

    def _rested(self, state: State, asks: list[Ask]) -> list[Ask]:
        """Return the asks where skipped drafters that need scores or states rest: they are not shown any."""
        if not self._accounts.accounts:
            return asks
        return [
            RESTING if drafter is not None and self._accounts.rests(drafter) else ask
            for drafter, ask in zip(state.drafters, asks, strict=True)
        ]

    def _is_repeating(self, states: Sequence[State]) -> bool:
        """Whether one of the texts repeats itself at its end; of many texts one would nearly always."""
        of = self._repeats.setdefault
        return len(states) <= _FEW and any([of(state, Repeats()).at_end_of(state.ids) for state in states])

    def wish(self, states: Sequence[State]) -> int:
        nodes = min(self.most, int(self._reach)) if self._asking else 0
        drafters = [drafter for state in states for drafter in state.drafters if drafter is not None]
        self._priced = any([drafter.needs.prices for drafter in drafters])
        if self._priced and nodes:
            self.prices = self._pace.prices(self.learned.cost(len(states)), states)
        return nodes

    def ask_one(self, drafter: Any, state: State, nodes: int, lookahead_nodes: int) -> Ask:
        if self._accounts.is_skipped(drafter):
            return NOTHING
        if self._accounts.skips_lookahead(drafter):
            lookahead_nodes = 0
        if drafter.needs.prices and not self.prices.pass_s:  # no pass was measured yet
            return NOTHING
        return super().ask_one(drafter, state, nodes, min(lookahead_nodes, _MOST_LOOKAHEAD))

    def plan(self, states: Sequence[State], proposals: Sequence[Sequence[TokenTree]]) -> list[Plan]:
        if self._is_light:
            tree = proposals[0][0]
            worth: list[float] = tree.path_belief.tolist()
            self._is_light = tree.is_grown and never_rises(worth)
            if self._is_light:
                return [self._plan_alone(states[0], Ranking.of(tree, worth))]
        return super().plan(states, proposals)

    def _plan_alone(self, state: State, ranking: Ranking) -> Plan:
        """Decide as `choose` does, by the times of the last whole step."""
        times, tokens = self._times_known, list(accumulate(ranking.worth, initial=1.0))
        best = self._best(tokens, times[: len(tokens)])
        with self.learned.lock:
            if best or self._drafted:  # else the pass teaches nothing new
                self._choice = _Choice(self.learned.cost(1), state.length, times, best=best, count=best)
            asking, plain = self._overhead.of_asking, times[0]
            saved = tokens[best] * (plain - asking) - (times[best] - asking)
            self._asks.learn(saved, asking, plain, keep_on=False)
        self._adapt(best, 1, len(ranking.worth))
        return ranking.cut(best)

    def _best(self, tokens: Sequence[float], times: Sequence[float]) -> int:
        """Return the number of candidates that gives the most of these tokens per second; 0 below the demand."""
        rates = [given / seconds for given, seconds in zip(tokens, times, strict=True)]
        highest = max(rates)
        return rates.index(highest) if highest >= self._losses.demand * rates[0] else 0

    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:
        if self._is_idle:
            return [0] * len(states)
        rows, context = len(states), max([state.length for state in states])
        model = self.learned.cost(rows)
        n_lookahead = sum([ranking.n_lookahead for ranking in rankings])
        base = rows + sum([state.step.replayed for state in states]) + n_lookahead
        worth, owner = pooled(rankings, self.most)
        times = self._times(model, states[0].capabilities, base, len(worth), context)
        tokens = list(accumulate(worth, initial=float(rows)))
        if states[0].capabilities.rollback == "snapshot":
            times = _replayed(tokens, rows, worth, times)
        best = self._best(tokens, times)
        choice = self._choice = _Choice(model, context, times, tokens, best, best)
        if self._stands_for:
            self._judge(choice, states, rankings, base, n_lookahead)
        if self._asking:
            self._adapt(best, rows, max([len(ranking.order) for ranking in rankings]))
            if self._alone is not None and base == 1 and states[0].capabilities.rollback != "snapshot":
                self._times_known = self._times(model, states[0].capabilities, 1, self.most, context)
        if owner is None:
            return [choice.count]
        return np.bincount(owner[: choice.count], minlength=rows).tolist()

    def _judge(
        self, choice: _Choice, states: Sequence[State], rankings: Sequence[Ranking], base: int, n_lookahead: int
    ) -> None:
        """Find out what drafts save in this step, and whether another width should be measured."""
        model, times, tokens, best = choice.model, choice.times, choice.tokens, choice.best
        plain = times[0]
        model.earn(self._stands_for * times[best] / plain)
        if len(times) > 1:
            choice.count, _ = model.explored(base, tokens, times, best, self._overhead.of_scoring)
        if not self._asking:
            return
        paid = self._judge_drafters(choice, states, rankings) if best else 0.0
        asking = self._overhead.of_asking  # ``times`` are of steps that ask; plain decoding asks nobody
        saved = tokens[best] * (plain - asking) / len(states) - (times[best] - asking) - paid
        self._asks.learn(saved, asking, plain, keep_on=n_lookahead > 0)

    def _judge_drafters(self, choice: _Choice, states: Sequence[State], rankings: Sequence[Ranking]) -> float:
        """Find what each slow drafter's nodes save in this step; returns the seconds that those with passes of
        their own took for it, which `Overhead` leaves out.
        """
        seconds: dict[str, float] = {}
        paid: dict[str, float] = {}
        for state in states:
            for drafter, own in zip(state.drafters, state.step.by_source, strict=True):
                if drafter is not None:
                    label = drafter.label
                    took = seconds[label] = seconds.get(label, 0.0) + own.draft_s
                    if label not in choice.saved and self._accounts.is_judged(drafter, took, choice.times[0]):
                        mine = [[d is not None and d.label == label for d in s.drafters] for s in states]
                        choice.saved[label] = gain(mine, rankings, choice.times, choice.best)
                    if drafter.needs.prices:
                        paid[label] = min(took, choice.saved.get(label, 0.0))
        return sum(paid.values())

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
        more = self._outside(drafted=True) + model.switch.charge
        return [found[0] + self._outside(drafted=False), *[seconds + more for seconds in found[1:]]]

    def _adapt(self, best: int, rows: int, proposed: int) -> None:
        """Ask for twice as many nodes next time if nearly all were worth scoring, else for slightly fewer."""
        if best >= 0.75 * self._reach * rows and proposed >= int(self._reach):
            self._reach = min(float(self.most), 2 * self._reach)
        else:
            self._reach = max(float(min(_LEAST, self.most)), _SHRINK * self._reach, _SPARE * best / rows)

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        if self._is_idle:
            if self._stands_for:
                self._learn_idle(states)
            return
        if self._priced:
            self._pace.learn(states)
        with self.learned.lock:
            super().learn(states, feedback)
            choice = self._choice
            if not choice:
                return
            tokens = sum([1 + s.step.replayed + s.step.drafted + s.step.lookahead_scored for s in states])
            given = sum([len(s.step.emitted) for s in states])
            if choice.count:
                self._losses.learn(given / len(states), choice.times[choice.count] / choice.times[0])
            if choice.count != choice.best:
                took = states[0].step.score_s + self._outside(drafted=choice.count > 0)
                usual = given * choice.times[choice.best] / choice.tokens[choice.best]
                choice.model.regretted((took - usual) / choice.times[0])  # what exploring has really cost
            self._learn_cost(choice.model, choice.context, states, tokens, plain=not choice.count)
            if self._stands_for and self._asking and not self._is_light:
                added = self._lookahead_s(choice, states, tokens)
                self._accounts.learn(states, choice.times[0], choice.saved, added, self._stands_for)

    def _learn_idle(self, states: Sequence[State]) -> None:
        """Learn from a plain pass for which no drafter was asked; most of these tell nothing new."""
        with self.learned.lock:
            passes = self._stands_for
            model, context = self.learned.cost(len(states)), max([state.length for state in states])
            model.earn(passes)
            tokens = sum([1 + state.step.replayed for state in states])
            self._learn_cost(model, context, states, tokens, plain=True, passes=passes)
            if any([drafter is not None and drafter.needs.top_k for s in states for drafter in s.drafters]):
                self._accounts.learn(states, states[0].step.score_s, None, {}, passes)

    def _outside(self, *, drafted: bool) -> float:
        """Return the seconds of a step outside of its pass, in which drafters are asked."""
        overhead = self._overhead
        return (overhead.vain or overhead.drafted) + (overhead.of_scoring if drafted else 0.0)

    def _learn_cost(
        self, model: CostModel, context: int, states: Sequence[State], tokens: int, *, plain: bool, passes: int = 1
    ) -> None:
        """Learn what the pass took; of a plain one after a draft without what is the draft's."""
        width, seconds = states[0].capabilities.filled(tokens), states[0].step.score_s
        if self._drafted:
            expected = model.seconds(width, context)
            model.switch.learn(plain=plain, excess=seconds - expected, expected=expected)
            if plain:
                seconds -= model.switch.after
        self._drafted = not plain
        model.learn(width, context, seconds, passes)

    def _lookahead_s(self, choice: _Choice, states: Sequence[State], tokens: int) -> dict[str, float]:
        """Return the seconds that each drafter's lookahead nodes have added to a pass over so many tokens."""
        nodes: dict[str, int] = {}
        for state in states:
            for drafter, own in zip(state.drafters, state.step.by_source, strict=True):
                if drafter is not None and own.lookahead_nodes:
                    nodes[drafter.label] = nodes.get(drafter.label, 0) + own.lookahead_nodes
        times = choice.model.times(0, tokens, choice.context) if nodes else []
        return {label: times[-1] - times[-1 - count] for label, count in nodes.items()}

    def trace(self, state: State, ranking: Ranking, count: int) -> dict[str, Any]:
        choice = self._choice
        said = super().trace(state, ranking, count)
        if not choice:
            return said | {"sources": self._accounts.why()}
        shown = sorted({n for n in (0, *SIZES) if n < len(choice.times)} | {choice.best, choice.count})
        return said | {
            "most": self.most,
            "best": choice.best,
            "explored": choice.count != choice.best,
            "context": choice.context,
            "alternatives": [[n, round(choice.tokens[n], 3), round(1000 * choice.times[n], 3)] for n in shown],
            "overhead_ms": round(1000 * self._overhead.vain, 3),
            "sources": self._accounts.why(),
        }


@lru_cache(maxsize=64)
def _stairs(capabilities: Capabilities, most: int) -> list[int]:
    """Return how wide passes over 0 to at least ``most`` tokens are; ``most`` is rounded up to a power of two."""
    if most & (most - 1):
        return _stairs(capabilities, 1 << most.bit_length())
    return [capabilities.filled(tokens) for tokens in range(most + 1)]


def _replayed(tokens: Sequence[float], rows: int, worth: Sequence[float], times: Sequence[float]) -> list[float]:
    """Add the expected seconds for reading accepted tokens again, on a target that restores snapshots."""
    whole = np.array((1.0, *worth)) * (np.arange(len(tokens)) + 1)
    again = np.maximum(0.0, np.array(tokens) - rows + 1 - whole)
    slope = (times[-1] - times[0]) / max(1, len(times) - 1)
    found: list[float] = (np.array(times) + again * max(0.0, slope)).tolist()
    return found
