"""The token tree: the one value in which every drafter speaks and every target listens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import IntegrityError

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

NO_CLAIM = -1
"""Evidence of a node that others proposed, in the tree of a drafter that appends branches to it."""


@dataclass(frozen=True, eq=False)
class TokenTree:
    """Candidate continuations hanging off the last committed token (the root, which is not a node).

    A node's parent always comes before it; a parent of -1 is the root. Row 0 of a pass is the root,
    row ``1 + i`` is node ``i``. Immutable: every change makes a new tree. The constructor checks nothing;
    `check_integrity` does.

    Attributes
    ----------
    tokens : int32[n]
        Token id of each node.
    parents : int32[n]
        Index of the parent node, -1 for children of the root.
    belief : float32[n]
        Probability that the target, having reached the parent, takes this token.
    source : int32[n]
        Which drafter of the set proposed the node (its index in the set).
    evidence : int32[n]
        Why its source proposed the node: one of the source's classes, each with an acceptance rate of its own;
        `NO_CLAIM` for a node of another source.
    draft_prob : float32[n]
        What a drafting model itself gave the token; NaN for other sources.
    lookahead : bool[n]
        Scored for what its drafter learns from it, never accepted; so are its children.
    """

    tokens: Ints
    parents: Ints
    belief: Floats
    source: Ints
    evidence: Ints
    draft_prob: Floats
    lookahead: Bools

    is_grown: ClassVar[bool] = False
    """True of a tree that one of our own drafters has made by `grown`."""

    @classmethod
    def grown(cls, **known: Any) -> TokenTree:
        """Make a tree, which nobody checks again, of columns that our own drafters made: a fifth of the time.

        They must be read-only and keep all rules but the range of token ids; siblings differ, no node is a
        lookahead node, beliefs are the rates that the drafter was asked with. Properties may be given, too.
        """
        tree = object.__new__(cls)
        vars(tree).update(known, n_lookahead=0, is_grown=True)
        return tree

    def _changed(self, change: Callable[[str, NDArray[Any]], NDArray[Any]]) -> TokenTree:
        columns = {name: change(name, getattr(self, name)) for name in _COLUMNS}
        return TokenTree.grown(**columns) if self.is_grown else TokenTree(**columns)

    @classmethod
    def build(
        cls,
        tokens: Sequence[int] | NDArray[Any],
        parents: Sequence[int] | NDArray[Any] | None = None,
        *,
        belief: float | Sequence[float] | NDArray[Any] = 1.0,
        source: int = 0,
        evidence: int | Sequence[int] | NDArray[Any] = 0,
        draft_prob: Sequence[float] | NDArray[Any] | None = None,
        lookahead: bool | Sequence[bool] | NDArray[Any] = False,
    ) -> TokenTree:
        """Make a tree from whatever is at hand; without ``parents`` it is a chain. Scalars are spread."""
        n = len(tokens)
        given = (
            tokens,
            range(-1, n - 1) if parents is None else parents,
            belief,
            source,
            evidence,
            np.nan if draft_prob is None else draft_prob,
            lookahead,
        )
        columns = (np.asarray(one, dtype=dtype) for one, dtype in zip(given, _COLUMNS.values(), strict=True))
        return cls(*(np.full(n, one) if one.ndim == 0 else one for one in columns))

    @classmethod
    def empty(cls) -> TokenTree:
        """Return the tree without nodes: one plain decoding step."""
        return _EMPTY

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens.tolist()}, parents={self.parents.tolist()})"

    @property
    def is_chain(self) -> bool:
        """Whether every node's parent is the node before it."""
        return self.parents.tolist() == list(range(-1, len(self) - 1))

    def _depths(self) -> list[int]:
        depth: list[int] = []
        for parent in self.parents.tolist():
            depth.append(1 + depth[parent] if parent >= 0 else 1)
        return depth

    @cached_property
    def depth(self) -> Ints:
        """Distance from the root, int32[n]; children of the root have depth 1."""
        return np.array(self._depths(), dtype=np.int32)

    @cached_property
    def ancestor_mask(self) -> Bools:
        """Which nodes a node may see among the nodes: itself and its ancestors, bool[n, n] (row sees column)."""
        n = len(self)
        sees = np.eye(n + 1, dtype=np.bool_)
        up = np.append(self.parents, n).astype(np.int32)
        up[up < 0] = n
        while (up != n).any():  # pointer doubling: log2(depth) rounds
            sees |= sees[up]
            up = up[up]
        return np.ascontiguousarray(sees[:n, :n])

    @cached_property
    def path_belief(self) -> Floats:
        """Product of beliefs from the root to each node, float32[n]; no child's exceeds its parent's."""
        product: list[float] = []  # parent by parent, so that rounding never lifts a child above its parent
        for parent, belief in zip(self.parents.tolist(), self.belief.tolist(), strict=True):
            product.append(belief * product[parent] if parent >= 0 else belief)
        return np.array(product, dtype=np.float32)

    @cached_property
    def n_lookahead(self) -> int:
        """How many of the nodes are lookahead nodes."""
        return int(np.count_nonzero(self.lookahead))

    @property
    def leaves(self) -> Ints:
        """Nodes without children, int32[...]."""
        return np.setdiff1d(np.arange(len(self), dtype=np.int32), self.parents)

    @property
    def longest(self) -> int:
        """Draft nodes on the longest branch."""
        if self.n_lookahead:
            return int(self.depth[~self.lookahead].max(initial=0))
        return max(self._depths(), default=0)  # asked in every drafted step: lists take half of numpy's time

    def positions(self, root_position: int) -> Ints:
        """Positions of root and nodes in the text, int32[n + 1]; the root sits at ``root_position``."""
        return np.concatenate(([0], self.depth)).astype(np.int32) + np.int32(root_position)

    def path(self, node: int) -> list[int]:
        """Nodes from the first below the root down to ``node`` (-1, the root, gives nothing)."""
        nodes = []
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return nodes[::-1]

    @cached_property
    def _children(self) -> dict[tuple[int, int], int]:
        """Draft nodes by parent and token; of equal siblings the first."""
        nodes, parents, tokens = ascending(len(self)), self.parents, self.tokens
        if self.n_lookahead:
            nodes = np.flatnonzero(~self.lookahead).astype(np.int32)
            parents, tokens = parents[nodes], tokens[nodes]
        keys = zip(reversed(parents.tolist()), reversed(tokens.tolist()), strict=True)
        return dict(zip(keys, reversed(nodes.tolist()), strict=True))

    def child(self, node: int, token: int) -> int:
        """The draft child of ``node`` (-1: the root) with this token, or -1; lookahead nodes do not count."""
        return self._children.get((node, token), -1)

    def children(self, node: int) -> NDArray[np.intp]:
        """The draft children of ``node`` (-1: the root), ascending; lookahead nodes do not count."""
        return np.flatnonzero((self.parents == node) & ~self.lookahead)

    def take(self, nodes: NDArray[Any] | Sequence[int]) -> TokenTree:
        """Return the tree of these nodes, which must ascend and include the parent of each."""
        kept = np.asarray(nodes, dtype=np.intp)
        place = np.full(len(self) + 1, -1, dtype=np.int32)  # the last one is that of the root, parent -1
        place[kept] = np.arange(len(kept))
        tokens, parents, *others = [getattr(self, name)[kept] for name in _COLUMNS]
        return TokenTree(tokens, place[parents], *others)

    def head(self, count: int) -> TokenTree:
        """Return the tree of the first ``count`` nodes; its arrays are views."""
        return self._changed(lambda _, column: column[:count])

    def best_chain(self) -> Ints:
        """Nodes of one root-to-leaf chain of drafts: at each step the child believed in most."""
        best: dict[int, int] = {}
        for node in np.flatnonzero(~self.lookahead).tolist():
            parent = int(self.parents[node])
            if parent not in best or self.belief[node] > self.belief[best[parent]]:
                best[parent] = node
        chain, node = [], -1
        while node in best:
            node = best[node]
            chain.append(node)
        return np.asarray(chain, dtype=np.int32)

    def credited_to(self, source: int) -> TokenTree:
        """Return the same tree, every node credited to ``source``."""
        credit = constant(source, len(self))
        if self.source is credit:
            return self
        return self._changed(lambda name, column: credit if name == "source" else column)

    def locked(self) -> TokenTree:
        """Return an equal tree with read-only arrays: this one if its arrays are, else a copy."""
        if self.is_grown:
            return self
        columns = [getattr(self, name) for name in _COLUMNS]
        if not any([column.flags.writeable for column in columns]):
            return self
        return TokenTree(*[sealed(column) for column in columns])

    def check_tokens(self, vocab_size: int | None = None) -> None:
        """Raise `IntegrityError` for token ids outside the vocabulary."""
        tokens = self.tokens.tolist()
        if tokens and (min(tokens) < 0 or (vocab_size is not None and max(tokens) >= vocab_size)):
            raise IntegrityError(f"token ids must lie in [0, {vocab_size or 'vocabulary'})")

    def check_integrity(self, vocab_size: int | None = None) -> None:
        """Raise `IntegrityError` if the arrays disagree with each other or with the rules above."""
        n = len(self)
        for name, dtype in _COLUMNS.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (n,):
                raise IntegrityError(f"{name} must be {dtype.name}[{n}], got {array!r:.80}")
            if self.is_grown and array.flags.writeable:
                raise IntegrityError(f"{name} must be read-only")
        # On lists: this runs every step, on caches that the pass has just emptied, where a few lines of
        # interpreter are several times faster than as many calls into numpy.
        if not all([-1 <= parent < node for node, parent in enumerate(self.parents.tolist())]):
            raise IntegrityError("a parent must be -1 or come before its child")
        self.check_tokens(vocab_size)
        if not all([0 <= belief <= 1 for belief in self.belief.tolist()]):
            raise IntegrityError("beliefs must be probabilities")
        if self.n_lookahead:
            below = self.parents >= 0
            if (self.lookahead[self.parents[below]] & ~self.lookahead[below]).any():
                raise IntegrityError("children of lookahead nodes must be lookahead nodes")
        if self.is_grown and (self.lookahead.any() or len(self._children) < n):
            raise IntegrityError("siblings must differ, and none be a lookahead node")


def merge(trees: Sequence[TokenTree]) -> tuple[TokenTree, list[Ints]]:
    """Merge trees that hang off the same root, equal siblings becoming one node.

    The node keeps the largest belief with its source, evidence and draft probability; proposed both as
    draft and as lookahead node, it is a draft and keeps those of the drafts.

    Returns
    -------
    tree
        The merged tree.
    rows : list of int32[len(tree)]
        Per given tree, where each of its nodes went.
    """
    if len(trees) == 1 and (trees[0].is_grown or trees[0].is_chain or len(trees[0]._children) == len(trees[0])):
        return trees[0], [ascending(len(trees[0]))]
    place: dict[tuple[int, int], int] = {}
    speaks: list[tuple[int, bool, float]] = []  # the node of all trees whose columns a merged node takes
    rows, start = [], 0
    for tree in trees:
        row: list[int] = []
        flat = zip(
            tree.tokens.tolist(), tree.parents.tolist(), tree.belief.tolist(), tree.lookahead.tolist(), strict=True
        )
        for node, (token, parent, trust, is_lookahead) in enumerate(flat, start):
            spot = place.setdefault((row[parent] if parent >= 0 else -1, token), len(speaks))
            if spot == len(speaks):
                speaks.append((node, not is_lookahead, trust))
            elif (not is_lookahead, trust) > speaks[spot][1:]:
                speaks[spot] = node, not is_lookahead, trust
            row.append(spot)
        rows.append(np.asarray(row, dtype=np.int32))
        start += len(tree)
    if not speaks:
        return TokenTree.empty(), rows
    pick = np.array([node for node, _, _ in speaks], dtype=np.intp)
    tokens, _, *others = [np.concatenate([getattr(tree, name) for tree in trees])[pick] for name in _COLUMNS]
    return TokenTree(tokens, np.array([above for above, _ in place], dtype=np.int32), *others), rows


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """Return an equal array of one dimension that cannot be made writable: for what all trees share."""
    return np.frombuffer(array.tobytes(), dtype=array.dtype)


@lru_cache(maxsize=512)
def constant(value: int, n: int) -> Ints:
    """Return int32[n], all ``value``, read-only: all trees share them."""
    return _spread(value)[:n] if n <= SHARED else sealed(np.full(n, value, dtype=np.int32))


@lru_cache(maxsize=64)
def _spread(value: int) -> Ints:
    return sealed(np.full(SHARED, value, dtype=np.int32))


@lru_cache(maxsize=256)
def ascending(nodes: int) -> Ints:
    """Return int32[nodes], from 0 on, read-only: all trees share them."""
    return _ASCENDING[:nodes] if nodes <= SHARED else sealed(np.arange(nodes, dtype=np.int32))


_COLUMNS: dict[str, np.dtype[Any]] = {
    "tokens": np.dtype(np.int32),
    "parents": np.dtype(np.int32),
    "belief": np.dtype(np.float32),
    "source": np.dtype(np.int32),
    "evidence": np.dtype(np.int32),
    "draft_prob": np.dtype(np.float32),
    "lookahead": np.dtype(np.bool_),
}
SHARED = 1024
"""The longest column that is a view of one: making each anew takes ten times as long."""
_ASCENDING = sealed(np.arange(SHARED, dtype=np.int32))
_EMPTY = TokenTree.grown(**{name: sealed(np.empty(0, dtype)) for name, dtype in _COLUMNS.items()})
