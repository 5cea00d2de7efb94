"""The naive twin of `recycled`: a dictionary per table, a heap per tree. Forgets nothing."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType

from draftwood.index.recycled.recycled_evidence import BUCKETS, EDGES, KINDS, LONGEST, K

Node = tuple[int, int, int]  # token, parent, evidence class


class NaiveRecycled:
    """What a model would have said next, per context of one to three tokens."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, ...], tuple[int, list[tuple[int, float]]]] = {}

    def record(
        self,
        tail: Sequence[int],
        tokens: Sequence[int],
        parents: Sequence[int],
        nodes: Sequence[int],
        kinds: Sequence[int],
        best: Sequence[Sequence[int]],
        chances: Sequence[Sequence[float]],
        *,
        longest: int = LONGEST,
    ) -> None:
        """Write rows; of two for one context the later one stays."""
        for node, kind, ids, probabilities in zip(nodes, kinds, best, chances, strict=True):
            text: list[int] = []
            while node >= 0:
                text.insert(0, tokens[node])
                node = parents[node]
            text = [*tail, *text]
            if probabilities[0] > 0:
                row = list(zip(ids, probabilities, strict=True))[:K]
                for size in range(1, min(longest, len(text)) + 1):
                    self._rows[tuple(text[-size:])] = (kind, row)

    def grow(
        self,
        tail: Sequence[int],
        odds: Sequence[float],
        nodes: int,
        *,
        stem: Mapping[tuple[int, ...], float] = MappingProxyType({}),
        depth: int = 64,
        longest: int = LONGEST,
    ) -> list[Node]:
        """Grow the tree of what may follow the tail, likeliest first; of equals the one found first.

        ``stem`` has the belief of each path that others proposed.
        """
        tree: list[Node] = []
        heap: list[tuple[float, int, int, list[int], int]] = []
        found, parent, text, likely, below = 0, -1, list(tail), 1.0, 0
        while True:
            if below < depth:
                worth = {token: (odds[e], e) for token, e in self._candidates(text[-longest:])}
                path = tuple(text[len(tail) :])
                for (*above_it, token), belief in stem.items():
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

    def _candidates(self, context: list[int]) -> list[tuple[int, int]]:
        found: dict[int, int] = {}
        for size in range(len(context), 0, -1):
            kind, row = self._rows.get(tuple(context[-size:]), (0, []))
            for rank, (token, chance) in enumerate(row):
                evidence = (((size - 1) * KINDS + kind) * K + rank) * BUCKETS + bisect_right(EDGES, chance)
                found.setdefault(token, evidence)
        return list(found.items())
