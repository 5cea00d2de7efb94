"""What ``ngram-simple``, ``ngram-map-k`` and ``ngram-map-k4v`` share: copying what followed an n-gram before."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, fixed_rates
from draftwood.index.accept_rates import for_kernel
from draftwood.tree import TokenTree

FLOORS = (1, 3, 5, 8, 12, 18, 28, 48)
"""Lower bounds of the buckets of tokens that match before a node, drafted ones included; as in the kernel."""

PRIOR = fixed_rates(
    (
        (0.30, 0.53, 0.66, 0.78, 0.87, 0.93, 0.97, 0.98),  # one occurrence is all there is
        (0.55, 0.84, 0.88, 0.94, 0.97, 0.98, 0.99, 0.99),  # all of several went on like this
        (0.30, 0.38, 0.50, 0.50, 0.55, 0.60, 0.70, 0.70),  # at least two thirds of them
        (0.09, 0.15, 0.17, 0.18, 0.20, 0.30, 0.30, 0.30),  # fewer
    )
)
"""Acceptance rate per class: how many of the occurrences agreed (row), bucket of `FLOORS` (column). Measured on
recorded answers of large models and of SmolLM2; rare classes estimated from their neighbours."""

_OCCURRENCES = 64  # most that are looked at, the newest first; more if ``min_hits`` is larger


@dataclass(frozen=True)
class Rules:
    """How a session copies: the longest match within the bounds wins, the newest of equals."""

    shortest: int
    longest: int  # from here on in the order that the kernel expects
    length: int  # most tokens per branch
    min_hits: int  # least number of earlier occurrences
    kinds: int = 2  # most different continuations that are counted
    newest: bool = True  # follow the newest occurrence alone, else the continuation that occurred most often
    margin: int = -1  # a draft is at most this much longer than the two newest occurrences agree; -1: no limit


def check_sizes(drafter: BaseDrafter) -> None:
    """Raise `UsageError` if an option is out of the range of llama.cpp's flag."""
    for option, most in (("size_n", 1024), ("size_m", 1024), ("min_hits", (1 << 31) - 1)):
        drafter.check_range(option, 1, most)


def classes(matched: int, count: int) -> NDArray[np.int16]:
    """Return the classes of a chain of ``count`` tokens that copies from one occurrence, int16[count]."""
    return _BY_MATCH[matched : matched + count]


_BY_MATCH = (np.searchsorted(FLOORS, np.arange(2049), side="right") - 1).astype(np.int16)


class FollowerSession(TextSession):
    """One text, its n-grams linked as it grows; the time of a draft does not depend on its length."""

    def __init__(self, rules: Rules, prompt: Sequence[int]) -> None:
        from draftwood.drafters.llama_cpp.ngram_chain_kernel import NgramChains  # imports numba

        self._rules = rules
        rows = max(_OCCURRENCES, min(rules.min_hits, 1 << 16) + 1)
        enough = max(2, rules.min_hits) if rules.newest else rows
        # The longest n-grams have their own chains: among many short matches they might be too far back.
        sizes = dict.fromkeys((rules.longest, rules.shortest))
        self._chains = [NgramChains(size, rules.longest, enough, rows) for size in sizes]
        self._orders = [np.array([size, *astuple(rules)[1:]], dtype=np.int64) for size in sizes]
        super().__init__(prompt)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        for chains in self._chains:
            chains.look(self._buffer, self._length)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        self.match_length = 0
        if nodes > 0:
            trust, out = for_kernel(accept_rates, len(PRIOR)), np.empty((3, nodes), dtype=np.int32)
            for chains, order in zip(self._chains, self._orders, strict=True):
                count, made, match = chains.look(self._buffer, self._length, order, trust, out)
                if count >= self._rules.min_hits:
                    self.match_length = match
                    evidence = out[2, :made].astype(np.int16)
                    parents = None if self._rules.newest else out[1, :made]
                    return draft_tree(out[0, :made], evidence, trust[evidence], parents)
        return TokenTree.empty()

    def truncate(self, length: int) -> None:
        if length < self._length:
            super().truncate(length)
            for chains in self._chains:
                chains.clear()  # the rest is linked again by the next look

    def fork(self) -> FollowerSession:
        twin = super().fork()
        twin._chains = copy.deepcopy(self._chains)
        return twin

    def close(self) -> None:
        super().close()
        for chains in self._chains:
            chains.clear()
