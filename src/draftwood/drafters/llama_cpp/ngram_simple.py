"""Drafter ``ngram-simple``: llama.cpp's prompt lookup, corrected; or as it is (``faithful=true``).

Source: ``ngram-simple`` of llama.cpp (ggml-org/llama.cpp, common/speculative.cpp and common/ngram-map.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from draftwood.contracts import DraftSession, Floats, Ints, Noise
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.llama_cpp.chain_followers import PRIOR, FollowerSession, Rules, check_sizes, classes
from draftwood.drafters.llama_cpp.reference_turns import NOTHING, ReferenceSession, newest


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
            return FaithfulSimple(self, prompt)
        shortest = min(self.min_n, self.size_n)
        return FollowerSession(Rules(shortest, self.size_n, self.size_m, self.min_hits), prompt)


class FaithfulSimple(ReferenceSession):
    """As llama.cpp: without state, searching the whole text at every draft."""

    def __init__(self, drafter: NgramSimpleDrafter, prompt: Sequence[int]) -> None:
        self._n, self._m = drafter.size_n, drafter.size_m
        self._evidence = classes(self._n, self._m)
        super().__init__(prompt)

    def propose(self) -> Ints:
        n, m, history = self._n, self._m, self._length - 1
        self.match_length = 0
        if history <= n + m + 1:
            return NOTHING
        start = newest(self.text, self.text[-n:], 1, history - n - 1)  # 0 means none, so it is never found
        length = min(m, history - (start + n))
        if not start or length < n:  # llama.cpp compares with the n-gram's size where the draft's is meant
            return NOTHING
        self.match_length = n
        return self.text[start + n : start + n + length]
