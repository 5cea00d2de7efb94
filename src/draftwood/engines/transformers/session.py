"""One text in the arena: what a pass over it looks like, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.committed import CommittedText, locked, with_root
from draftwood.engines.transformers.cache import Arena
from draftwood.engines.transformers.pass_rows import PassRows
from draftwood.tree import TokenTree

SPARE = 64  # rows beyond the reserved ones: a usual tree, so that its buffers need not grow for it


class TransformersSession(CommittedText):
    """A slot of ``arena`` for ``rows`` tokens or more: ``length`` rows are committed, what a pass wrote behind
    them is provisional. ``first`` has, per window width, the position in the text of row 0 of those buffers."""

    replay = 0

    def __init__(self, arena: Arena, lock: Any, rows: int) -> None:
        super().__init__(lock)
        self._arena = arena
        self._slot: int | None = self._arena.take(rows + SPARE)
        self.first = dict.fromkeys(set(self._arena.windows), 0)
        self._written = 0  # rows of the slot that passes have written to at most

    @property
    def slot(self) -> int:
        """Its slot in the arena."""
        if self._slot is None:
            raise RuntimeError("this session is closed")
        return self._slot

    def pass_rows(
        self, rows: int, positions: NDArray[np.int64] | None = None, among: NDArray[np.bool_] | None = None
    ) -> PassRows:
        """Return the rows of a pass after the committed text; without positions they are a chain."""
        self._take_back()
        self._arena.reserve(self.length + rows)
        self._make_room(rows)
        offsets = {window: self.length - first for window, first in self.first.items()}
        self._written = max(self._written, *(offset + rows for offset in offsets.values()))
        if positions is None:
            positions = np.arange(self.length, self.length + rows, dtype=np.int64)
        return PassRows(self.slot, positions, among, offsets)

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
        start = next((i for i, node in enumerate(path) if node != i), len(path))
        if start < len(path):  # rows before the first one that must move are in place already
            for window, first in self.first.items():
                base = self.length - first + 1
                self._arena.move_rows(self.slot, window, base + start, [base + node for node in path[start:]])
        self._ids.append(root)
        if len(path):
            self._ids += tree.tokens[list(path)].tolist()

    @locked
    def truncate(self, length: int) -> None:
        self._take_back()
        if length >= self.length:
            return
        # Windowed layers must still hold what the tokens after the cut can see; if not, all is read again.
        if any(w is not None and max(0, length - w + 1) < first for w, first in self.first.items()):
            length, self.first = 0, dict.fromkeys(self.first, 0)
        del self._ids[length:]

    @locked
    def fork(self) -> TransformersSession:
        twin = TransformersSession(self._arena, self.lock, self._arena.capacity - SPARE)
        self._arena.copy_slot(self.slot, twin.slot)
        twin._ids, twin.first, twin._written = list(self._ids), dict(self.first), self._written
        return twin

    @locked
    def close(self) -> None:
        if self._slot is not None:
            self._arena.give_back(self._slot, self._end())
            self._slot = None

    def _take_back(self) -> None:
        """Clear what a pass has written that was not kept: its rows may have spoilt each other."""
        if self._scored is not None:
            self._scored = None
            for window, first in self.first.items():
                self._arena.clear(self.slot, window, self.length - first, self._end())

    def _end(self) -> int | None:
        """The row after the last one that passes have written; None where padding may have written more."""
        return None if self._arena.is_padded else self._written

    def _make_room(self, rows: int) -> None:
        """Shift windowed buffers that the next pass would overrun, keeping what the window still reaches."""
        for window, first in self.first.items():
            held = self.length - first
            if window is None or held + rows <= self._arena.rows_of(window):
                continue
            kept = min(window - 1, held)
            try:
                self._arena.move_rows(self.slot, window, 0, range(held - kept, held))
                self.first[window] = self.length - kept
            except BaseException:  # Ctrl-C: some layers are shifted and others not, so all must be read again
                self._ids, self.first = [], dict.fromkeys(self.first, 0)
                raise
