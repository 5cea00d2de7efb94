"""The naive twin of `NgramIndex`: it reads the whole text each time."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from draftwood.drafters.ngram import kernel

LENGTHS, SHARES, AGES, RUNS = (1, 2, 3, 4, 6, 9, 16, 32), (0.6, 0.3, 0.12), (0, 1, 2, 4), (0, 6, 16)
"""Where the classes of length, share, age and run begin."""


def length_class(length: int) -> int:
    """1, 2, 3, 4 or 5, 6 to 8, 9 to 15, 16 to 31, 32 and more."""
    return max(0, sum(length >= least for least in LENGTHS) - 1)


def near_class(off: int) -> int:
    """How near an occurrence is to the cursor: at it, close, around it, elsewhere."""
    return 3 if off == 0 else 2 if off in range(-3, 12) else 1 if off in range(-8, 64) else 0


def match_class(length: int, longest: int, count: int, total: int, near: int) -> int:
    """Class of a match: its length, how much longer the longest is, its share, its nearness."""
    behind = length_class(longest) - length_class(length)
    gap = 0 if behind == 0 else 1 if behind < 3 else 2
    share = int(total > 1) if count == total else 2 + sum(count / total < least for least in SHARES)
    return length_class(length) * 72 + gap * 24 + share * 4 + near


def follow_class(shift: int, age: int, run: int) -> int:
    """Class of what stands at the cursor alone, or ``shift`` tokens from it."""
    old, trust = sum(age >= least for least in AGES) - 1, sum(run >= least for least in RUNS) - 1
    return 576 + (shift + 2) * 12 + old * 3 + trust


@dataclass(frozen=True)
class Candidate:
    """A token that may follow: why, from where, and where the cursor stands behind it."""

    token: int
    evidence: int
    source: int
    cursor: tuple[int, int, int]
    length: int = 0


class NaiveNgram:
    """Everything that `NgramIndex` promises, in plain words; -1 ends a document."""

    def __init__(self, text: Iterable[int] = ()) -> None:
        self.text = [int(i) for i in text]

    def common(self, place: int, tail: Sequence[int]) -> int:
        """Length of the match that ends before ``place``, at most `REACH`."""
        length = 0
        while length < min(kernel.REACH, place, len(tail)) and self.text[place - 1 - length] == tail[-1 - length]:
            length += 1
        return length

    def occurrences(self, tail: Sequence[int]) -> list[tuple[int, int]]:
        """Places and lengths: of the latest 8, 16, 16 occurrences of 4, 2, 1 tokens, none twice."""
        found: list[tuple[int, int]] = []
        longer = kernel.REACH + 1
        for size, wanted in ((4, 8), (2, 16), (1, 16)):
            if size > len(tail):
                continue
            places = [p for p in range(len(self.text) - 1, size - 1, -1) if self._ends(p, tail[-size:])]
            matches = [(p, self.common(p, tail)) for p in places[:wanted]]
            found += [match for match in matches if match[1] < longer]
            longer = size
        return found

    def _ends(self, place: int, end: Sequence[int]) -> bool:
        return self.text[place] >= 0 and self.text[place - len(end) : place] == list(end)

    def nearby(self, tail: Sequence[int], cursor: int) -> list[tuple[int, int]]:
        """The first six occurrences of the last token around the cursor."""
        if cursor < 0:
            return []
        around = range(max(1, cursor - kernel.BEHIND), min(len(self.text), cursor + kernel.AHEAD))
        places = [p for p in around if self.text[p - 1] == tail[-1]][: kernel.NEARBY]
        return [(p, self.common(p, tail)) for p in places]

    def frequent(self) -> list[int]:
        """The most frequent tokens; of equally frequent ones, first the one that was so first."""
        known = [token for token in self.text if token >= 0]
        last = {token: place for place, token in enumerate(known)}
        return sorted(last, key=lambda token: (-Counter(known)[token], last[token]))[: kernel.FREQUENT]

    def candidates(self, tail: Sequence[int], cursor: tuple[int, int, int], frequent: int) -> list[Candidate]:
        """What may follow ``tail``, each token once."""
        place, age, run = cursor
        matches = dict(self.occurrences(tail))
        matches |= {p: length for p, length in self.nearby(tail, place) if self.text[p] >= 0}
        found = [self._matched(token, matches, cursor) for token in dict.fromkeys(self.text[p] for p in matches)]
        known = {candidate.token for candidate in found}
        matched = bool(known)
        end = min(len(self.text), place + kernel.SHIFT + 1) if place >= 0 else 0
        for at in range(max(1, place - kernel.SHIFT), end):
            if self.text[at] >= 0 and self.text[at] not in known:
                evidence = follow_class(at - place, age, run)
                found.append(Candidate(self.text[at], evidence, at, (at + 1, int(at != place), run)))
                known.add(self.text[at])
        for rank, token in enumerate(self.frequent()[:frequent]):
            if token not in known:
                evidence = kernel.MATCHED + kernel.FOLLOWED + rank + (0 if matched else kernel.FREQUENT)
                found.append(Candidate(token, evidence, -1, (place + 1 if place >= 0 else -1, age + 1, run)))
        return found

    def _matched(self, token: int, matches: dict[int, int], cursor: tuple[int, int, int]) -> Candidate:
        place, age, run = cursor
        mine = {p: length for p, length in matches.items() if self.text[p] == token}
        length = max(mine.values())
        best = [p for p in mine if mine[p] == length]
        near = max(near_class(p - place) for p in mine) if place >= 0 else 0
        total = sum(other >= length for other in matches.values())
        evidence = match_class(length, max(matches.values()), len(best), total, near)
        if 0 <= place < len(self.text) and self.text[place] == token:
            behind = (place + 1, 0, run + 1)
        elif length + 1 >= kernel.ANCHOR:
            behind = (max(best) + 1, 0, length + 1)
        else:
            behind = (place + 1 if place >= 0 else -1, age + 1, run)
        return Candidate(token, evidence, max(best), behind, length)

    def follow(self, tail: Sequence[int], length: int, cursor: tuple[int, int, int]) -> tuple[int, int, int]:
        """Where the cursor stands after the last token of ``tail``; ``length`` tokens were indexed before it."""
        place, age, run = cursor
        if 0 <= place < length and self.text[place] == tail[-1]:
            return place + 1, 0, run + 1
        found = self.occurrences(tail)
        if found:
            at, best = max(found, key=lambda match: (match[1], match[0]))
            if best >= kernel.ANCHOR:
                return at, 0, best
        if place < 0:
            return cursor
        for shift in (1, -1, 2, -2):
            if 0 <= place + shift < length and self.text[place + shift] == tail[-1]:
                return place + shift + 1, 1, run
        return (place + 1 if age < kernel.LOST else -1), age + 1, run

    def grow(
        self, tail: Sequence[int], cursor: tuple[int, int, int], accept_rates: Sequence[float], nodes: int,
        depth: int, frequent: int,
    ) -> list[tuple[int, int, int, int]]:  # fmt: skip
        """Token, parent, evidence and source of the likeliest nodes; of equally likely ones, the first found."""
        tree: list[tuple[int, int, int, int]] = []
        order = count()
        waiting: list[tuple[float, int, int, int, list[int], Candidate]] = []

        def expand(parent: int, path: list[int], chance: float, behind: tuple[int, int, int], length: int) -> None:
            room = nodes - len(tree)
            best = chance * self._reach(accept_rates, behind[0] >= 0, length + 1)
            hopeless = len(waiting) >= room and best <= -heapq.nsmallest(room, waiting)[-1][0]
            if len(path) < depth and not hopeless:
                for c in self.candidates([*tail, *path], behind, frequent):
                    likely = chance * float(accept_rates[c.evidence])
                    heapq.heappush(waiting, (-likely, next(order), parent, len(path), [*path, c.token], c))

        expand(-1, [], 1.0, cursor, kernel.REACH)
        while waiting and len(tree) < nodes:
            likely, _, parent, _, path, c = heapq.heappop(waiting)
            tree.append((c.token, parent, c.evidence, c.source))
            if len(tree) < nodes:
                expand(len(tree) - 1, path, -likely, c.cursor, c.length)
        return tree

    def _reach(self, accept_rates: Sequence[float], follows: bool, length: int) -> float:
        """The best accept rates that a child can have whose match is this long at most."""
        longest = length_class(min(length, kernel.REACH))
        best = [float(o) for o in accept_rates[kernel.MATCHED + (not follows) * kernel.FOLLOWED :]]
        told = range((longest + 1) * kernel.MATCHED // kernel.LENGTHS_TOLD)
        best += [float(accept_rates[which]) for which in told if follows or which % 4 == 0]
        return max(best)
