"""Texts of models that keep a state which llama.cpp cannot take back: it is saved before a draft is tried."""

from __future__ import annotations

from collections.abc import Sequence

from draftwood.engines.committed import locked
from draftwood.engines.llama_cpp.context import Row
from draftwood.engines.llama_cpp.session import LlamaSession
from draftwood.tree import TokenTree

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
        text.pending, text.lost = True, False
        text.cells = text.length + len(ids)
        return [Row(token, text.length + i, (text.home,)) for i, token in enumerate(ids)]

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        text, kept = self.text, [root, *(int(tree.tokens[node]) for node in path)]
        if text.lost or len(path) < len(tree):
            self._drop_pass()
        else:
            text.snapshot = None
            text.length = text.cells = self.length + len(kept)
            text.pending = False
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
        text.lost = False  # a pass that was lost is out of the cache
