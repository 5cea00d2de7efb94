"""The naive twin of `Corpus` and its kernels: it reads every document each time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from draftwood.drafters.corpus.kernel import BRANCHES, COLUMNS, LENGTHS, PERCENTS, SAMPLES


class NaiveCorpus:
    """Everything that lookups promise, in plain words."""

    def __init__(self, documents: Iterable[Sequence[int]]) -> None:
        self.documents = [list(document) for document in documents]

    def occurrences(self, pattern: Sequence[int]) -> list[tuple[int, int]]:
        """Return (document, where it begins) of every occurrence of a pattern that is not empty."""
        size, wanted = len(pattern), list(pattern)
        return [
            (number, start)
            for number, document in enumerate(self.documents)
            for start in range(len(document) - size + 1)
            if document[start : start + size] == wanted
        ]

    def followers(self, pattern: Sequence[int]) -> list[int]:
        """Return what follows each occurrence, sorted; nothing for those that end their document."""
        ends = ((number, start + len(pattern)) for number, start in self.occurrences(pattern))
        return sorted(self.documents[n][end] for n, end in ends if end < len(self.documents[n]))

    def match(self, context: Sequence[int], most: int) -> int:
        """Return the length of the longest suffix of the context that occurs."""
        sizes = range(1, min(most, len(context)) + 1)
        return max((n for n in sizes if self.occurrences(context[len(context) - n :])), default=0)

    def successors(self, pattern: Sequence[int]) -> list[tuple[int, int]]:
        """Return (token, evidence class) of what a pattern offers by itself, the most frequent first."""
        after = self.followers(pattern)
        looks = min(len(after), SAMPLES)
        seen = Counter(after[(2 * look + 1) * len(after) // (2 * looks)] for look in range(looks))
        row = max(r for r, floor in enumerate(LENGTHS) if floor <= len(pattern))
        ranked = sorted(seen.items(), key=lambda pair: (-pair[1], pair[0]))
        single = len(after) == 1
        columns = [0 if single else 1 + sum(n * 100 < percent * looks for percent in PERCENTS) for _, n in ranked]
        return [(token, COLUMNS * row + column) for (token, _), column in zip(ranked, columns, strict=True)]

    def grow(
        self, context: Sequence[int], most: int, least: int, levels: int, accept_rates: Sequence[float], nodes: int
    ) -> list[tuple[int, int, int]]:
        """Return (token, parent, class) of the nodes of a tree, best first."""
        length, before = self.match(context, most), 0
        # How likely it is reached and accepted, token, parent, class, its pattern.
        waiting: list[tuple[float, int, int, int, list[int]]] = []
        while length >= max(least, 1) and levels:
            pattern = list(context[len(context) - length :])
            if len(self.occurrences(pattern)) > before:
                before, levels = len(self.occurrences(pattern)), levels - 1
                known = {token for _, token, *_ in waiting}
                new = self._offered(pattern, known)
                if waiting:  # the last row of classes
                    new = [(token, COLUMNS * len(LENGTHS) + c % COLUMNS) for token, c in new]
                waiting += [(accept_rates[c], token, -1, c, [*pattern, token]) for token, c in new]
            length -= max(1, length // 3)
        tree: list[tuple[int, int, int]] = []
        while waiting and len(tree) < nodes:
            best = max(range(len(waiting)), key=lambda i: waiting[i][0])
            path, token, parent, evidence, pattern = waiting.pop(best)
            tree.append((token, parent, evidence))
            below = self._offered(pattern, set())
            waiting += [(path * accept_rates[c], token, len(tree) - 1, c, [*pattern, token]) for token, c in below]
        return tree

    def _offered(self, pattern: Sequence[int], known: set[int]) -> list[tuple[int, int]]:
        return [pair for pair in self.successors(pattern) if pair[0] not in known][:BRANCHES]
