"""One text in the CPU engine's cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from draftwood.engines.committed import CommittedText, locked
from draftwood.engines.cpu.code.cells import PAGE
from draftwood.engines.cpu.code.records import WIDEST
from draftwood.engines.cpu.pages import Page, Pages
from draftwood.engines.cpu.passes import Rows
from draftwood.engines.cpu.phases import Without
from draftwood.engines.cpu.recent import SavedRest
from draftwood.engines.cpu.states import SavedStates
from draftwood.engines.lent_scores import RowScores
from draftwood.errors import CapabilityError, UsageError
from draftwood.tree import TokenTree


class CpuSession(CommittedText):
    """A text whose keys and values lie in pages; a tree's nodes lie in the cells after it until they are kept.

    ``model`` is the `draftwood.engines.cpu.model.CpuModel` that computes its passes.
    """

    def __init__(
        self, model: Any, pages: Sequence[Page] = (), ids: Sequence[int] = (), saved: SavedRest | None = None
    ) -> None:
        super().__init__(model.lock)
        self.model = model
        self.pages = Pages(model.page_bytes, pages)
        self.recent = model.recent(self.pages, len(ids), saved)
        self._ids = list(ids)
        self._closed = False
        self._grown: list[int] = []  # tokens of nodes that `grow` has read
        self._paths: list[list[int]] = []  # of each of them, the cells of its path after the text

    @property
    def cache_bytes(self) -> int:
        """Bytes of the keys and values of its tokens, and of states."""
        return int(self.model.token_bytes) * len(self._ids) + (self.recent.nbytes if self.recent else 0)

    def check(self, model: Any) -> None:
        """Raise `UsageError` if passes of this model cannot read the session's pages."""
        if self._closed:
            raise UsageError("this session is closed: open another one")
        if self.model is not model:
            raise UsageError("this session belongs to another target: open one here")

    def begin(self, model: Any) -> None:
        """As `check`, for a pass that forgets the grown nodes, and what the last one has scored."""
        self.check(model)
        self._scored, self._grown, self._paths = None, [], []

    def growing(self, tokens: Sequence[int], parents: Sequence[int]) -> Rows:
        """Return rows of a pass over new nodes after the text and the grown nodes; call `grew` after the pass."""
        base, paths = len(self._ids), list(self._paths)
        if not len(tokens):
            raise UsageError("there are no nodes to grow: give at least one")
        for parent in parents:
            if not -1 <= parent < len(paths):
                raise UsageError(f"a node's parent is {parent}: give -1, or one of the {len(paths)} nodes before")
            paths.append([*(paths[parent] if parent >= 0 else ()), base + len(paths)])
        if len(paths) > WIDEST:
            raise CapabilityError(f"this target grows trees of at most {WIDEST} nodes: draft fewer")
        self._scored = None  # its nodes lie in the cells that the new ones take
        return self.rows([int(token) for token in tokens], paths[len(self._paths) :])

    def rows(
        self, tokens: Any, ways: Sequence[Sequence[int]] | None = None, scored: Sequence[int] | None = None, *,
        is_text: bool = False,
    ) -> Rows:  # fmt: skip
        """Return the rows of a pass over these tokens after the text and the grown nodes, with cells made ready.

        ``ways`` and ``scored`` are as of `Rows`; ``is_text``: the tokens will be committed, all of them.
        """
        base, first = len(self._ids), len(self._paths)
        self.pages.make_ready(base, base + first + len(tokens))
        if self.recent is None:
            return Rows(self.pages, base, tokens, ways, scored)
        wanted = self.recent.wanted(base, len(tokens)) if is_text else [True] * len(tokens)
        places = self.recent.begin(base, first, wanted)
        return Rows(self.pages, base, tokens, ways, scored, recent=self.recent, kept=places, is_text=is_text)

    def stop(self, end: int) -> int:
        """Return where the next pass must end, of those that read text up to ``end``."""
        return end if self.recent is None else self.recent.stop(len(self._ids), end)

    def grew(self, rows: Rows) -> None:
        """Remember nodes that a pass has read."""
        self._grown += rows.tokens
        self._paths += [list(way) for way in rows.ways or ()]

    @locked
    def settle(self, path: Sequence[int]) -> None:
        """Commit these grown nodes, a path from the end of the cached text; the others are forgotten."""
        tokens = [self._grown[node] for node in path]
        self._grown, self._paths = [], []
        self._move(path, len(self._ids))
        self._commit(tokens, path)

    def committed(self, ids: Sequence[int]) -> None:
        """Commit text that a pass has read into the cells after the committed text."""
        self._commit([int(one) for one in ids], range(len(ids)))

    def _commit(self, tokens: Sequence[int], nodes: Sequence[int]) -> None:
        """Commit nodes of the last pass, a path after the text."""
        if self.recent is not None:
            self.recent.commit(len(self._ids), nodes)
        self._ids += tokens

    def scored(self, root: int, tree: TokenTree) -> None:
        """Remember what a pass has scored, for `keep`."""
        self._scored = root, tree

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        self._grown, self._paths = [], []
        tokens = tree.tokens[list(path)].tolist() if len(path) else ()  # before the move: nodes may be wrong
        self._move(path, len(self._ids) + 1)
        self._commit([root, *tokens], [0, *(1 + int(node) for node in path)])

    def _move(self, path: Sequence[int], first: int) -> None:
        """Move the nodes of a path side by side; node 0 of the tree lies in cell ``first``."""
        moves = [(first + node, first + i) for i, node in enumerate(path) if node != i]
        if moves:
            self.model.move(self.pages, moves)

    @locked
    def truncate(self, length: int) -> None:
        self._scored, self._grown, self._paths = None, [], []
        if length < len(self._ids):
            if self.recent is not None:
                length = self.recent.cut(length)
            del self._ids[length:]
            self.pages.cut(length)

    @locked
    def close(self) -> None:
        self._closed, self._scored, self._grown, self._paths = True, None, [], []
        self.pages, self.recent = Pages(self.model.page_bytes), None


class SavedPages:
    """The beginning of a text, for other texts that begin alike: pages that are shared, not copied."""

    def __init__(self, session: CpuSession) -> None:
        session.check(session.model)
        self.model, self.ids = session.model, tuple(session.ids)
        self.pages = session.pages.share(session.length)
        self._saved = None if session.recent is None else session.recent.saved(session.length)
        self.nbytes = sum(page.nbytes for page in self.pages) + (self._saved.nbytes if self._saved else 0)

    def reach(self, length: int) -> int:
        """Return with how many tokens a text can begin, at most ``length``."""
        return length if self._saved is None else self._saved.reach(length)

    def states(self) -> dict[int, NDArray[np.float32]]:
        """As of `draftwood.contracts.target.StoredForm`."""
        return self._saved.stored() if isinstance(self._saved, SavedStates) else {}

    def resumed(self, model: Any, length: int) -> CpuSession:
        """Return a new text that begins with the first ``length`` tokens; raises `UsageError` where it cannot.

        With short convolutions or states it may be shorter: see `draftwood.engines.cpu.recent` and `states`.
        """
        if model is not self.model or not 0 <= length <= len(self.ids):
            raise UsageError(f"the first {length} tokens of this text were not read by this target: open the text")
        length = self.reach(length)
        return CpuSession(model, self.pages[: -(-length // PAGE)], self.ids[:length], self._saved)


Grown = tuple[CpuSession, Sequence[int], Sequence[int]]
"""A text, and tokens and parents of new nodes."""
Some = TypeVar("Some")


def groups(requests: Sequence[Some], rows: Callable[[Some], int]) -> Iterator[list[Some]]:
    """Divide requests, each of at most `WIDEST` rows, into passes of at most so many."""
    group: list[Some] = []
    taken = 0
    for request in requests:
        count = rows(request)
        if taken + count > WIDEST:
            yield group
            group, taken = [], 0
        group.append(request)
        taken += count
    if group:
        yield group


def grow(model: Any, requests: Sequence[Grown], without: tuple[Without, ...] = ()) -> list[RowScores]:
    """Read new nodes, as `draftwood.contracts.Target.grow`; returns their scores."""
    found: list[RowScores] = []
    for session, _, _ in requests:
        session.check(model)
    every = [(session, session.growing(tokens, parents)) for session, tokens, parents in requests]
    for group in groups(every, lambda one: len(one[1].tokens)):
        found += model.score([rows for _, rows in group], without=without)
        for session, rows in group:
            session.grew(rows)
    return found
