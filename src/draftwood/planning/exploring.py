"""Exploring: scoring another number of candidates than the best one now and then, so that its cost is measured."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.planning.cost_model import CostModel

_EXPLORE = 0.003  # share of the decoding time that may be spent on passes of other widths, to measure their cost
_MOST_SAVED = 2.0  # plain passes: the exploration budget grows up to this


def explored(
    model: CostModel, base: int, tokens: Sequence[float], times: Sequence[float], best: int, steps: int = 1
) -> int:
    """Return ``best`` or, if the exploration budget allows, a number whose cost was not measured lately.

    ``tokens`` and ``times`` are what passes bring and take by the number of candidates scored, beside ``base``
    tokens; the choice stands for so many ``steps``.
    """
    plain = times[0]
    earn(model, steps * times[best] / plain)
    for width in model.stale(base + best, base, base + len(times) - 1):
        count = width - base
        sure = min(tokens[count], tokens[best])  # what more is promised may not come
        # Where the cost was learnt beside other work, it may be far too high: no pass takes longer than its tokens
        # would one by one.
        seconds = min(times[count], plain * width / base)
        regret = (seconds - sure * times[best] / tokens[best]) / plain
        if regret <= model.exploration_budget:
            model.exploration_budget -= max(0.0, regret)
            return count
    return best


def earn(model: CostModel, plain_passes: float) -> None:
    """Let the exploration budget grow by its share of the time of so many plain passes."""
    budget = model.exploration_budget
    model.exploration_budget = max(budget, min(_MOST_SAVED, budget + _EXPLORE * plain_passes))
