"""One text in llama.cpp's cache: rows of a pass over its tree, and what is kept of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from draftwood.contracts import Capabilities
from draftwood.engines.committed import CommittedText, locked
from draftwood.engines.llama_cpp.branches import Branches
from draftwood.engines.llama_cpp.cache import NONE
from draftwood.engines.llama_cpp.context import Row
from draftwood.engines.llama_cpp.mode import Mode
from draftwood.engines.llama_cpp.weights import Weights
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
        self.text.begin(len(below))
        ids = [root, *tree.tokens.tolist()]
        depths = range(len(ids)) if tree.is_chain else [0, *tree.depth.tolist()]
        return [Row(*row) for row in zip(ids, (length + depth for depth in depths), below, strict=True)]

    def _root_alone(self, root: int, tree: TokenTree) -> Row:
        text = self.text
        self._ways, self._scored = [(text.home, [])], (root, tree)
        text.begin(1)
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
            text.keep(first)
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
        text.keep(length, home, leaves)
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


MOST_WAITING = 16
"""Most tokens that are read again in front of a root; the engine for transformers tells why (`SETTLE`)."""


class SnapshotSession(LlamaSession):
    """A text whose state is saved before a pass with a draft, and restored if not all of the draft is accepted.

    The accepted tokens wait then (`replay`): the next pass begins with them. A pass without a draft saves nothing.
    If it is undone and nothing was saved before, the text is read again, as after an interrupt.
    """

    @property
    def replay(self) -> int:
        return max(0, self.length - self.text.length)

    def prepare(self, tree: TokenTree) -> None:
        self._drop_pass()
        if (waiting := self.replay) > MOST_WAITING or waiting + 1 + len(tree) > self.mode.widest:
            self._read_rest()

    def rows(self, root: int, tree: TokenTree, *, is_last: bool) -> list[Row]:
        text, self._last_in = self.text, self._cache.passes + 1 if is_last else 0
        if len(tree) and text.snapshot is None:
            self._cache.save(text)
        ids = [*self._ids[text.length :], root, *tree.tokens.tolist()]
        self._scored = (root, tree)
        text.begin(len(ids))
        return [Row(token, text.length + i, (text.home,)) for i, token in enumerate(ids)]

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        text, kept = self.text, [root, *(int(tree.tokens[node]) for node in path)]
        if text.lost or len(path) < len(tree):
            self._drop_pass()
        else:
            text.keep(self.length + len(kept))
        self._ids += kept

    def undo(self) -> None:
        self._drop_pass()
        self._read_rest()

    @locked
    def truncate(self, length: int) -> None:
        self._drop_pass()
        if length < self.text.length:
            self._cache.cut(self.text, length)
            length = self.text.length
        del self._ids[length:]

    def _drop_pass(self) -> None:
        """Go back to what the cache held before the last pass, if it was not kept."""
        self._scored, text = None, self.text
        if text.pending or text.length > self.length:
            self._cache.cut(text, self.length, ends_cache=self._last_in == self._cache.passes)
        text.found_lost()


@dataclass(frozen=True, slots=True, eq=False)
class SavedState:
    """The cells of a text.

    Attributes
    ----------
    ids
        The text.
    cells
        Keys and values, as llama.cpp writes them.
    """

    ids: tuple[int, ...]
    cells: bytearray

    @property
    def nbytes(self) -> int:
        """Bytes of all keys and values."""
        return len(self.cells)


def save(weights: Weights, session: LlamaSession) -> SavedState | None:
    """Copy what a session has committed; None if that is nothing, or not of use to another text.

    That is where layers have a window, whose older cells are gone, or a state, which belongs to one length alone.
    """
    if weights.window or weights.is_recurrent:
        return None
    session.undo()
    ids, cells = tuple(session.ids), session.mode.cache.copied(session.text)
    return SavedState(ids, cells) if ids else None


def fill(session: LlamaSession, saved: SavedState, length: int) -> None:
    """Make the first ``length`` tokens of what was saved the committed text of a new session."""
    session.mode.cache.paste(session.text, saved.cells, len(saved.ids))
    session.commit(saved.ids)
    session.truncate(length)
