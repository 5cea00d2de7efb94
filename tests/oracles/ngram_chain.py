"""What `draftwood.drafters.llama_cpp.ngram_chain_kernel` does, said plainly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from draftwood.drafters.llama_cpp.copying import Rules

FLOORS = (1, 3, 5, 8, 12, 18, 28, 48)


def matches(text: Sequence[int], longest: int) -> dict[int, int]:
    """Return end -> matching tokens, at most ``longest``, of every earlier place that ends as the text does."""
    found = {}
    for end in reversed(range(len(text) - 1)):
        length = 0
        while length <= end and length < longest and text[end - length] == text[-1 - length]:
            length += 1
        if length:
            found[end] = length
    return found


def after(text: Sequence[int], end: int, count: int) -> tuple[int, ...]:
    """Return ``count`` tokens after index ``end``, the copy going on with what it copied."""
    copy = list(text)
    for i in range(count):
        copy.append(copy[end + 1 + i])
    return tuple(copy[len(text) :])


def followers(
    text: Sequence[int], nodes: int, accept_rates: Sequence[float], rules: Rules
) -> list[tuple[int, int, int]]:
    """Return the tree that the kernel grows, (token, parent, evidence class) per node."""
    found = matches(text, max(FLOORS[-1], rules.longest))
    sizes = range(rules.longest, rules.shortest - 1, -1)
    size = next((size for size in sizes if sum(m >= size for m in found.values()) >= rules.min_hits), 0)
    if not size:
        return []
    ends = [end for end, match in found.items() if match >= size]
    limit = reach = min(rules.length, nodes, nodes if size == rules.longest else 4 * size)
    if rules.newest:
        ends = ends[:2]
        if rules.margin >= 0 and len(ends) == 2:
            one, other = (after(text, end, reach) for end in ends)
            agreed = next((i for i in range(reach) if one[i] != other[i]), reach)
            limit = min(reach, agreed + rules.margin)
    counts: Counter[tuple[int, ...]] = Counter()
    first: dict[tuple[int, ...], int] = {}
    for end in ends:
        value = after(text, end, reach)
        if value in first or len(first) < rules.kinds:
            first.setdefault(value, found[end])
            counts[value] += 1
    best = next(iter(first)) if rules.newest else max(first, key=lambda v: counts[v])
    alone = rules.newest or counts[best] >= 2 * (counts.total() - counts[best])
    return _grow(counts, first, [best] if alone else list(first), limit, nodes, accept_rates)


def _grow(
    counts: Counter[tuple[int, ...]],
    first: dict[tuple[int, ...], int],
    candidates: Sequence[tuple[int, ...]],
    limit: int,
    nodes: int,
    accept_rates: Sequence[float],
) -> list[tuple[int, int, int]]:
    tree: list[tuple[int, int, int]] = []
    place: dict[tuple[int, ...], int] = {(): -1}
    worth: dict[tuple[int, ...], float] = {(): 1.0}
    while len(tree) < nodes:
        best: tuple[float, tuple[int, ...], int] | None = None
        for value in candidates:
            depth = max(d for d in range(len(value) + 1) if value[:d] in place)
            if depth >= limit:
                continue
            path = value[: depth + 1]
            parent = sum(n for v, n in counts.items() if v[:depth] == path[:-1])
            node = sum(n for v, n in counts.items() if v[: depth + 1] == path)
            support = 0 if parent == 1 else 1 if node == parent else 2 if 3 * node >= 2 * parent else 3
            matched = first[value] + depth
            label = 8 * support + max(b for b, floor in enumerate(FLOORS) if floor <= matched)
            hope = worth[path[:-1]] * accept_rates[label]
            if best is None or hope > best[0]:
                best = hope, path, label
        if best is None:
            break
        hope, path, label = best
        tree.append((path[-1], place[path[:-1]], label))
        place[path], worth[path] = len(tree) - 1, hope
    return tree
