"""The n-gram pool of lookahead decoding: n-grams by first token; the least recently used is dropped first."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from heapq import heappop, heappush
from itertools import count
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.drafters.base import draft_tree, read_rates
from draftwood.tree import TokenTree

MOST = 1 << 15  # n-grams of one pool, some 250 bytes each; then those of the least recently used first token go
TEXT, WINDOW = 1, 2  # where an n-gram was seen; both is their sum
_DEPTHS, _RANKS = 4, 4
CLASSES = 3 * _DEPTHS * _RANKS * 2
"""Evidence classes: where it was seen, depth, rank among its siblings (latest first), in one n-gram or more."""

PRIOR = read_rates(__file__)


class Pool:
    """N-grams of ``size`` tokens by first token, and the last tokens of the text, whose own n-grams it may add.

    Of one first token it keeps at most ``limit``.
    """

    def __init__(self, size: int, limit: int, *, read_text: bool) -> None:
        self._size, self._limit, self._reads = size, limit, read_text
        # First token -> n-grams without it -> where each was seen (`TEXT`, `WINDOW`); both ordered, latest last.
        self.followers: dict[int, dict[tuple[int, ...], int]] = {}
        self._held = 0
        self._tail: tuple[int, ...] = ()
        self.match_length = 0

    def read(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Read more committed text; only the end of a text longer than the pool can hold."""
        size = self._size
        before = self._tail if len(ids) <= MOST else ()
        text = (*before, *np.asarray(ids[-MOST:], dtype=np.int32).tolist())
        if self._reads:
            for start in range(len(text) - size + 1):
                self.add(text[start], text[start + 1 : start + size], TEXT)
        self._tail = text[1 - size :]

    def add(self, first: int, ngram: tuple[int, ...], seen: int = WINDOW) -> None:
        """Add an n-gram, or mark it as just used."""
        if not self._limit:
            return
        known = self.followers[first] = self.followers.pop(first, {})
        before = known.pop(ngram, 0)
        if not before:
            if len(known) == self._limit:
                del known[next(iter(known))]
            else:
                self._held += 1
        known[ngram] = before | seen
        if self._held > MOST:
            self._held -= len(self.followers.pop(next(iter(self.followers))))

    def reread(self, text: NDArray[Any]) -> None:
        """Replace the text, which was cut: it is read again, then the n-grams of the window are added again."""
        kept = [(f, n) for f, known in self.followers.items() for n, seen in known.items() if seen & WINDOW]
        self.followers, self._held, self._tail = {}, 0, ()
        self.read(text)
        for first, ngram in kept:
            self.add(first, ngram)

    def grow(self, nodes: int, accept_rates: Floats) -> TokenTree:
        """Return the n-grams of the last token as branches, likeliest first."""
        known = self.followers.get(self._tail[-1]) if self._tail else None
        self.match_length = 1 if known and nodes > 0 else 0
        if not known or nodes < 1:
            return TokenTree.empty()
        rates: list[float] = accept_rates.tolist()
        tree: list[tuple[int, int, int]] = []  # token, parent, evidence
        number = count()  # on a tie, the older entry comes first
        heap: list[tuple[float, int, int, int, int, int, _Group]] = []
        parent, depth, worth, group = -1, 0, 1.0, list(known.items())[::-1]
        while True:
            if depth < self._size - 1:
                for token, which, some in _branches(group, depth):
                    heappush(heap, (-worth * rates[which], next(number), token, parent, which, depth, some))
            if not heap or len(tree) == nodes:
                break
            negative, _, token, above, which, depth, group = heappop(heap)
            parent, depth, worth = len(tree), depth + 1, -negative
            tree.append((token, above, which))
        tokens, parents, evidence = np.array(tree, dtype=np.int32).T.copy()
        classes = evidence.astype(np.int32)
        return draft_tree(tokens, classes, accept_rates[classes], parents)

    def copy(self) -> Self:
        """Return an independent copy."""
        twin = copy(self)
        twin.followers = {first: dict(known) for first, known in self.followers.items()}
        return twin


_Group = list[tuple[tuple[int, ...], int]]  # n-grams that share a beginning, latest first, and where each was seen


def _branches(group: _Group, depth: int) -> list[tuple[int, int, _Group]]:
    """Next tokens at this depth, latest first: token, evidence class, and the n-grams that have it there."""
    if len(group) == 1:  # most often
        ngram, seen = group[0]
        return [(ngram[depth], _class(seen, depth, 0, 1), group)]
    by_token: dict[int, _Group] = {}
    for item in group:
        by_token.setdefault(item[0][depth], []).append(item)
    found = []
    for rank, (token, some) in enumerate(by_token.items()):
        seen = 0
        for _, where in some:
            seen |= where
        found.append((token, _class(seen, depth, rank, len(some)), some))
    return found


def _class(seen: int, depth: int, rank: int, times: int) -> int:
    rank = rank if rank < 2 else 2 if rank < 4 else 3
    return (((seen - 1) * _DEPTHS + min(depth, _DEPTHS - 1)) * _RANKS + rank) * 2 + (times > 1)
