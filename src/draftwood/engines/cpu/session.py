"""One text in the CPU engine's cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from draftwood.engines.committed import CommittedText, locked
from draftwood.engines.cpu.attention import PAGE
from draftwood.engines.cpu.pages import Page, Pages
from draftwood.errors import UsageError
from draftwood.tree import TokenTree


class CpuSession(CommittedText):
    """A text whose keys and values lie in pages; a tree's nodes lie in the cells behind it until they are kept.

    ``model`` is the `draftwood.engines.cpu.model.CpuModel` that computes its passes.
    """

    replay = 0

    def __init__(self, model: Any, pages: Sequence[Page] = (), ids: Sequence[int] = ()) -> None:
        super().__init__(model.lock)
        self.model = model
        self.pages = Pages(model.page_bytes, pages)
        self._ids = list(ids)
        self._closed = False

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of its tokens."""
        return int(self.model.token_bytes) * len(self._ids)

    def check(self, model: Any) -> None:
        """Raise `UsageError` if passes of this model cannot read the session's pages."""
        if self._closed:
            raise UsageError("this session is closed: open another one")
        if self.model is not model:
            raise UsageError("this session belongs to another target: open one here")

    def committed(self, ids: Sequence[int]) -> None:
        """Take in text that a pass has read into the cells behind the text."""
        self._scored = None
        self._ids += map(int, ids)

    def scored(self, root: int, tree: TokenTree) -> None:
        """Remember what a pass has scored, for `keep`."""
        self._scored = root, tree

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        first, kept = len(self._ids) + 1, tree.tokens[list(path)].tolist() if len(path) else []
        moves = [(first + node, first + i) for i, node in enumerate(path) if node != i]
        if moves:
            self.model.move(self.pages, moves)
        self._ids += [root, *kept]

    @locked
    def truncate(self, length: int) -> None:
        self._scored = None
        if length < len(self._ids):
            del self._ids[length:]
            self.pages.cut(length)

    @locked
    def fork(self) -> CpuSession:
        self.check(self.model)
        twin: CpuSession = self.model.resumed(self, len(self._ids))
        twin.hidden = self.hidden
        return twin

    @locked
    def close(self) -> None:
        self._closed, self._scored = True, None
        self.pages = Pages(self.model.page_bytes)


class SavedPages:
    """The beginning of a text, for other texts that begin alike: pages that are shared, not copied."""

    def __init__(self, session: CpuSession) -> None:
        session.check(session.model)
        self.model, self.ids, self.nbytes = session.model, tuple(session.ids), session.cache_bytes
        self.pages = session.pages.share(session.length)

    def resumed(self, model: Any, length: int) -> CpuSession:
        """Return a new text that begins with the first ``length`` tokens; raises `UsageError` where it cannot."""
        if model is not self.model or not 0 <= length <= len(self.ids):
            raise UsageError(f"the first {length} tokens of this text were not read by this target: open the text")
        return CpuSession(model, self.pages[: -(-length // PAGE)], self.ids[:length])
