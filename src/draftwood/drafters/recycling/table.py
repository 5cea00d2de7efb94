"""What a model would have said next, per context of one to three tokens: bounded, the oldest goes first."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Ints
from draftwood.drafters.recycling.evidence import CLASSES, GREEDY, LONGEST, NO_LIMITS, K, Limits, RowNoise
from draftwood.drafters.recycling.kernel import USED, WAYS, grow, record
from draftwood.errors import IntegrityError
from draftwood.index.arguments import for_kernel
from draftwood.tree import TokenTree

_NO_STEM = TokenTree.empty()
_FIRST, MOST = 1 << 10, 1 << 15  # groups of places of a new table, and at most: 53 bytes a place, 7 MB in all


class RecycledTable:
    """The best next tokens of every row that a model scored, found by the last tokens before it."""

    def __init__(self) -> None:
        self._places = _allocate(_FIRST)
        self._head = np.zeros(2, dtype=np.int64)

    def __len__(self) -> int:
        return int(self._head[USED])

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._places)

    def record(
        self, tail: Ints, tree: tuple[Ints, Ints], rows: tuple[Ints, NDArray[np.uint8]], best: Ints,
        chances: Floats, *, longest: int = LONGEST,
    ) -> None:  # fmt: skip
        """Write rows of best next tokens; of two for one context that of the higher kind stays, of equal kinds the
        later one.

        ``tail`` are the last tokens of the text, of which three count; ``tree`` the tokens and parents (-1: the
        text's end) of a tree behind it, parents first. ``rows``: behind which node each row stands, int32[m], and
        its kind, uint8[m]: `PROMPT`, `OFF_PATH` or `ON_PATH`. ``best`` and ``chances`` [m, k] are tokens and
        probabilities, best first, of which eight count; behind the tokens one -1 may stand, for all that are not
        known, with their probability; a row whose first probability is 0 is left out. Contexts
        of up to ``longest`` tokens are written. Where the arrays do not belong together, nothing is written and
        `IntegrityError` is raised.
        """
        while self._head[USED] + longest * len(best) > self._places[0].size // 2 and len(self._places[0]) < MOST:
            self._double()
        last, ids, above, behind = (
            np.ascontiguousarray(column, dtype=np.int32) for column in (tail[-LONGEST:], *tree, rows[0])
        )
        scored = behind, np.ascontiguousarray(rows[1], dtype=np.uint8)
        top = np.ascontiguousarray(best, dtype=np.int32), np.ascontiguousarray(chances, dtype=np.float32)
        sound = record(self._places, self._head, last, (ids, above), scored, top, longest)
        if not sound:
            raise IntegrityError("rows, kinds and the tree of what was scored do not belong together")

    def _double(self) -> None:
        """Twice the groups: the places of one go to the same ways of the two that take its keys."""
        old = self._places
        groups, ways = np.nonzero(old[0])
        places = _allocate(2 * len(old[0]))
        upper = old[0][groups, ways] >> np.uint64(32)
        new = ((upper * np.uint64(len(places[0]))) >> np.uint64(32)).astype(np.intp)
        for into, values in zip(places, old, strict=True):
            into[new, ways] = values[groups, ways]
        self._places = places  # all at once: sessions of other threads may share it

    def grow(
        self, tail: Ints, accept_rates: Floats, nodes: int, *, base_tree: TokenTree = _NO_STEM,
        noise: RowNoise = GREEDY, limits: Limits = NO_LIMITS,
    ) -> tuple[Ints, Floats]:  # fmt: skip
        """Grow the tree of what may follow the tail, likeliest first, with branches behind the drafts of
        ``base_tree`` too.

        ``accept_rates`` float32[CLASSES]; ``nodes`` is at most 1024; ``noise`` is what tokens will be
        chosen with. Returns int32[3, n]: tokens, parents (-1: the root), evidence classes (-1 where only the base
        tree proposes a node); and their accept rates, 0 there.
        """
        accept_rates = for_kernel(accept_rates, CLASSES)
        nodes = min(nodes, 1024)  # time grows with their square
        if nodes < 1 or limits.depth < 1 or not len(tail):
            return np.empty((3, 0), dtype=np.int32), np.empty(0, dtype=np.float32)
        out, belief = np.empty((3, nodes), dtype=np.int32), np.empty(nodes, dtype=np.float32)
        last = np.ascontiguousarray(tail[-LONGEST:], dtype=np.int32)
        others = np.empty((4, len(base_tree)), dtype=np.int32)
        others[0], others[1] = base_tree.tokens, base_tree.parents
        trust = np.ascontiguousarray(np.broadcast_to(base_tree.belief, len(base_tree)), dtype=np.float32)
        n = grow(self._places, last, (others, trust), accept_rates, noise, tuple(limits), (out, belief))
        if n < 0:
            raise IntegrityError("a parent in the tree that others propose must be -1 or come before its child")
        return out[:, :n], belief[:n]

    def copy(self) -> Self:
        twin = type(self)()
        twin._places = tuple(column.copy() for column in self._places)
        twin._head = self._head.copy()
        return twin


def _allocate(groups: int) -> tuple[NDArray[Any], ...]:
    """Keys, ids, marks and stamps of so many groups of free places."""
    return (
        np.zeros((groups, WAYS), dtype=np.uint64),
        np.full((groups, WAYS, K), -1, dtype=np.int32),
        np.zeros((groups, WAYS, K + 1), dtype=np.uint8),
        np.zeros((groups, WAYS), dtype=np.int32),
    )
