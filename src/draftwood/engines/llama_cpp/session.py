"""One text in llama.cpp's cache: rows of a pass over its tree, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from draftwood.engines.committed import CommittedText, locked
from draftwood.engines.llama_cpp.cache import NONE, Cache
from draftwood.engines.llama_cpp.context import PassRow
from draftwood.tree import TokenTree


class LlamaSession(CommittedText):
    """A text whose cells belong to the sequences of ``text``; nothing is moved when a branch is kept.

    Each leaf of a tree is a sequence of llama.cpp, and a node belongs to the sequences of all leaves below it.
    ``replay`` counts committed tokens that the next pass reads again.
    """

    replay = 0

    def __init__(self, cache: Cache, lock: Any) -> None:
        super().__init__(lock)
        self.cache = cache
        self.text = cache.open()
        self._closed = False
        # Of the last pass: each sequence, and its nodes from the root.
        self._ways: list[tuple[int, list[int]]] = []
        self._last_in = 0  # the number of that pass, if this text's rows were its last ones

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of its tokens, from above: as if no layer had a window."""
        return self.cache.cell_bytes * len(self._ids)

    def commit(self, ids: Sequence[int]) -> None:
        """Take in text that the cache has read."""
        self._ids += map(int, ids)

    def prepare(self, tree: TokenTree) -> None:
        """Make the cache ready for a pass over a root and its tree."""
        del tree
        self.undo()

    def rows(self, root: int, tree: TokenTree, *, is_last: bool) -> list[PassRow] | None:
        """Return the rows of a pass over a root and its tree; None while too few sequences are free.

        ``is_last``: no other text's rows follow in the pass.
        """
        text = self.text
        if not len(tree):
            self._ways, self._scored = [(text.home, [])], (root, tree)
            text.begin(1)
            return [PassRow(root, text.length, (text.home,))]
        parents = tree.parents.tolist()
        ends = sorted(set(range(len(parents))) - set(parents))
        sequences = self.cache.leaves(text, len(ends))
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
        length, self._last_in = text.length, self.cache.passes + 1 if is_last else 0
        self._scored = (root, tree)
        text.begin(len(below))
        ids = [root, *tree.tokens.tolist()]
        depths = range(len(ids)) if tree.is_chain else [0, *tree.depth.tolist()]
        return [PassRow(*row) for row in zip(ids, (length + depth for depth in depths), below, strict=True)]

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        kept = [root, *(int(tree.tokens[node]) for node in path)]
        if self.text.lost:  # the cache was written anew since the pass
            self.undo()
            with self.cache.reading(self.text, len(kept)) as read:
                read(kept, NONE)
        else:
            self._settle(list(path))
        self._ids += kept

    def _settle(self, path: list[int]) -> None:
        """Take every sequence off what was not accepted; one that sees all of the path becomes the home."""
        text, cache, first = self.text, self.cache, self.text.length + 1
        if len(self._ways) == 1 and not self._ways[0][1]:  # the root alone: nothing to take off
            text.keep(first)
            return
        last, occupied = path[-1] if path else -1, 0
        is_last = self._last_in == cache.passes  # no cell of a later pass, nor of another text, comes after it
        agreed: dict[int, int] = {}
        for sequence, way in self._ways:
            common = len(list(takewhile(lambda pair: pair[0] == pair[1], zip(way, path, strict=False))))
            dropped, agreed[sequence] = way[common:], first + common
            stays = bool(dropped) and cache.ordered and (not is_last or dropped[0] < last)
            occupied += len(dropped) if stays else 0
            cache.settle(sequence, first + common, occupied=stays)
        length = first + len(path)
        home = next(sequence for sequence, end in agreed.items() if end == length)
        leaves = {leaf: seen for leaf, seen in {**text.leaves, **agreed}.items() if leaf != home}
        cache.trash += occupied
        text.keep(length, home, leaves)
        if cache.lacks(text, length):
            cache.cut(text, 0)  # `undo` reads it again

    def undo(self) -> None:
        """Drop the last pass, if it was not kept, and mend what an interrupted call left undone."""
        self._scored, text, length = None, self.text, len(self._ids)
        if text.pending or text.lost or text.length != length:
            self.cache.cut(text, length)
        self._read_rest()

    def _read_rest(self) -> None:
        """Read what the cache lacks of the text."""
        text, length, part = self.text, len(self._ids), self.cache.widest
        if text.length < length:
            with self.cache.reading(text, length - text.length) as read:
                for start in range(text.length, length, part):
                    read(self._ids[start : min(start + part, length)], NONE)

    @locked
    def truncate(self, length: int) -> None:
        self.undo()
        if length < self.length:
            self.cache.cut(self.text, length)
            del self._ids[self.text.length :]

    @locked
    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.cache.close(self.text)


MOST_WAITING = 16
"""Most tokens that are read again in front of a root; the engine for transformers tells why (`SETTLE`)."""


class SnapshotSession(LlamaSession):
    """A text whose state is saved before a pass with a draft, and restored if not all of the draft is accepted.

    The accepted tokens wait then (`replay`): the next pass begins with them. A pass without a draft saves nothing.
    If it is undone and nothing was saved before, the text is read again, as after an interrupt.
    """

    @property
    def replay(self) -> int:  # type: ignore[override]
        return max(0, self.length - self.text.length)

    def prepare(self, tree: TokenTree) -> None:
        self._drop_pass()
        if (waiting := self.replay) > MOST_WAITING or waiting + 1 + len(tree) > self.cache.widest:
            self._read_rest()

    def rows(self, root: int, tree: TokenTree, *, is_last: bool) -> list[PassRow]:
        text, self._last_in = self.text, self.cache.passes + 1 if is_last else 0
        if len(tree) and text.snapshot is None:
            self.cache.save(text)
        ids = [*self._ids[text.length :], root, *tree.tokens.tolist()]
        self._scored = (root, tree)
        text.begin(len(ids))
        return [PassRow(token, text.length + i, (text.home,)) for i, token in enumerate(ids)]

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        kept = [root, *(int(tree.tokens[node]) for node in path)]
        if self.text.lost or len(path) < len(tree):
            self._drop_pass()
        else:
            self.text.keep(self.length + len(kept))
        self._ids += kept

    def undo(self) -> None:
        self._drop_pass()
        self._read_rest()

    @locked
    def truncate(self, length: int) -> None:
        self._drop_pass()
        if length < self.text.length:
            self.cache.cut(self.text, length)
            length = self.text.length
        del self._ids[length:]

    def _drop_pass(self) -> None:
        """Go back to what the cache held before the last pass, if it was not kept."""
        self._scored, text = None, self.text
        if text.pending or text.length > self.length:
            self.cache.cut(text, self.length, ends_cache=self._last_in == self.cache.passes)
        text.lost = False


class SavedState(NamedTuple):
    """A text, and its keys and values as llama.cpp writes them."""

    ids: tuple[int, ...]
    cells: bytearray

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return len(self.cells)
