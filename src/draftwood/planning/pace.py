"""What a token of the texts takes lately."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.contracts import Prices, State
from draftwood.planning import KEEP_SOME
from draftwood.planning.cost_model import CostModel

_FIRST_TOKENS, _FIRST_PASSES = 6, 3.6
_AHEAD = 8  # draft nodes over which the cost of one more is averaged


class Pace:
    """Seconds per emitted token of the texts of one call, lately; so that drafters with passes of their own can
    tell when another pass pays.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._tokens = 0.0

    def learn(self, states: Sequence[State]) -> None:
        """Learn from a finished step."""
        tokens = sum([len(state.step.emitted) for state in states])
        seconds = states[0].step.score_s + sum([state.step.overhead_s for state in states]) if states else 0.0
        self._tokens = KEEP_SOME * self._tokens + tokens
        self._seconds = KEEP_SOME * self._seconds + seconds

    def prices(self, model: CostModel, states: Sequence[State]) -> Prices:
        """Return the prices for the step that begins, whose passes take what ``model`` says.

        A token is never worth more than a plain pass takes for it: that would be the faster way. While the cost of
        a draft node is only guessed it counts as nothing, so that drafts are tried.
        """
        rows, context = len(states), max([state.length for state in states])
        times = model.times(rows, rows + _AHEAD, context)
        plain = times[0]
        if not (model.passes or model.measured):
            return Prices()
        token = rows * (self._seconds / plain + _FIRST_PASSES) / (self._tokens + rows * _FIRST_TOKENS)
        node = max(0.0, times[-1] - times[0]) / (_AHEAD * plain) if model.knows_drafts else 0.0
        return Prices(plain, min(token, 1.0) / rows, node)
