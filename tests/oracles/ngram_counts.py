"""The naive twin of `NgramCounts` and `propose`: dictionaries, and rules in their plainest words."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

Gram = tuple[int, ...]
Successors = Mapping[int, int]

LAX = {1: (2, 66), 2: (2, 50), 3: (1, 50), 4: (1, 50)}
STRICT = {1: (4, 75), 2: (3, 66), 3: (2, 66), 4: (2, 66)}
"""Size of the n-gram: fewest samples, least share in percent."""

MOST = 2**31 - 1


class NaiveNgramCounts:
    """n-gram -> {next token: count}."""

    def __init__(self) -> None:
        self.counts: dict[Gram, dict[int, int]] = defaultdict(dict)
        self.text: list[int] = []

    def read(self, ids: Iterable[int], *, fresh: bool = False) -> None:
        """Count each n-gram of more text once."""
        if fresh:
            self.text = []
        for token in ids:
            for size in range(1, 5):
                if len(self.text) >= size:
                    self._count(tuple(self.text[-size:]), token, 1)
            self.text.append(token)

    def add(self, records: Iterable[Sequence[int]]) -> None:
        """Add (four tokens or -1, next token, count)."""
        for *gram, token, count in records:
            self._count(tuple(t for t in gram if t >= 0), token, count)

    def _count(self, gram: Gram, token: int, times: int) -> None:
        after = self.counts[gram]
        times = min(times, MOST - sum(after.values()))
        if times:
            after[token] = after.get(token, 0) + times

    def records(self) -> list[list[int]]:
        """Return everything counted, in order."""
        return sorted(
            [*gram, *[-1] * (4 - len(gram)), token, count]
            for gram, after in self.counts.items()
            for token, count in after.items()
        )


def naive_propose(levels: Sequence[NaiveNgramCounts], text: Sequence[int], n: int) -> list[tuple[int, int, int]]:
    """Return up to ``n`` of (token, evidence class, size), by the context, dynamic and static level."""
    text, found = list(text), []
    for _ in range(n):
        known = levels[2].counts.get(tuple(text[-2:]), {}) if len(text) > 1 else {}
        chosen = _by_level(levels[0], text, known, 0) or _by_level(levels[1], text, known, 1) or _by_static(known)
        if chosen is None:
            break
        found.append(chosen)
        text.append(chosen[0])
    return found


def _by_level(
    counts: NaiveNgramCounts, text: Sequence[int], known: Successors, level: int
) -> tuple[int, int, int] | None:
    for size in (4, 3, 2, 1):
        after = counts.counts.get(tuple(text[-size:]), {}) if len(text) >= size else {}
        if not after:
            continue
        least, percent = (LAX, STRICT)[level][size]
        total = sum(after.values())
        frequent = min(after, key=lambda t: (-after[t], t))
        for token in (_heaviest(after, known), frequent):
            if _enough(after[token], total, least, percent):
                return token, _class(level, size, after[token], total, token in known), size
    return None


def _heaviest(after: Successors, known: Successors) -> int:
    """Token with the largest count x weight, which is 100 times its static count; on a tie the lowest."""
    return min(after, key=lambda token: (-after[token] * (100 * known[token] if token in known else 1), token))


def _by_static(known: Successors) -> tuple[int, int, int] | None:
    if not known:
        return None
    token = _heaviest(known, {})
    count, total = known[token], sum(known.values())
    if not _enough(count, total, 2, 50):
        return None
    return token, 28 + (10 * count >= 7 * total) + (10 * count >= 9 * total), 2


def _enough(count: int, total: int, least: int, percent: int) -> bool:
    return total >= least and 100 * count >= percent * total


def _class(level: int, size: int, count: int, total: int, confirmed: bool) -> int:
    if level == 0 and confirmed:
        return 16 + size - 1
    if level == 1:
        return 20 + 2 * (size - 1) + (count == total)
    bucket = 0 if total == 1 else 3 if count < total else 1 if total <= 3 else 2
    return 4 * (size - 1) + bucket
