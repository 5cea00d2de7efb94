"""One text in the arena: what a pass over it looks like, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.committed import CommittedText, locked, with_root
from draftwood.engines.transformers.cache import Arena
from draftwood.tree import TokenTree

SPARE = 64  # rows beyond the reserved ones: a usual tree, so that its buffers need not grow for it


@dataclass(slots=True)
class PassRows:
    """The rows of one session in a pass."""

    slot: int  # the session's slot in the arena
    positions: NDArray[np.int64]  # [rows], in the text
    # [rows, before + rows], which nodes from earlier `grow` calls and which of these rows a row sees; None for
    # plain causal order
    among: NDArray[np.bool_] | None
    offset: int  # cached rows that precede these
    before: NDArray[np.int64]  # positions of the nodes from earlier `grow` calls, the last rows in ``offset``
    first: int = 0  # where these rows begin in the pass

    @property
    def rows(self) -> int:
        return len(self.positions)

    @property
    def end(self) -> int:
        """Where these rows end in the slot."""
        return self.offset + len(self.positions)

    def is_plain_prefill(self, window: int | None) -> bool:
        """True where rows start the text in order and no window cuts: the causal kernel needs no mask."""
        return self.among is None and self.rows > 1 and self.offset == 0 and self.rows <= (window or self.rows)

    def start(self, window: int | None) -> int:
        """First cached row that any of these rows looks at; a lone row sees all from there on."""
        if window is None:
            return 0
        if self.among is None:  # a chain, whose rows and positions go together
            return max(0, self.offset + 1 - window)
        return min(max(0, int(self.positions.min()) + 1 - window), self.offset - len(self.before))

    def mask(self, window: int | None) -> NDArray[np.float32] | None:
        """Additive mask float32[rows, keys from `start` to `end`], or None where every row sees every key."""
        start = self.start(window)
        among = np.tri(self.rows, dtype=np.bool_) if self.among is None else self.among
        among_from = self.end - among.shape[1]  # rows before are committed, and seen by all
        sees = np.ones((self.rows, self.end - start), dtype=np.bool_)
        sees[:, among_from - start :] = among
        if window is not None:  # by positions, not rows: those of a tree differ
            grown = self.positions if self.among is None else np.concatenate((self.before, self.positions))
            keys = np.concatenate((np.arange(start, among_from, dtype=np.int64), grown))
            sees &= self.positions[:, None] - keys[None, :] < window
        return None if sees.all() else np.where(sees, np.float32(0), np.float32(-np.inf))

    def padded_mask(self, window: int | None, rows: int, start: int, end: int) -> NDArray[np.float32]:
        """The same for more rows, and keys from ``start`` to ``end``: see `padding_mask`."""
        padded, own = padding_mask(rows, end - start), self.mask(window)
        padded[: self.rows] = -np.inf
        padded[: self.rows, self.start(window) - start : self.end - start] = 0 if own is None else own
        return padded


def padding_mask(rows: int, keys: int) -> NDArray[np.float32]:
    """Additive mask of rows that mean nothing: they see the first key, so that nothing is NaN."""
    mask = np.full((rows, keys), -np.inf, dtype=np.float32)
    mask[:, 0] = 0
    return mask


class Grown:
    """Nodes that a draft model has read after the cached text, not committed. ``tokens`` are all of them, in the
    order in which they were grown; ``spoilt`` says that scores of one were not finite: then its keys and values
    must be cleared before other passes."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.spoilt = False
        self._lines: list[list[int]] = []  # of each node, its ancestors and itself
        self._is_chain = True

    def add(
        self, tokens: Sequence[int], parents: Sequence[int], length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_] | None]:
        """Add nodes after ``length`` tokens; returns the positions of all nodes, int64[all], and which of them
        each new one sees, bool[new, all], None while all of them are one chain."""
        before = len(self.tokens)
        for token, parent in zip(tokens, parents, strict=True):
            node = len(self.tokens)
            self._is_chain = self._is_chain and parent == node - 1
            self._lines.append([*(self._lines[parent] if parent >= 0 else ()), node])
            self.tokens.append(int(token))
        positions = length - 1 + np.array([len(line) for line in self._lines], dtype=np.int64)
        if self._is_chain:
            return positions, None
        among = np.zeros((len(tokens), len(self.tokens)), dtype=np.bool_)
        for row, line in enumerate(self._lines[before:]):
            among[row, line] = True
        return positions, among


class TransformersSession(CommittedText):
    """A slot of ``arena`` for ``rows`` tokens or more: ``length`` rows are committed, what a pass wrote after them
    is provisional."""

    replay = 0

    def __init__(self, arena: Arena, lock: Any, rows: int) -> None:
        super().__init__(lock)
        self._arena = arena
        self._slot: int | None = self._arena.take(rows + SPARE)
        self._grown = Grown()

    @property
    def slot(self) -> int:
        """Its slot in the arena."""
        if self._slot is None:
            raise RuntimeError("this session is closed")
        return self._slot

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of its cached tokens."""
        return self._arena.held_bytes(self.length)

    def pass_rows(
        self, rows: int, positions: NDArray[np.int64] | None = None, among: NDArray[np.bool_] | None = None
    ) -> PassRows:
        """Return the rows of a pass after the committed text; without positions they are a chain."""
        self._take_back()
        self._arena.reserve(self.length + rows)
        self._arena.wrote(self.slot, rows + self.length)
        if positions is None:
            positions = np.arange(self.length, self.length + rows, dtype=np.int64)
        return PassRows(self.slot, positions, among, self.length, positions[:0])

    def grown_rows(self, tokens: Sequence[int], parents: Sequence[int]) -> PassRows:
        """Return the rows of a pass over nodes that grow on after the cached text and the nodes before them."""
        if not self._grown.tokens:
            self._take_back()
        grown, rows, before = self._grown, len(tokens), len(self._grown.tokens)
        self._arena.reserve(self.length + max(SPARE, before + rows))
        positions, among = grown.add(tokens, parents, self.length)
        offset = self.length + before
        self._arena.wrote(self.slot, offset + rows)
        return PassRows(self.slot, positions[before:], among, offset, positions[:before])

    def spoil(self) -> None:
        """Note that a grown node's scores are not finite."""
        self._grown.spoilt = True

    @locked
    def settle(self, path: Sequence[int]) -> None:
        """Commit these grown nodes, a path from the end of the cached text; the others are forgotten."""
        tokens, spoilt = self._grown.tokens, self._grown.spoilt
        self._move(path, 0)
        self._ids += [tokens[node] for node in path]
        self._grown = Grown()
        if spoilt:
            self._arena.clear(self.slot, self.length)

    def tree_rows(self, root: int, tree: TokenTree) -> PassRows:
        """Return the rows of a pass over a root and its tree, which the next `keep` refers to."""
        positions = among = None
        if not tree.is_chain:
            positions, among = tree.positions(self.length).astype(np.int64), with_root(tree.ancestor_mask)
        pass_rows = self.pass_rows(1 + len(tree), positions, among)
        self._scored = (root, tree)
        return pass_rows

    def commit(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Commit what a pass over these ids wrote."""
        self._ids += np.asarray(ids).tolist()

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        self._move(path, 1)
        self._ids.append(root)
        if len(path):
            self._ids += tree.tokens[list(path)].tolist()

    def _move(self, path: Sequence[int], before: int) -> None:
        """Move the rows of these nodes, the first of which lies ``before`` rows after the text, together."""
        start = next((i for i, node in enumerate(path) if node != i), len(path))
        if start < len(path):  # rows before the first one that must move are in place already
            base = self.length + before
            self._arena.move_rows(self.slot, base + start, [base + node for node in path[start:]])

    @locked
    def truncate(self, length: int) -> None:
        self._take_back()
        del self._ids[length:]

    @locked
    def close(self) -> None:
        if self._slot is not None:
            self._arena.give_back(self._slot)
            self._slot = None

    def _take_back(self) -> None:
        """Clear what a pass has written that was not kept: its rows may have spoilt each other."""
        spoilt, self._grown = self._grown.spoilt, Grown()
        if self._scored is not None or spoilt:
            self._scored = None
            self._arena.clear(self.slot, self.length)
