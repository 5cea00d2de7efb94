"""Drafter ``ngram-mod``: llama.cpp's hashed pool of n-grams, shared by all requests, corrected; or as it is.

Source: ``ngram-mod`` of llama.cpp (ggml-org/llama.cpp, common/ngram-mod.h and common/speculative.cpp).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftSession, Floats, Ints, Noise
from draftwood.drafters.base import BaseDrafter, TextSession, fixed_rates
from draftwood.drafters.llama_cpp.faithful import NOTHING, ReferenceSession
from draftwood.tree import TokenTree

log = logging.getLogger("draftwood")

ENOUGH = 16  # hits in a row that always suffice for a proposal, even if more nodes were asked for
FEW = 16  # tokens of a key below which llama.cpp warns
FULL = 0.25
"""Share of the slots in use above which the next request starts with an empty pool."""

DEPTHS = (1, 2, 3, 5, 9, 17, 33)
"""Lower bounds of the buckets of a node's depth. Class: 7 times the bucket of `RUNS`, plus that of the depth."""

RUNS = (0, 1, 4, 16)
"""Lower bounds of the buckets of how many committed tokens in a row the pool predicted."""

PRIOR = fixed_rates(
    (
        (0.75, 0.80, 0.84, 0.88, 0.93, 0.94, 0.95),
        (0.80, 0.82, 0.84, 0.88, 0.93, 0.94, 0.95),
        (0.85, 0.86, 0.88, 0.90, 0.94, 0.95, 0.95),
        (0.94, 0.95, 0.96, 0.97, 0.97, 0.97, 0.97),
    )
)
"""Acceptance rate per evidence class: bucket of `RUNS` (row) and of `DEPTHS` (column)."""


class Pool:
    """The map, shared by the sessions of one drafter; allocated when the first of them opens."""

    def __init__(self) -> None:
        self.lock = Lock()  # held while a session reads or writes
        self.epoch = 0  # how many times the map was emptied
        self.used = np.zeros(1, dtype=np.int64)
        self._entries = self._checks = NOTHING

    @property
    def occupancy(self) -> float:
        """Share of the slots in use."""
        return int(self.used[0]) / len(self._entries) if len(self._entries) else 0.0

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._entries.nbytes + self._checks.nbytes

    def make(self, checked: bool) -> None:
        """Allocate it at the first call: 16 MiB, and as much again to detect collisions (``checked``)."""
        from draftwood.drafters.llama_cpp.ngram_pool import EMPTY, SLOTS

        with self.lock:
            if not len(self._entries):
                self._entries = np.full(SLOTS, EMPTY, dtype=np.int32)
                self._checks = np.zeros(SLOTS if checked else 0, dtype=np.int32)

    def clear(self) -> None:
        """Empty it; the caller holds the lock."""
        self._entries.fill(-1)
        self.used[0] = 0
        self.epoch += 1

    def follow(self, run: NDArray[np.int64], text: Ints, bounds: tuple[int, int, int, int], wanted: int) -> Ints:
        """Insert, then return up to ``wanted`` hits; see `read_and_follow`. The caller holds the lock."""
        from draftwood.drafters.llama_cpp.ngram_pool import read_and_follow

        hits = np.empty(wanted, dtype=np.int32)
        pool = self._entries, self._checks, self.used
        return hits[: read_and_follow(pool, run, text, bounds, hits)]


@dataclass(frozen=True)
class NgramModDrafter(BaseDrafter):
    """Follows a map from n_match tokens to the next, of constant size and shared by all requests.

    This is llama.cpp's ngram-mod. All requests share what each of them read, so speed can tell one user what
    another wrote: a drafter object is for one user, or for users who trust each other.

    Parameters
    ----------
    n_match
        Tokens of a key, 1 to 1024.
    n_min
        Least number of hits in a row for a proposal, 0 to 1024; fewer suffice if fewer tokens are asked for.
    n_max
        Most tokens it proposes, 0 to 1024.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-mod.md`` lists them).
    """

    name: ClassVar[str] = "ngram-mod"
    prior: ClassVar[Floats] = PRIOR

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64
    faithful: bool = False
    pool: Pool = field(default_factory=Pool, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("n_match", 1, 1024)
        self.check_range("n_min", 0, 1024)
        self.check_range("n_max", 0, 1024)
        if self.n_match < FEW:
            log.warning("ngram-mod: with n_match below %d, different places share a key: drafts will be poor", FEW)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        self.pool.make(checked=not self.faithful)
        return FaithfulMod(self, prompt) if self.faithful else ModSession(self, prompt)


class ModSession(TextSession):
    """One text, whose tokens are added to the pool as soon as they are committed."""

    def __init__(self, drafter: NgramModDrafter, prompt: Sequence[int]) -> None:
        self._drafter, self._pool = drafter, drafter.pool
        self._read, self._run = 0, np.zeros(1, dtype=np.int64)
        with self._pool.lock:
            if self._pool.occupancy > FULL:  # before the prompt is added; other sessions add their texts again
                self._pool.clear()
            self._epoch = self._pool.epoch
        super().__init__(prompt)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self._follow(0)

    def _follow(self, wanted: int) -> Ints:
        pool, n = self._pool, self._drafter.n_match
        with pool.lock:
            if self._epoch != pool.epoch:
                self._epoch, self._read = pool.epoch, 0
            first, last = self._read, max(self._read, self._length - n)
            self._read = last
            return pool.follow(self._run, self._buffer, (self._length, first, last, n), wanted)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        drafter, self.match_length = self._drafter, 0
        wanted = min(nodes, drafter.n_max)
        hits = self._follow(wanted) if wanted > 0 else NOTHING
        if not len(hits) or len(hits) < min(drafter.n_min, wanted, ENOUGH):
            return TokenTree.empty()
        run = int(self._run[0])
        self.match_length = drafter.n_match + run
        evidence = classes(run, len(hits))
        return TokenTree.build(hits, belief=accept_rates[evidence], evidence=evidence)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._read = max(0, min(self._read, self._length - self._drafter.n_match))
        self._run = np.zeros(1, dtype=np.int64)  # the run was of the text that was cut off

    def fork(self) -> ModSession:
        twin = super().fork()
        twin._run = self._run.copy()
        return twin

    def close(self) -> None:
        super().close()
        self._read = 0


class FaithfulMod(ReferenceSession):
    """As llama.cpp, which also empties the shared pool after five bad drafts of one request."""

    def __init__(self, drafter: NgramModDrafter, prompt: Sequence[int]) -> None:
        self._drafter, self._pool = drafter, drafter.pool
        self._run = np.zeros(1, dtype=np.int64)
        self._evidence = classes(0, drafter.n_max)
        self._inserted = self._drafted = self._bad = 0
        super().__init__(prompt)

    def begin(self) -> None:
        n, self._inserted, self._drafted = self._drafter.n_match, 0, 0
        if self._length < n:
            return
        with self._pool.lock:
            self._insert(self._length, 0)
            if self._pool.occupancy > FULL:  # this removes the prompt that was just added, too
                self._pool.clear()

    def _insert(self, length: int, wanted: int) -> Ints:
        """Insert the new ones of the first ``length`` tokens, then follow the whole text."""
        n, first = self._drafter.n_match, self._inserted
        if length:
            self._inserted = length - n
        bounds = self._length, first, self._inserted, n
        return self._pool.follow(self._run, self._buffer, bounds, wanted)

    def propose(self) -> Ints:
        drafter, history = self._drafter, self._length - 1
        self._drafted = self.match_length = 0
        if history < drafter.n_match:
            return NOTHING
        due = self._inserted + 32 < history
        with self._pool.lock:
            hits = self._insert(history if due else 0, drafter.n_max)
        if len(hits) < min(drafter.n_min, drafter.n_max):
            return NOTHING
        self._drafted = len(hits)
        self.match_length = drafter.n_match if len(hits) else 0
        return hits

    def accept(self, accepted: int) -> None:
        if not self._drafted:
            return
        self._bad = self._bad + 1 if accepted / self._drafted < 0.25 else 0
        if self._bad == 5:
            with self._pool.lock:
                self._pool.clear()
            self._bad = self._inserted = 0


def classes(run: int, count: int) -> NDArray[np.int32]:
    """Return the classes of a chain's first ``count`` tokens after ``run`` tokens that the pool predicted."""
    row = sum(run >= floor for floor in RUNS) - 1
    return _BY_DEPTH[:count] + np.int32(row * len(DEPTHS))


_BY_DEPTH = (np.searchsorted(DEPTHS, np.arange(1, 1025), side="right") - 1).astype(np.int32)
