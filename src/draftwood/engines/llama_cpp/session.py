"""One text in llama.cpp's cache: rows of a pass over its tree, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.contracts import Capabilities
from draftwood.engines.committed import CommittedText, locked
from draftwood.engines.llama_cpp.branches import Branches
from draftwood.engines.llama_cpp.cache import NONE
from draftwood.engines.llama_cpp.context import Row
from draftwood.engines.llama_cpp.mode import Mode
from draftwood.tree import TokenTree


class LlamaSession(CommittedText):
    """A text whose cells belong to the sequences of ``text``; nothing is moved when a branch is kept.

    Each leaf of a tree is a sequence of llama.cpp, and a node belongs to the sequences of all leaves below it.
    """

    def __init__(self, mode: Mode, lock: Any, text: Branches | None = None) -> None:
        super().__init__(lock)
        self.mode = mode
        self._cache = mode.cache
        self.text = self._cache.open() if text is None else text
        self._closed = False
        # Of the last pass: each sequence, and its nodes from the root.
        self._ways: list[tuple[int, list[int]]] = []
        self._last_in = 0  # the number of that pass, if this text's rows were its last ones

    @property
    def replay(self) -> int:
        """Committed tokens that the next pass reads again."""
        return 0

    @property
    def capabilities(self) -> Capabilities:
        """What passes over this text can do, which may be less than what the target can."""
        return self.mode.capabilities

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of its tokens, from above: as if no layer had a window."""
        return self._cache.cell_bytes * len(self._ids)

    def commit(self, ids: Sequence[int]) -> None:
        """Take in text that the cache has read."""
        self._ids += map(int, ids)

    def prepare(self, tree: TokenTree) -> None:
        """Make the cache ready for a pass over a root and its tree."""
        del tree
        self.undo()

    def rows(self, root: int, tree: TokenTree, *, is_last: bool) -> list[Row] | None:
        """Return the rows of a pass over a root and its tree; None while too few sequences are free.

        ``is_last``: no other text's rows follow in the pass.
        """
        if not len(tree):
            return [self._root_alone(root, tree)]
        parents = tree.parents.tolist()
        ends = sorted(set(range(len(parents))) - set(parents))
        sequences = self._cache.leaves(self.text, len(ends))
        if sequences is None:
            return None
        self._ways = []
        below: list[list[int]] = [[] for _ in range(1 + len(parents))]
        for sequence, end in zip(sequences, ends, strict=True):
            way, node = [], end
            while node >= 0:
                way.append(node)
                below[1 + node].append(sequence)
                node = parents[node]
            self._ways.append((sequence, way[::-1]))
        below[0] = sequences
        length, self._last_in = self.text.length, self._cache.passes + 1 if is_last else 0
        self._scored = (root, tree)
        self.text.pending, self.text.lost = True, False
        self.text.cells += len(below)
        ids = [root, *tree.tokens.tolist()]
        depths = range(len(ids)) if tree.is_chain else [0, *tree.depth.tolist()]
        return [Row(*row) for row in zip(ids, (length + depth for depth in depths), below, strict=True)]

    def _root_alone(self, root: int, tree: TokenTree) -> Row:
        text = self.text
        self._ways, self._scored = [(text.home, [])], (root, tree)
        text.pending, text.lost = True, False
        text.cells += 1
        return Row(root, text.length, (text.home,))

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        kept = [root, *(int(tree.tokens[node]) for node in path)]
        if self.text.lost:  # the cache was written anew since the pass
            self.undo()
            with self._cache.reading(self.text, len(kept)) as read:
                read(kept, NONE)
        else:
            self._settle(list(path))
        self._ids += kept

    def _settle(self, path: list[int]) -> None:
        """Take every sequence off what was not accepted; one that sees all of the path becomes the home."""
        text, cache, first = self.text, self._cache, self.text.length + 1
        if len(self._ways) == 1 and not self._ways[0][1]:  # the root alone: nothing to take off
            text.length = text.cells = first
            text.pending = False
            return
        last, occupied = path[-1] if path else -1, 0
        is_last = self._last_in == cache.passes  # no cell of a later pass, nor of another text, lies behind
        agreed: dict[int, int] = {}
        for sequence, way in self._ways:
            common = _common(way, path)
            dropped, agreed[sequence] = way[common:], first + common
            stays = bool(dropped) and cache.ordered and (not is_last or dropped[0] < last)
            occupied += len(dropped) if stays else 0
            cache.settle(sequence, first + common, occupied=stays)
        home = next(sequence for sequence, end in agreed.items() if end == first + len(path))
        leaves = {leaf: seen for leaf, seen in {**text.leaves, **agreed}.items() if leaf != home}
        length = first + len(path)
        cache.add_trash(occupied)
        text.home, text.leaves, text.length, text.cells, text.pending = home, leaves, length, length, False
        if cache.lacks(text, length):
            cache.cut(text, 0)  # `undo` reads it again

    def undo(self) -> None:
        """Drop the last pass, if it was not kept, and mend what an interrupted call left undone."""
        self._scored, text, length = None, self.text, len(self._ids)
        if text.pending or text.lost or text.length != length:
            self._cache.cut(text, length)
        self._read_rest()

    def _read_rest(self) -> None:
        """Read what the cache lacks of the text."""
        text, length, part = self.text, len(self._ids), self.mode.widest
        if text.length < length:
            with self._cache.reading(text, length - text.length) as read:
                for start in range(text.length, length, part):
                    read(self._ids[start : min(start + part, length)], NONE)

    @locked
    def truncate(self, length: int) -> None:
        self.undo()
        if length < self.length:
            self._cache.cut(self.text, length)
            del self._ids[self.text.length :]

    @locked
    def fork(self) -> LlamaSession:
        twin = type(self)(self.mode, self.lock, self._cache.fork(self.text))
        twin._ids = list(self._ids)
        return twin

    @locked
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._cache.close(self.text)


def _common(way: Sequence[int], path: Sequence[int]) -> int:
    """How many nodes two ways from the root share."""
    shared = 0
    for mine, other in zip(way, path, strict=False):
        if mine != other:
            break
        shared += 1
    return shared
