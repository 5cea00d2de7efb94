"""`alignment` in plain Python: what each step means. Slow, and without hashing.

An answer is followed token by token through the expected texts. While its tokens are the ones at the *cursor*, the
place is certain. After a difference the *anchor* stays where the answer left the text, and the cursor tries the
place with the longest match: of the answer's last tokens with a place in the *window* around the anchor, or, of
three tokens and more, anywhere. Once the match is long enough to be no accident, the anchor moves there; what lay
between was replaced, and is proposed as such where it stands again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

MOST, FIRM, NEAR_FIRM, NEAR, FAR_FIRM, NEAREST = 64, 4, 2, 8, 6, 3
SHORT, LONG, LOST, REACH, BRANCHES, RENAMES, WORD = 3, 8, 64, 16, 16, 8, 8


@dataclass
class Rename:
    """What the prediction has, what the answer made of it, and how often in a row."""

    old: list[int]
    new: list[int]
    times: int = 1


@dataclass
class Branch:
    """Where the tree may grow: what comes, under which node, with which evidence and how likely."""

    place: int
    kind: str
    size: int
    evidence: int
    node: int = -1
    reach: float = 0.0
    instead: list[int] = field(default_factory=list)


class NaiveAlignment:
    """One answer beside its texts; within ``window`` tokens around the anchor one token suffices for a match."""

    def __init__(self, texts: Sequence[Sequence[int]], window: int) -> None:
        self.flat = [token for text in texts if len(text) for token in (*text, -1)] or [-1]
        self.starts = [0, *(i + 1 for i, token in enumerate(self.flat[:-1]) if token < 0)]
        self.window = window
        self.answer: list[int] = []
        self.cursor = self.run = self.anchor = self.gap = self.left = 0
        self.renames: list[Rename] = []  # at most `RENAMES`, the eldest overwritten first
        self.renamed = 0

    def follow(self, token: int) -> None:
        """Take in the answer's next token."""
        self.answer.append(token)
        if self.flat[self.cursor] == token:
            self._go_along()
            return
        begun = [start + 1 for start in self.starts if self.flat[start] == token]
        if len(self.answer) == 1 and begun:
            self.cursor = self.anchor = begun[0]
            self.run = 1
            return
        if self.gap == 0:
            self.left = self.run
        self.gap += 1
        near = self._nearest()
        place, size = near[0] if near else (len(self.flat) - 1, 0)
        firm = self._firm(place, size)
        far, far_size = self._anywhere()
        if far_size > size:
            place, size, firm = far, far_size, far_size >= FAR_FIRM
        self.cursor, self.run = place, size
        if firm:
            self._settle()

    def _go_along(self) -> None:
        again = self._rename(self.cursor)
        if again:
            again.times = 0
        self.cursor, self.run = self.cursor + 1, self.run + 1
        if self.gap == 0:
            self.anchor += 1
            return
        self.gap += 1
        if self._firm(self.cursor, self.run):
            self._settle()

    def _firm(self, place: int, size: int) -> bool:
        return size >= FIRM or (size >= NEAR_FIRM and self._distance(place) <= NEAR)

    def _distance(self, place: int) -> int:
        ahead = place - self.anchor - self.gap
        return ahead if ahead >= 0 else -2 * ahead

    def _match(self, place: int) -> int:
        size = 0
        while size < min(MOST, len(self.answer), place) and self.flat[place - 1 - size] == self.answer[-1 - size]:
            size += 1
        return size

    def _ranked(self, places: range, least: int) -> list[tuple[int, int]]:
        found = [(place, self._match(place)) for place in places if self.flat[place] >= 0]
        return sorted((f for f in found if f[1] >= least), key=lambda f: (-f[1], self._distance(f[0])))

    def _nearest(self) -> list[tuple[int, int]]:
        end = min(len(self.flat), self.anchor + min(self.gap, self.window) + self.window)
        return self._ranked(range(max(1, self.anchor - self.window // 4), end), 1)[:NEAREST]

    def _anywhere(self) -> tuple[int, int]:
        found = self._ranked(range(len(self.flat) - 1, 0, -1), SHORT)  # the latest wins a tie
        return found[0] if found else (-1, 0)

    def _settle(self) -> None:
        old = self.flat[self.anchor : max(self.anchor, self.cursor - self.run)]
        gone = len(self.answer) - self.gap
        new = self.answer[gone : max(gone, len(self.answer) - self.run)]
        self.anchor, self.gap = self.cursor, 0
        if not (0 < len(old) <= WORD and 0 < len(new) <= WORD) or -1 in old:
            return
        for known in self.renames:
            if known.old == old:
                known.times = known.times + 1 if known.new == new else 1
                known.new = new
                full = len(self.renames) == RENAMES
                self.renamed += full and known is self.renames[self.renamed % RENAMES]
                return
        if len(self.renames) < RENAMES:
            self.renames.append(Rename(old, new))
        else:
            self.renames[self.renamed % RENAMES] = Rename(old, new)
        self.renamed += 1

    def _rename(self, place: int) -> Rename | None:
        return next((r for r in self.renames if self.flat[place : place + len(r.old)] == r.old), None)

    def draft(
        self, nodes: int, accept_rates: Sequence[float], floor: float
    ) -> tuple[list[int], list[int], list[int]]:
        """Return tokens, parents and evidence classes of the tree, grown best first."""
        branches = self._branches()
        for branch in branches:
            branch.reach = accept_rates[branch.evidence]
        if self.gap == 0 and self.answer and branches:
            self._go_on(branches, branches[0], 1.0, accept_rates)
        tree: list[tuple[int, int, int, float]] = []  # token, parent, evidence, how likely it is reached
        while len(tree) < nodes:
            able = [b for b in branches if b.reach >= floor]
            if not able:
                break
            branch = max(able, key=lambda b: b.reach)
            token = branch.instead[0] if branch.instead else self.flat[branch.place]
            if token < 0:
                branch.reach = -1.0
                continue
            node = next((n for n, known in enumerate(tree) if known[:2] == (token, branch.node)), len(tree))
            if node == len(tree):
                tree.append((token, branch.node, branch.evidence, branch.reach))
            branch.node, branch.size = node, branch.size + 1
            if branch.instead:
                branch.instead = branch.instead[1:]
            else:
                branch.place += 1
            self._go_on(branches, branch, tree[node][3], accept_rates)
        return [n[0] for n in tree], [n[1] for n in tree], [n[2] for n in tree]

    def _go_on(self, branches: list[Branch], branch: Branch, path: float, accept_rates: Sequence[float]) -> None:
        branch.evidence = evidence_of(branch.kind, branch.size)
        again = None if branch.instead else self._rename(branch.place)
        if again and again.times > 0:
            often = min(again.times, 2) - 1
            branch.evidence = 18 + often
            if len(branches) < BRANCHES:
                reach, place = path * accept_rates[1 + often], branch.place + len(again.old)
                fork = replace(branch, place=place, evidence=1 + often, reach=reach, instead=list(again.new))
                branches.append(fork)
        branch.reach = path * accept_rates[branch.evidence]

    def _branches(self) -> list[Branch]:
        found: list[Branch] = []

        def add(place: int, kind: str, size: int, evidence: int) -> None:
            inside = 0 <= place < len(self.flat) and self.flat[place] >= 0
            if inside and len(found) < BRANCHES and all(place != b.place for b in found):
                found.append(Branch(place, kind, size, evidence))

        if not self.answer:
            for start in self.starts:
                add(start, "cursor", 0, 0)
            return found
        if self.gap == 0:
            add(self.cursor, "cursor", self.run, evidence_of("cursor", self.run))
            return found
        lost = self.gap > LOST
        if self.run > lost:
            ahead = self.cursor - self.anchor
            near = -(self.window // 4) <= ahead < min(self.gap, self.window) + self.window
            kind = "gone" if lost else "near" if near else "far"
            add(self.cursor, kind, self.run, evidence_of(kind, self.run))
        for rank, (place, size) in enumerate(self._nearest()):
            if size > lost:
                kind = "gone" if lost else "other" if rank else "near"
                further = kind == "near" and size == 1 and self._distance(place) > 2
                add(place, kind, size, evidence_of(kind, size) + further)
        place, size = self._anywhere()
        add(place, "gone" if lost else "far", size, evidence_of("gone" if lost else "far", size))
        for place, evidence in self._positions():
            add(place, "near", 0, evidence)
        return found

    def _positions(self) -> list[tuple[int, int]]:
        anchor, gap = self.anchor, self.gap
        if gap > REACH:
            return []
        if self.left < FIRM:
            return [(anchor + gap, 20), (anchor, 20)]
        replaced = 3 + sum(gap >= size for size in (2, 3, 5))
        inserted = 7 + min(gap, 3) - 1
        return [(anchor + gap, replaced), (anchor, inserted), (anchor + gap + 1, 10), (anchor + gap - 1, 11)]


def evidence_of(kind: str, size: int) -> int:
    """Class of a node before which ``size`` tokens match."""
    if kind == "gone":
        return 30 + (size >= FIRM)
    if kind == "far":
        return 21 + sum(size >= least for least in (4, 6, 9))
    if kind == "other" and size < 3:
        return 17
    if kind == "cursor" or size >= 6:
        return 25 + sum(size >= least for least in (4, 8, 16, 32))
    return 12 if size == 1 else 14 + min(size - 2, 2)
