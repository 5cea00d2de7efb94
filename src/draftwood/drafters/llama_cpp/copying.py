"""Drafters ``ngram-simple``, ``ngram-map-k``, ``ngram-map-k4v``: llama.cpp's, corrected; or as they are.

All three copy what followed an earlier occurrence of the last n-gram. Source: the drafters of these names in
llama.cpp (ggml-org/llama.cpp, common/speculative.cpp and common/ngram-map.cpp).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftSession, Floats, Noise
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, fixed_rates
from draftwood.drafters.llama_cpp.faithful import FaithfulMap, FaithfulSimple
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

MARGIN = 16
"""How much longer than the two newest occurrences agreed ``ngram-map-k`` drafts."""

VALUES = 4
"""Most different continuations per key in ``ngram-map-k4v``."""

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


def classes(matched: int, count: int) -> NDArray[np.int32]:
    """Return the classes of a chain of ``count`` tokens that copies from one occurrence, int32[count]."""
    return _BY_MATCH[matched : matched + count]


_BY_MATCH = (np.searchsorted(FLOORS, np.arange(2049), side="right") - 1).astype(np.int32)


class FollowerSession(TextSession):
    """One text, its n-grams linked as it grows; the time of a draft does not depend on its length."""

    def __init__(self, rules: Rules, prompt: Sequence[int]) -> None:
        from draftwood.drafters.llama_cpp.ngram_chain_kernel import NgramChains  # loads kernels

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
                    evidence = out[2, :made].astype(np.int32)
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


@dataclass(frozen=True)
class NgramSimpleDrafter(BaseDrafter):
    """Copies what followed the newest occurrence of the last size_n tokens (llama.cpp's ngram-simple).

    Parameters
    ----------
    size_n
        Tokens that must match, 1 to 1024.
    size_m
        Most tokens it proposes, 1 to 1024.
    min_hits
        Least number of earlier occurrences, at least 1. llama.cpp accepts this setting and ignores it.
    min_n
        If ``size_n`` tokens occur nowhere, shorter n-grams are tried, down to ``min_n`` tokens; with ``size_n`` or
        more, none are. Not in llama.cpp.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-simple.md`` lists them).
    """

    name: ClassVar[str] = "ngram-simple"
    prior: ClassVar[Floats] = PRIOR

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1
    min_n: int = 2
    faithful: bool = False

    def __post_init__(self) -> None:
        check_sizes(self)
        self.check_range("min_n", 1, 1024)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        if self.faithful:
            return FaithfulSimple(prompt, self.size_n, classes(self.size_n, self.size_m))
        shortest = min(self.min_n, self.size_n)
        return FollowerSession(Rules(shortest, self.size_n, self.size_m, self.min_hits), prompt)


@dataclass(frozen=True)
class _MapDrafter(BaseDrafter):
    """The options that both have."""

    prior: ClassVar[Floats] = PRIOR

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1
    faithful: bool = False

    def __post_init__(self) -> None:
        check_sizes(self)


@dataclass(frozen=True)
class NgramMapKDrafter(_MapDrafter):
    """Copies what followed the last size_n tokens, as far as that agreed before (llama.cpp's ngram-map-k).

    Parameters
    ----------
    size_n
        Tokens of a key, 1 to 1024.
    size_m
        Most tokens it proposes, 1 to 1024.
    min_hits
        Least number of earlier occurrences of the key, at least 1.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-map-k.md`` lists them).
    """

    name: ClassVar[str] = "ngram-map-k"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        if self.faithful:
            return FaithfulMap(prompt, self.size_n, classes(self.size_n, self.size_m), None)
        rules = Rules(self.size_n, self.size_n, self.size_m, self.min_hits, margin=MARGIN)
        return FollowerSession(rules, prompt)


@dataclass(frozen=True)
class NgramMapK4vDrafter(_MapDrafter):
    """Copies what followed the last size_n tokens most often, up to 4 values per key (llama.cpp's ngram-map-k4v).

    If no value has two thirds of the occurrences, the others are proposed too, as branches.

    Parameters
    ----------
    size_n
        Tokens of a key, 1 to 1024.
    size_m
        Tokens of a value and most it proposes per branch, 1 to 1024.
    min_hits
        Least number of earlier occurrences of the key, at least 1.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-map-k4v.md`` lists them).
    """

    name: ClassVar[str] = "ngram-map-k4v"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        if self.faithful:
            return FaithfulMap(prompt, self.size_n, classes(self.size_n, self.size_m), self.min_hits)
        rules = Rules(self.size_n, self.size_n, self.size_m, self.min_hits, kinds=VALUES, newest=False)
        return FollowerSession(rules, prompt)
