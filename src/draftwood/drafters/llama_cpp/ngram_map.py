"""Drafters ``ngram-map-k`` and ``ngram-map-k4v``: llama.cpp's maps of n-grams, corrected; or as they are.

Source: ``ngram-map-k`` and ``ngram-map-k4v`` of llama.cpp (ggml-org/llama.cpp, common/ngram-map.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.contracts import DraftSession, Floats, Noise
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.llama_cpp.chain_followers import PRIOR, FollowerSession, Rules, check_sizes
from draftwood.drafters.llama_cpp.ngram_map_reference import FaithfulMap

MARGIN = 16
"""How much longer than the two newest occurrences agreed ``ngram-map-k`` drafts."""

VALUES = 4
"""Most different continuations per key in ``ngram-map-k4v``."""


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
            return FaithfulMap(prompt, self.size_n, self.size_m, None)
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
            return FaithfulMap(prompt, self.size_n, self.size_m, self.min_hits)
        rules = Rules(self.size_n, self.size_n, self.size_m, self.min_hits, kinds=VALUES, newest=False)
        return FollowerSession(rules, prompt)
