"""The naive twin of `recycled`: a dictionary per table, a heap per tree. Forgets nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush
from math import exp, inf, log
from types import MappingProxyType

from draftwood.drafters.recycling.evidence import (
    BUCKETS,
    CLASSES,
    EDGES,
    GAPS,
    KINDS,
    LONGEST,
    NO_LIMITS,
    K,
    Limits,
)

Node = tuple[int, int, int]  # token, parent, evidence class
Row = list[tuple[int, float]]  # tokens and their probabilities
Gumbel = Callable[[int, int], float]  # noise of a token at a position: ``gumbel(position, token)``


class NaiveRecycled:
    """What a model would have said next, per context of one to three tokens."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, ...], tuple[int, Row]] = {}

    def record(
        self, tail: Sequence[int], tree: tuple[Sequence[int], Sequence[int]],
        rows: tuple[Sequence[int], Sequence[int]], best: Sequence[Sequence[int]],
        chances: Sequence[Sequence[float]], *, longest: int = LONGEST,
    ) -> None:  # fmt: skip
        """Write rows; of two for one context that of the higher kind stays, of equal kinds the later one."""
        tokens, parents = tree
        nodes, kinds = rows
        rows_by_kind = sorted(zip(nodes, kinds, best, chances, strict=True), key=lambda row: row[1])
        for node, kind, ids, probabilities in rows_by_kind:
            text: list[int] = []
            while node >= 0:
                text.insert(0, tokens[node])
                node = parents[node]
            text = [*tail, *text]
            if probabilities[0] > 0:
                pairs = list(zip(ids, probabilities, strict=True))[:K]
                row = [(token, _kept(p)) for token, p in pairs if token >= 0 or _kept(p) > _kept(0)]
                for size in range(1, min(longest, len(text)) + 1):
                    self._rows[tuple(text[-size:])] = (kind, row)

    def grow(
        self, tail: Sequence[int], accept_rates: Sequence[float], nodes: int, *,
        base_tree: Mapping[tuple[int, ...], float] = MappingProxyType({}),
        noise: tuple[Gumbel, float] | None = None, limits: Limits = NO_LIMITS,
    ) -> list[Node]:  # fmt: skip
        """Grow the tree of what may follow the tail; ``base_tree`` has the belief of each path that others
        proposed, ``noise`` the noise that sampled tokens are chosen with, and the temperature.
        """
        tree: list[Node] = []
        heap: list[tuple[float, int, int, list[int], int]] = []
        found, parent, text, likely, below = 0, -1, list(tail), 1.0, 0
        while True:
            if below < limits.depth:
                classes = self._candidates(text[-limits.longest :], noise, limits.length + below)
                worth = {token: (accept_rates[e], e) for token, e in classes.items()}
                path = tuple(text[len(tail) :])
                for (*above_it, token), belief in base_tree.items():
                    if tuple(above_it) == path and (token not in worth or belief > worth[token][0]):
                        worth[token] = (belief, -1)
                for token, (chance, evidence) in worth.items():
                    found += 1
                    heappush(heap, (-likely * chance, found, parent, [*text, token], evidence))
            if not heap or len(tree) == nodes:
                return tree
            value, _, above, text, evidence = heappop(heap)
            tree.append((text[-1], above, evidence))
            parent, likely, below = len(tree) - 1, -value, len(text) - len(tail)

    def _candidates(self, context: list[int], noise: tuple[Gumbel, float] | None, position: int) -> dict[int, int]:
        """Tokens known behind a context, longest first, each with its class."""
        found: dict[int, int] = {}
        for size in range(len(context), 0, -1):
            kind, row = self._rows.get(tuple(context[-size:]), (0, []))
            first = ((size - 1) * KINDS + kind) * K * BUCKETS
            own = _greedy(row) if noise is None else _sampled(row, *noise, position)
            for (token, _), place in zip(row, own, strict=True):
                if token >= 0:
                    found.setdefault(token, first + place)
        return found


def _kept(probability: float) -> float:
    """What is left of a probability that was kept as a byte: sixteenths of its negative logarithm."""
    return exp(-min(255, round(-16 * log(max(probability, 1e-30)))) / 16)


def _greedy(row: Row) -> list[int]:
    return [rank * BUCKETS + bisect_right(EDGES, chance) for rank, (_, chance) in enumerate(row)]


def _sampled(row: Row, gumbel: Gumbel, temperature: float, position: int) -> list[int]:
    """Classes by the order that the noise of the place gives, and the gap to the best, of the best to the next."""
    noises = [gumbel(position, token) if token >= 0 else 0.0 for token, _ in row]  # -1: tokens not known
    scores = [log(chance) / temperature + noise for (_, chance), noise in zip(row, noises, strict=True)]
    ranked = sorted(scores, reverse=True)
    ahead = ranked[0] - ranked[1] if len(ranked) > 1 else inf
    gaps = [ranked[0] - score if score < ranked[0] else ahead for score in scores]
    places = [ranked.index(score) * BUCKETS for score in scores]
    return [CLASSES // 2 + place + bisect_right(GAPS, gap) for place, gap in zip(places, gaps, strict=True)]
