"""One text in a model's own cache: which tokens are committed, which of them it holds, how drafts are removed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Capabilities, Positions, Watch
from draftwood.engines.committed import CommittedText, check_room, locked
from draftwood.engines.transformers.native.cache import NativeCache
from draftwood.engines.transformers.native.passes import NativePasses
from draftwood.engines.transformers.scores import WATCHED, TorchScores
from draftwood.errors import CapabilityError
from draftwood.tree import TokenTree

NONE: Positions = np.empty(0, dtype=np.int64)
SETTLE = 16
"""Most tokens that are read again in front of a root. With t + c n seconds for a pass over n tokens and 1 + a
tokens per step, a bound b costs a step c b / 2 for tokens read again and t (1 + a) / b for passes that only catch
up. The least is at b = sqrt(2 t (1 + a) / c): with t = 15 c (a CPU) 9 for a = 1.5 and 16 for a = 8, and flat."""


class NativeSession(CommittedText):
    """A text in a cache of its own. Where the model carries states, rejected tokens are removed by putting back a
    copy made before the pass, and the accepted ones wait (`replay`) to be read again before the next root.
    ``chunk`` is the most tokens per pass of reading; None reads the prompt in one pass, all else token by
    token."""

    def __init__(self, passes: NativePasses, lock: Any, capabilities: Capabilities, chunk: int | None) -> None:
        super().__init__(lock)
        self._passes, self._can, self._chunk = passes, capabilities, chunk
        self._stateful = passes.kept.stateful
        self._cache: NativeCache | None = NativeCache.empty(passes.kept)
        self._read = 0  # tokens of the text that the cache holds, once it is clean
        self._copy: NativeCache | None = None
        self._clean = True  # False while the cache holds tokens that are not committed

    @property
    def replay(self) -> int:
        """Committed tokens that the next pass reads again."""
        return len(self._ids) - self._read

    @property
    def cache(self) -> NativeCache:
        if self._cache is None:
            raise RuntimeError("this session is closed")
        return self._cache

    @property
    def cache_bytes(self) -> int | None:
        """Bytes of what the model's cache holds; None for caches without layers."""
        return self.cache.nbytes

    @locked
    def score(self, root: int, tree: TokenTree) -> TorchScores:
        """Score root and nodes; `keep` decides what stays."""
        if 1 + len(tree) > self._can.max_pass or not tree.is_chain:
            raise CapabilityError("this target scores no trees, or not so many nodes: plan by its capabilities")
        self._rewind()
        drafts = len(tree)
        if self.replay > SETTLE:
            self._catch_up()
        if drafts and self._stateful:
            self._copy = self.cache.copied()
        ids = np.concatenate((self._waiting(), [root], tree.tokens)).astype(np.int64)
        self._clean = False
        scores = self._passes.run(self.cache, ids, 1 + drafts)
        self._scored = (root, tree)
        return scores

    @locked
    def keep(self, path: Sequence[int]) -> None:
        root, tree = self._take_scored()
        self._ids += [root, *tree.tokens[: len(path)].tolist()]
        if not self._stateful:
            self.cache.cut(len(self._ids))
        elif len(path) < len(tree):
            self._rewind()
            return
        self._read, self._clean, self._copy = len(self._ids), True, None

    @locked
    def read(self, ids: Sequence[int], watch: Watch | None = None) -> TorchScores:
        """Read more text; returns the scores of its last token."""
        check_room(self.length, ids, self._can.max_positions)
        self._rewind()
        before = len(self._ids)
        self._ids += np.asarray(ids).tolist()
        try:
            return self._catch_up(watch, before)
        except BaseException:
            self.truncate(before)
            raise

    @locked
    def truncate(self, length: int) -> None:
        self._rewind()
        if length < self._read:
            if self._stateful:
                self._start_over()  # the text is read again by the next pass
            else:
                self.cache.cut(length)
                self._read = length
        del self._ids[length:]

    def close(self) -> None:
        self._cache = self._copy = self._scored = None

    def _waiting(self) -> NDArray[np.int64]:
        return np.array(self._ids[self._read :], dtype=np.int64)

    def _catch_up(self, watch: Watch | None = None, first: int = 0) -> TorchScores:
        """Read the tokens that the cache does not hold yet, at least one; returns the scores of the last.
        ``watch`` sees those from position ``first`` on."""
        while True:
            ids = self._waiting()
            most = self._chunk or (1 if self._read else len(ids))
            piece, start = ids[:most], self._read
            known = max(0, first - start)
            wanted = NONE if watch is None else known + watch.among(start + known, max(0, len(piece) - known))
            if self._chunk is not None and len(wanted) > WATCHED:
                piece, wanted = piece[: wanted[WATCHED]], wanted[:WATCHED]
            end = start + len(piece)
            self._clean = False
            scores = self._passes.run(self.cache, piece, np.union1d(wanted, len(piece) - 1) if len(wanted) else 1)
            if watch is not None and len(wanted):
                watch.show(start + wanted, scores.first(len(wanted)))
            self._read, self._clean = end, True
            if len(piece) == len(ids):
                return scores.last()

    def _rewind(self) -> None:
        """Bring the cache back to the committed text that it held before the last pass."""
        self._scored = None
        if self._clean:
            return
        if not self._stateful:
            self.cache.cut(self._read)
        elif self._copy is not None:
            self._cache = self._copy
        else:
            self._start_over()
        self._copy, self._clean = None, True

    def _start_over(self) -> None:
        self._cache, self._read = NativeCache.empty(self._passes.kept), 0
