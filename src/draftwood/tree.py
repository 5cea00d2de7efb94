"""The token tree: the one value in which every drafter speaks and every target listens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.errors import IntegrityError

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


NO_CLAIM = -1
"""Evidence of a node that others proposed, in the tree of a drafter that goes on behind it."""


@dataclass(frozen=True, eq=False)
class TokenTree:
    """Candidate continuations hanging off the last committed token (the root, which is not a node).

    A node's parent always comes before it; a parent of -1 is the root. Row 0 of a pass is the root,
    row ``1 + i`` is node ``i``. Immutable: every change makes a new tree.

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
        The source's own small class of why it proposed the node; `NO_CLAIM` where it only passes through.
    draft_prob : float32[n]
        What a drafting model itself gave the token; NaN for other sources.
    lookahead : bool[n]
        Scored for what its drafter learns from it, never accepted; so are its children.
    """

    tokens: Ints
    parents: Ints
    belief: Floats
    source: NDArray[np.int32]
    evidence: NDArray[np.int32]
    draft_prob: Floats
    lookahead: Bools
    is_chain: bool = field(default=False, compare=False)
    """Set where the maker knows that every node's parent is the one before it: derived views get cheap."""

    vouched: ClassVar[bool] = False
    """True of a tree from one of our kernels, which keep all rules of this class: nobody checks it again."""
    by_rates: ClassVar[Floats | None] = None
    """The accept rates from which a kernel has taken every node's belief, where it has."""
    highest: ClassVar[int | None] = None
    """A token that is not lower than any of a vouched tree, and at least 0, where it is known."""

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
    ) -> Self:
        """Make a tree from whatever is at hand; without ``parents`` it is a chain. Scalars are spread."""
        ids = np.asarray(tokens, dtype=np.int32)
        n = len(ids)
        up = np.arange(-1, n - 1, dtype=np.int32) if parents is None else np.asarray(parents, dtype=np.int32)
        return cls(
            ids,
            up,
            _spread(belief, n, np.float32),
            np.full(n, source, dtype=np.int32),
            _spread(evidence, n, np.int32),
            _spread(np.nan if draft_prob is None else draft_prob, n, np.float32),
            _spread(lookahead, n, np.bool_),
            is_chain=parents is None,
        )

    @classmethod
    def vouched_for(cls, **known: Any) -> TokenTree:
        """Make a tree from read-only columns, and from views derived of them, that one of our kernels has made.

        In a tenth of the time of the constructor: it is called in every step.
        """
        tree = object.__new__(TokenTree)
        vars(tree).update(known, vouched=True, _locked=True)
        return tree

    @property
    def columns(self) -> tuple[NDArray[Any], ...]:
        """All arrays, in the order of the attributes."""
        return (
            self.tokens, self.parents, self.belief, self.source, self.evidence, self.draft_prob, self.lookahead
        )  # fmt: skip

    @classmethod
    def empty(cls) -> TokenTree:
        """Return the tree without nodes: one plain decoding step."""
        return _EMPTY

    def __len__(self) -> int:
        return len(self.tokens)

    def __getattr__(self, name: str) -> Any:
        """Pick a column of `head` or `take` when it is first read; most of them never are."""
        own = self.__dict__
        if name not in _COLUMNS or "_whole" not in own:
            raise AttributeError(f"a TokenTree has no attribute {name!r}")
        column = own[name] = getattr(own["_whole"], name)[own["_picked"]]
        if "_locked" in own:
            column.flags.writeable = False
        return column

    def __repr__(self) -> str:
        return f"TokenTree(tokens={self.tokens.tolist()}, parents={self.parents.tolist()})"

    @cached_property
    def depth(self) -> Ints:
        """Distance from the root, int32[n]; children of the root have depth 1."""
        n = len(self)
        if self.is_chain:
            return np.arange(1, n + 1, dtype=np.int32)
        depth = np.ones(n + 1, dtype=np.int32)
        depth[n] = 0
        up = np.append(self.parents, n).astype(np.int32)
        up[up < 0] = n
        while (up != n).any():  # pointer doubling: log2(depth) rounds
            depth += depth[up]
            up = up[up]
        return depth[:n]

    @cached_property
    def ancestor_mask(self) -> Bools:
        """Which nodes a node may see among the nodes: itself and its ancestors, bool[n, n] (row sees column)."""
        n = len(self)
        if self.is_chain:
            return np.tri(n, dtype=np.bool_)
        sees = np.zeros((n + 1, n + 1), dtype=np.bool_)
        np.fill_diagonal(sees, True)
        up = np.append(self.parents, n).astype(np.int32)
        up[up < 0] = n
        while (up != n).any():
            sees |= sees[up]
            up = up[up]
        return np.ascontiguousarray(sees[:n, :n])

    @cached_property
    def path_belief(self) -> Floats:
        """Product of beliefs from the root to each node, float32[n]; no child's exceeds its parent's."""
        if self.is_chain:
            return np.cumprod(self.belief, dtype=np.float32)
        product: list[float] = []  # parent by parent, so that rounding never lifts a child above its parent
        for parent, belief in zip(self.parents.tolist(), self.belief.tolist(), strict=True):
            product.append(belief * product[parent] if parent >= 0 else belief)
        return np.array(product, dtype=np.float32)

    @cached_property
    def n_lookahead(self) -> int:
        """How many of the nodes are lookahead nodes."""
        return int(np.count_nonzero(self.lookahead))

    @property
    def distinct(self) -> bool:
        """Whether no two siblings are equal."""
        return (
            self.is_chain
            or self.vouched
            or len(set(zip(self.parents.tolist(), self.tokens.tolist(), strict=True))) == len(self)
        )

    @cached_property
    def leaves(self) -> Ints:
        """Nodes without children, int32[...]."""
        has_child = np.zeros(len(self) + 1, dtype=np.bool_)
        has_child[self.parents] = True  # -1 lands on the spare last place
        return np.flatnonzero(~has_child[:-1]).astype(np.int32)

    @property
    def longest(self) -> int:
        """Draft nodes on the longest branch."""
        if self.is_chain or self.n_lookahead:
            return len(self) if not self.n_lookahead else int(self.depth[~self.lookahead].max(initial=0))
        depth: list[int] = []
        for parent in self.parents.tolist():
            depth.append(1 + depth[parent] if parent >= 0 else 1)
        return max(depth, default=0)

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
        parents, tokens, nodes = self.parents, self.tokens, ascending(len(self))
        if self.n_lookahead:
            nodes = np.flatnonzero(~self.lookahead).astype(np.int32)
            parents, tokens = parents[nodes], tokens[nodes]
        # From behind, so that of equal siblings the first one stays.
        flat = zip(parents[::-1].tolist(), tokens[::-1].tolist(), strict=True)
        return dict(zip(flat, nodes[::-1].tolist(), strict=True))

    def child(self, node: int, token: int) -> int:
        """The draft child of ``node`` (-1: the root) with this token, or -1; lookahead nodes do not count."""
        if self.is_chain:
            below = node + 1
            if below == len(self.tokens):
                return -1
            return (
                below if self.tokens[below] == token and not (self.n_lookahead and self.lookahead[below]) else -1
            )
        return self._children.get((node, token), -1)

    def children(self, node: int) -> NDArray[np.intp]:
        """The draft children of ``node`` (-1: the root), ascending; lookahead nodes do not count."""
        return np.flatnonzero((self.parents == node) & ~self.lookahead)

    def take(self, nodes: NDArray[Any] | Sequence[int]) -> TokenTree:
        """Return the tree of these nodes, ascending and closed under parents."""
        kept = nodes.tolist() if isinstance(nodes, np.ndarray) else list(nodes)
        place = [-1] * (len(self) + 1)  # the last one is that of the root, parent -1
        for new, node in enumerate(kept):
            place[node] = new
        above = self.parents.tolist()
        parents = [place[above[node]] for node in kept]
        tree = self._picked_from(np.array(kept, dtype=np.intp))
        is_chain = parents == list(range(-1, len(kept) - 1))
        vars(tree).update(parents=np.array(parents, dtype=np.int32), is_chain=is_chain)
        if "_locked" in vars(tree):
            tree.parents.flags.writeable = False
        return tree

    def _picked_from(self, picked: slice | NDArray[np.intp]) -> TokenTree:
        tree, known = object.__new__(TokenTree), vars(self)
        own = vars(tree)
        own.update(_whole=self, _picked=picked)
        if "vouched" in known:
            own.update(vouched=True, by_rates=self.by_rates)
        if "_locked" in known:
            own["_locked"] = True
        if known.get("n_lookahead") == 0:
            own["n_lookahead"] = 0
        return tree

    def head(self, count: int) -> TokenTree:
        """Return the tree of the first ``count`` nodes; its arrays are views."""
        tree = self._picked_from(slice(count))
        vars(tree)["is_chain"] = self.is_chain
        if not self.is_chain and tree.parents.tolist() == list(range(-1, count - 1)):
            vars(tree)["is_chain"] = True
        return tree

    def seen_as_chain(self) -> TokenTree:
        """Return this tree, or an equal one with `is_chain` set if it is a chain and its maker did not say so."""
        if self.is_chain or self.vouched or self.parents.tolist() != list(range(-1, len(self) - 1)):
            return self
        return dataclasses.replace(self, is_chain=True)

    def best_chain(self) -> Ints:
        """Nodes of one root-to-leaf chain of drafts: at each step the child believed in most."""
        drafts = np.flatnonzero(~self.lookahead)
        if self.is_chain:
            return drafts.astype(np.int32)
        best: dict[int, int] = {}
        for node in drafts.tolist():
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
        if source == 0 and (self.vouched or not self.source.any()):
            return self
        tree = object.__new__(TokenTree)
        vars(tree).update(vars(self), source=constant(source, len(self)))
        return tree

    def copy(self) -> Self:
        """Return an equal tree with arrays of its own, which nobody else writes into."""
        columns: dict[str, Any] = {name: np.array(getattr(self, name)) for name in _COLUMNS}
        return dataclasses.replace(self, **columns)

    def locked(self) -> Self:
        """Return an equal tree with read-only arrays: this one if its are, else a copy."""
        if "_locked" in vars(self):
            return self
        writeable = [name for name in _COLUMNS if getattr(self, name).flags.writeable]
        return self.copy().lock() if writeable else self

    def lock(self) -> Self:
        """Make the arrays read-only, as everything is that reaches a drafter; returns the tree itself."""
        for name in _COLUMNS:
            column = getattr(self, name)
            column.flags.writeable = False
            vars(self)[name] = column.view()  # a view of a locked array cannot be unlocked
        vars(self)["_locked"] = True
        return self

    def check_integrity(self, vocab_size: int | None = None) -> None:
        """Raise `IntegrityError` if the arrays disagree with each other or with the rules above."""
        n = len(self)
        if self.vouched:
            if self.highest is not None and vocab_size is not None and self.highest < vocab_size:
                return
            _check_tokens(self.tokens.tolist(), vocab_size)
            return
        for name, dtype in _COLUMNS.items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != (n,):
                raise IntegrityError(f"{name} must be {dtype.name}[{n}], got {array!r:.80}")
        if not n:
            return
        # On lists: this runs every step, on caches that the pass has just emptied, where a few lines of
        # interpreter are several times faster than as many calls into numpy.
        parents, tokens = self.parents.tolist(), self.tokens.tolist()
        if self.is_chain:
            if parents != list(range(-1, n - 1)):
                raise IntegrityError("is_chain is set, yet the parents are no chain")
        elif not all(-1 <= parent < node for node, parent in enumerate(parents)):
            raise IntegrityError("a parent must be -1 or come before its child")
        _check_tokens(tokens, vocab_size)
        if not all(0 <= belief <= 1 for belief in self.belief.tolist()):
            raise IntegrityError("beliefs must be probabilities")
        if self.n_lookahead:
            below = self.parents >= 0
            if (self.lookahead[self.parents[below]] & ~self.lookahead[below]).any():
                raise IntegrityError("children of lookahead nodes must be lookahead nodes")


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
    if len(trees) == 1 and trees[0].distinct:
        return trees[0].seen_as_chain(), [ascending(len(trees[0]))]
    place: dict[tuple[int, int], int] = {}
    first: list[tuple[int, int]] = []  # (tree, node) whose arrays a merged node takes
    parents: list[int] = []
    belief: list[float] = []
    lookahead: list[bool] = []
    rows = []
    for which, tree in enumerate(trees):
        row: list[int] = []
        flat = zip(
            tree.tokens.tolist(),
            tree.parents.tolist(),
            tree.belief.tolist(),
            tree.lookahead.tolist(),
            strict=True,
        )
        for node, (token, parent, trust, is_lookahead) in enumerate(flat):
            above = row[parent] if parent >= 0 else -1
            spot = place.setdefault((above, token), len(first))
            if spot == len(first):
                first.append((which, node))
                parents.append(above)
                belief.append(trust)
                lookahead.append(is_lookahead)
            else:
                if (not is_lookahead, trust) > (not lookahead[spot], belief[spot]):
                    first[spot], belief[spot], lookahead[spot] = (which, node), trust, is_lookahead
            row.append(spot)
        rows.append(np.asarray(row, dtype=np.int32))
    return (_gather(trees, first, parents, lookahead).lock() if first else TokenTree.empty()), rows


def _gather(
    trees: Sequence[TokenTree], first: list[tuple[int, int]], parents: list[int], lookahead: list[bool]
) -> TokenTree:
    starts = np.concatenate(([0], np.cumsum([len(t) for t in trees])))
    pick = np.asarray([starts[which] + node for which, node in first], dtype=np.intp)
    up = np.asarray(parents, dtype=np.int32)

    def column(name: str) -> Any:
        return np.concatenate([getattr(t, name) for t in trees])[pick]

    return TokenTree(
        column("tokens"),
        up,
        column("belief"),
        column("source"),
        column("evidence"),
        column("draft_prob"),
        np.asarray(lookahead, dtype=np.bool_),
        is_chain=bool((up == np.arange(-1, len(up) - 1)).all()),
    )


def _check_tokens(tokens: Sequence[int], vocab_size: int | None) -> None:
    if tokens and (min(tokens) < 0 or (vocab_size is not None and max(tokens) >= vocab_size)):
        raise IntegrityError(f"token ids must lie in [0, {vocab_size or 'vocabulary'})")


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """Return an equal array of one dimension that nobody can make writable: for what all trees share."""
    return np.frombuffer(array.tobytes(), dtype=array.dtype)


@lru_cache(maxsize=512)
def constant(value: int, n: int) -> Ints:
    """Return int32[n], all ``value``, read-only: all trees share them."""
    return sealed(np.full(n, value, dtype=np.int32))


@lru_cache(maxsize=256)
def ascending(nodes: int) -> Ints:
    """Return int32[nodes], from 0 on, read-only: all trees share them."""
    return sealed(np.arange(nodes, dtype=np.int32))


def _spread(value: Any, n: int, dtype: type) -> NDArray[Any]:
    array: NDArray[Any] = np.asarray(value, dtype=dtype)
    return np.full(n, array, dtype=dtype) if array.ndim == 0 else array


_COLUMNS: dict[str, np.dtype[Any]] = {
    "tokens": np.dtype(np.int32),
    "parents": np.dtype(np.int32),
    "belief": np.dtype(np.float32),
    "source": np.dtype(np.int32),
    "evidence": np.dtype(np.int32),
    "draft_prob": np.dtype(np.float32),
    "lookahead": np.dtype(np.bool_),
}
_EMPTY = TokenTree.build([]).lock()
