"""What drafting by some of a model's layers costs: passes of a few numbers of layers, timed by turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from draftwood.drafters.draft_model.growth import LOOKED_AT
from draftwood.planning.cost_curve import CostCurve
from draftwood.tree import TokenTree

OnRound = Callable[[int], None]

LONGEST = 8
"""Longest chain of draft tokens that is looked at."""

ROUNDS = 15
_WIDTHS = (2, 3, 5, 1 + LONGEST)  # of verifying passes that are timed, the root included
_WARM_UP = 2


@dataclass(frozen=True, slots=True)
class DraftCosts:
    """Costs in passes of the whole model over one token.

    Attributes
    ----------
    base
        What a draft pass costs whatever layers it runs: embedding, norm and head.
    per_layer
        What each layer adds.
    verifying
        (tokens, cost) of verifying passes, the root included; never falling, as a plain pass could be as wide.
    """

    base: float
    per_layer: float
    verifying: tuple[tuple[int, float], ...]

    def draft(self, layers: int) -> float:
        """Return the cost of a draft pass of so many layers."""
        return self.base + layers * self.per_layer

    def cycle(self, layers: int, length: int) -> float:
        """Return the cost of drafting a chain of so many tokens and checking it."""
        return length * self.draft(layers) + CostCurve.of(dict(self.verifying)).seconds(1 + length)


def measure_costs(
    target: Any, context: Sequence[int], *, rounds: int = ROUNDS, on_round: OnRound = lambda _n: None
) -> DraftCosts:
    """Time draft and verifying passes behind a text, as `time_drafts` does."""
    from draftwood.engines.transformers.self_draft import decoder_of, early_exit

    n_layers = decoder_of(target).n_layers
    parts = {n: early_exit(target, str(n)) for n in {1, max(1, n_layers // 2)} if n < n_layers}
    drafts, verifying = time_drafts(target, context, {**parts, n_layers: target}, rounds=rounds, on_round=on_round)
    return DraftCosts(*_line(drafts), verifying)


def time_drafts(
    target: Any, context: Sequence[int], drafting: Mapping[int, Any], *, rounds: int = ROUNDS,
    on_round: OnRound = lambda _n: None,
) -> tuple[dict[int, float], tuple[tuple[int, float], ...]]:  # fmt: skip
    """Time draft passes of all that is ``drafting`` on a target's sessions, and verifying passes, behind a text.

    Each round times every pass once, in a shuffled order, and counts in plain passes of the same round, so that
    changes of the machine favour none. Returns the costs by the keys of ``drafting``, and those of `DraftCosts`.
    """
    ((session, _),) = target.open([context], reserve=2 * LONGEST)
    root, tokens = int(context[-1]), [int(context[i % len(context)]) for i in range(LONGEST)]
    scoring = {n: partial(_score, target, session, root, tokens[: n - 1]) for n in (1, *_WIDTHS)}
    timed: dict[tuple[str, int], Callable[[], None]] = {
        ("draft", n): partial(_draft, part, session, root) for n, part in drafting.items()
    }
    timed |= {("score", n): one for n, one in scoring.items()}
    ratios: dict[tuple[str, int], list[float]] = {which: [] for which in timed}
    shuffled = np.random.default_rng(0)
    try:
        for number in range(-_WARM_UP, rounds):
            on_round(max(0, number))
            taken: dict[tuple[str, int], float] = {}
            for which in shuffled.permutation(len(timed)):
                what = list(timed)[which]
                started = perf_counter()
                timed[what]()
                taken[what] = perf_counter() - started
            for what, seconds in taken.items() if number >= 0 else ():
                ratios[what].append(seconds / taken["score", 1])
    finally:
        session.close()
    found = {what: median(some) for what, some in ratios.items()}
    widening = accumulate((found["score", n] for n in scoring), max)
    return {n: found["draft", n] for n in drafting}, tuple(zip(scoring, widening, strict=True))


def _draft(part: Any, session: Any, root: int) -> None:
    (scores,) = part.grow([(session, [root], [-1])])
    scores.top_k(LOOKED_AT)
    session.truncate(session.length)


def _score(target: Any, session: Any, root: int, tokens: Sequence[int]) -> None:
    (scores,) = target.score([(session, root, TokenTree.build(tokens))])
    for row in range(1 + len(tokens)):
        scores.argmax(row)
    length = session.length
    session.keep(())
    session.truncate(length)


def _line(costs: dict[int, float]) -> tuple[float, float]:
    """Return base and slope, none below 0, of the straight line through the costs by number of layers."""
    slope, base = np.polyfit(list(costs), list(costs.values()), 1)
    if base < 0:
        return 0.0, median(cost / n for n, cost in costs.items())
    return float(base), max(0.0, float(slope))
