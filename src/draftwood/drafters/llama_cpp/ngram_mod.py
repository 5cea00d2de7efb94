"""Drafter ``ngram-mod`` as llama.cpp has it: a hashed map from n tokens to the next, shared by all requests.

Source: llama.cpp (ggml-org/llama.cpp, common/ngram-mod.h and common/speculative.cpp), whose slots and multiplier
these are. Apparent mistakes below are llama.cpp's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import ClassVar

import numpy as np

from draftwood.contracts import DraftSession, Floats, Ints, Noise
from draftwood.drafters.base import BaseDrafter, fixed_rates
from draftwood.drafters.llama_cpp.copying import NOTHING, ReferenceSession, hashes

log = logging.getLogger("draftwood")

PRIOR = fixed_rates((0.75, 0.80, 0.84, 0.88, 0.93, 0.94, 0.95))
"""Acceptance rate per evidence class: the depth of a node, in buckets that begin at `DEPTHS`."""

DEPTHS = (1, 2, 3, 5, 9, 17, 33)

SLOTS = 4 * 1024 * 1024
EMPTY = -1
FULL = 0.25  # share of the slots in use above which the next request starts with an empty pool
FEW = 16  # tokens of a key below which llama.cpp warns
_FACTOR = 6364136223846793005


class HashPool:
    """The map, shared by the sessions of one drafter; allocated when the first of them opens: 16 MiB."""

    def __init__(self) -> None:
        self.lock = Lock()  # held while a session reads or writes
        self.used = 0  # slots
        self._entries = NOTHING

    def make(self) -> None:
        """Allocate it at the first call."""
        with self.lock:
            if not len(self._entries):
                self._entries = np.full(SLOTS, EMPTY, dtype=np.int32)

    def clear(self) -> None:
        """Empty it; the caller holds the lock."""
        self._entries.fill(EMPTY)
        self.used = 0

    def insert(self, text: Ints, first: int, last: int, size: int) -> None:
        """Map the ``size`` tokens at each start in ``range(first, last)`` to the token after them."""
        if first >= last:
            return
        # Keys are of 64 bits in llama.cpp, of which a slot is the lowest 22.
        slots = hashes(text, first, last, size, _FACTOR % (1 << 32)) % SLOTS
        self.used += int((self._entries[np.unique(slots)] == EMPTY).sum())
        self._entries[slots] = text[first + size : last + size]  # of equal slots the last one stays

    def follow(self, text: Ints, size: int, most: int) -> list[int]:
        """Return what follows the text, each token found by those before it."""
        tail, key = text[-size:].tolist(), 0
        for token in tail:
            key = (key * _FACTOR + token) % SLOTS
        oldest = pow(_FACTOR, size, SLOTS)
        for place in range(most):
            token = int(self._entries[key])
            if token == EMPTY:
                break
            key = (key * _FACTOR + token - tail[place] * oldest) % SLOTS
            tail.append(token)
        return tail[size:]


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
        Least number of hits in a row for a proposal, 0 to 1024.
    n_max
        Most tokens it proposes, 0 to 1024.
    """

    name: ClassVar[str] = "ngram-mod"
    prior: ClassVar[Floats] = PRIOR

    n_match: int = 24
    n_min: int = 48
    n_max: int = 64
    pool: HashPool = field(default_factory=HashPool, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.check_range("n_match", 1, 1024)
        self.check_range("n_min", 0, 1024)
        self.check_range("n_max", 0, 1024)
        if self.n_match < FEW:
            log.warning("ngram-mod: with n_match below %d, different places share a key: drafts will be poor", FEW)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        self.pool.make()
        return ModSession(self, prompt)


class ModSession(ReferenceSession):
    """One text, which is inserted when it is read and then whenever 32 tokens were written."""

    def __init__(self, drafter: NgramModDrafter, prompt: Sequence[int]) -> None:
        self._drafter, self._pool = drafter, drafter.pool
        self._inserted = self._drafted = self._bad = 0
        evidence = np.searchsorted(DEPTHS, np.arange(1, drafter.n_max + 1), side="right") - 1
        super().__init__(prompt, evidence.astype(np.int32))

    def begin(self) -> None:
        n, self._inserted, self._drafted = self._drafter.n_match, 0, 0
        if self._length < n:
            return
        with self._pool.lock:
            self._insert(self._length)
            if self._pool.used > FULL * SLOTS:  # this removes the prompt that was just added, too
                self._pool.clear()

    def _insert(self, length: int) -> None:
        """Insert the new ones of the first ``length`` tokens."""
        n, first = self._drafter.n_match, self._inserted
        self._inserted = length - n
        self._pool.insert(self.text, first, self._inserted, n)

    def propose(self) -> Ints:
        drafter, history = self._drafter, self._length - 1
        self._drafted = self.match_length = 0
        if history < drafter.n_match:
            return NOTHING
        with self._pool.lock:
            if self._inserted + 32 < history:
                self._insert(history)
            hits = self._pool.follow(self.text, drafter.n_match, drafter.n_max)
        if len(hits) < min(drafter.n_min, drafter.n_max):
            return NOTHING
        self._drafted = len(hits)
        self.match_length = drafter.n_match if hits else 0
        return np.array(hits, dtype=np.int32)

    def accept(self, accepted: int) -> None:
        if not self._drafted:
            return
        self._bad = self._bad + 1 if accepted / self._drafted < 0.25 else 0
        if self._bad == 5:  # the pool of all requests is emptied
            with self._pool.lock:
                self._pool.clear()
            self._bad = self._inserted = 0
