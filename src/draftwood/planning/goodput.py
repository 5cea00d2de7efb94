"""The planner that scores what pays: of all prefixes of the best-first order that with most tokens per second.

Expected tokens come from beliefs, seconds from the cost model; real curves have cliffs, so every prefix is
weighed. A step's own rate is what decides, not the average one: text that copies goes on copying, and where tokens come
cheaply a doubtful one is not worth its time (LOG.md compares both rules).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, State
from draftwood.errors import UsageError
from draftwood.planning.base import Policy, TreePlanner
from draftwood.planning.cost_model import CostModel, Doubles
from draftwood.planning.learned import Learned
from draftwood.planning.ranking import Ranking

MOST = 64
"""Most draft nodes of one request where a pass costs the same at any width."""

EXPLORE = 0.005
"""Share of the time that may go into finding out what passes of other widths cost."""

_GRANT, _PURSE = 2.0, 2.0  # plain passes: what a planner may spend at first, and most it saves up
_STALE = 32  # passes after which a width should be seen again
_LEAST = 8  # draft nodes that are always worth asking for
_MEMORY = 0.95  # of the loop's own seconds per step
_REST_AFTER, _REST_MOST = 8, 3  # steps without a draft after which sources rest, and how many steps they do


@dataclass(slots=True)
class _Choice:
    """What was decided in the step under way."""

    model: CostModel
    width: int
    context: int


class GoodputPlanner(TreePlanner):
    """Drafts as much as pays by expected tokens per second, possibly nothing.

    Parameters
    ----------
    most
        Most draft nodes per request.
    learned, policies
        As of every planner.

    Raises
    ------
    UsageError
        If ``most`` is negative.
    """

    def __init__(
        self, most: int = MOST, *, learned: Learned | None = None, policies: Sequence[Policy] = ()
    ) -> None:
        super().__init__(learned, policies)
        if most < 0:
            raise UsageError(f"goodput: most is {most}: use 0 draft nodes or more")
        self.most = most
        self._reach = float(min(most, 2 * _LEAST))
        self._overhead = 0.0
        self._purse = _GRANT
        self._idle = self._resting = 0
        self._choice: _Choice | None = None

    def wish(self, states: Sequence[State]) -> int:  # noqa: ARG002
        self._choice = None
        self._resting = max(0, self._resting - 1)
        return 0 if self._resting else min(self.most, int(self._reach))

    def choose(self, states: Sequence[State], rankings: Sequence[Ranking]) -> list[int]:
        rows = len(states)
        replayed = sum(state.step.replayed for state in states)
        context = max(state.length for state in states)
        model = self.learned.cost(rows)
        worth, owner = _pooled(rankings)
        base = rows + replayed
        times = model.table(base + len(worth), context)[base:] + self._overhead
        tokens = np.cumsum(np.concatenate(((float(rows),), worth)))
        rates = tokens / times
        best = int(rates.argmax())
        count = self._explore(model, base, tokens, times, best)
        self._adapt(best, max(map(len, (r.order for r in rankings)), default=0))
        self._choice = _Choice(model, base + count, context)
        if owner is None:
            return [count]
        return np.bincount(owner[:count], minlength=rows).tolist()

    def _explore(self, model: CostModel, base: int, tokens: Doubles, times: Doubles, best: int) -> int:
        """Now and then another width, so that a change of the machine is seen; paid from what was saved up."""
        plain = float(times[0])
        self._purse = min(_PURSE, self._purse + EXPLORE * float(times[best]) / plain)
        found = best
        for width in model.stale(base + best, base + len(times) - 1, _STALE):
            count = max(0, width - base)
            regret = float(times[count] - tokens[count] * times[best] / tokens[best]) / plain
            if regret <= self._purse:
                self._purse -= max(0.0, regret)
                return count
        return found

    def _adapt(self, best: int, proposed: int) -> None:
        """Ask for more where all that came was scored, for less where little was; rest where nothing was."""
        if best >= 0.75 * self._reach and proposed >= int(self._reach):
            self._reach = min(float(self.most), 2 * self._reach)
        else:
            self._reach = max(float(min(_LEAST, self.most)), 0.98 * self._reach, 1.5 * best)
        if not self._resting:
            self._idle = 0 if best else self._idle + 1
            self._resting = 1 + min(_REST_MOST, self._idle // _REST_AFTER)

    def learn(self, states: Sequence[State], feedback: Sequence[Sequence[Feedback]]) -> None:
        super().learn(states, feedback)
        if self._choice is None:
            return
        choice = self._choice
        choice.model.learn(choice.width, choice.context, states[0].step.score_s)


def _pooled(rankings: Sequence[Ranking]) -> tuple[NDArray[np.float32], NDArray[np.intp] | None]:
    """Candidates of all requests, best first, and whose each is: they share one pass."""
    if len(rankings) == 1:
        return rankings[0].worth, None
    worth = np.concatenate([r.worth for r in rankings])
    order = np.argsort(-worth, kind="stable")
    return worth[order], np.repeat(np.arange(len(rankings)), [len(r.order) for r in rankings])[order]
