"""Drafters ``ngram-map-k`` and ``ngram-map-k4v``: llama.cpp's maps of n-grams, mended; or as they are.

Source: ``ngram-map-k`` and ``ngram-map-k4v`` of llama.cpp (ggml-org/llama.cpp, common/ngram-map.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.contracts import DraftSession, Floats, Noise
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.llama_cpp.chain_followers import FollowerSession, Rules, check_sizes, prior
from draftwood.drafters.llama_cpp.ngram_map_reference import FaithfulMap

MARGIN = 16
"""How much longer than the two newest occurrences agreed ``ngram-map-k`` drafts."""

VALUES = 4
"""Different continuations that ``ngram-map-k4v`` tells apart."""


@dataclass(frozen=True)
class _MapDrafter(BaseDrafter):
    """What both have: the options, and how they are checked."""

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1
    faithful: bool = False

    def __post_init__(self) -> None:
        check_sizes(self.name, self.size_n, self.size_m, self.min_hits)

    @property
    def prior(self) -> Floats:
        return prior()


@dataclass(frozen=True)
class NgramMapKDrafter(_MapDrafter):
    """Copies what followed the last size_n tokens, as far as that held good before (llama.cpp's ngram-map-k).

    Parameters
    ----------
    size_n
        Tokens of a key, 1 to 1024.
    size_m
        Most tokens it proposes, 1 to 1024.
    min_hits
        Earlier occurrences of the key wanted, at least 1.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-map-k.md`` lists them).

    Raises
    ------
    UsageError
        For a value out of its range.
    """

    name: ClassVar[str] = "ngram-map-k"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:  # noqa: ARG002
        if self.faithful:
            return FaithfulMap(prompt, self.size_n, self.size_m, None)
        rules = Rules(self.size_n, self.size_n, self.size_m, self.min_hits, margin=MARGIN)
        return FollowerSession(rules, prompt)


@dataclass(frozen=True)
class NgramMapK4vDrafter(_MapDrafter):
    """Copies what followed the last size_n tokens most often, up to 4 values per key (llama.cpp's ngram-map-k4v).

    Where no value has two thirds of the occurrences, the others hang beside it as branches.

    Parameters
    ----------
    size_n
        Tokens of a key, 1 to 1024.
    size_m
        Tokens of a value and most it proposes per branch, 1 to 1024.
    min_hits
        Earlier occurrences of the key wanted, at least 1.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-map-k4v.md`` lists them).

    Raises
    ------
    UsageError
        For a value out of its range.
    """

    name: ClassVar[str] = "ngram-map-k4v"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:  # noqa: ARG002
        if self.faithful:
            return FaithfulMap(prompt, self.size_n, self.size_m, self.min_hits)
        rules = Rules(self.size_n, self.size_n, self.size_m, self.min_hits, kinds=VALUES, newest=False)
        return FollowerSession(rules, prompt)
