"""Drafter ``ngram-simple``: llama.cpp's prompt lookup, mended; or as it is (``faithful=true``).

Source: ``ngram-simple`` of llama.cpp (ggml-org/llama.cpp, common/speculative.cpp and common/ngram-map.cpp).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftSession, Floats, Ints, Noise
from draftwood.drafters.base import BaseDrafter
from draftwood.drafters.llama_cpp.chain_followers import FollowerSession, Rules, check_sizes, classes, prior
from draftwood.drafters.llama_cpp.reference_turns import NOTHING, ReferenceSession, newest
from draftwood.errors import UsageError


@dataclass(frozen=True)
class NgramSimpleDrafter(BaseDrafter):
    """Copies what followed the newest occurrence of the last size_n tokens (llama.cpp's ngram-simple).

    Parameters
    ----------
    size_n
        Tokens that are looked for, 1 to 1024.
    size_m
        Most tokens it proposes, 1 to 1024.
    min_hits
        Earlier occurrences wanted, at least 1. llama.cpp takes this setting and ignores it.
    min_n
        Where ``size_n`` tokens are found nowhere, ever fewer are looked for, down to ``min_n``; ``size_n`` or more
        keeps to ``size_n``. Not in llama.cpp.
    faithful
        Propose exactly what llama.cpp would, its defects included (``docs/drafters/ngram-simple.md`` lists them).

    Raises
    ------
    UsageError
        For a value out of its range.
    """

    name: ClassVar[str] = "ngram-simple"

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1
    min_n: int = 2
    faithful: bool = False

    def __post_init__(self) -> None:
        check_sizes(self.name, self.size_n, self.size_m, self.min_hits)
        if not 1 <= self.min_n <= 1024:
            raise UsageError(f"ngram-simple: min_n must lie between 1 and 1024, not {self.min_n}")

    @property
    def prior(self) -> Floats:
        return prior()

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:  # noqa: ARG002
        if self.faithful:
            return FaithfulSimple(self, prompt)
        shortest = min(self.min_n, self.size_n)
        return FollowerSession(Rules(shortest, self.size_n, self.size_m, self.min_hits), prompt)


class FaithfulSimple(ReferenceSession):
    """As llama.cpp: stateless, and searched anew at every draft."""

    def __init__(self, drafter: NgramSimpleDrafter, prompt: Sequence[int]) -> None:
        self._n, self._m = drafter.size_n, drafter.size_m
        super().__init__(prompt)

    def begin(self) -> None:
        """It prepares nothing."""

    def accept(self, accepted: int) -> None:
        """It learns nothing."""

    def propose(self) -> Ints:
        n, m, history = self._n, self._m, self._length - 1
        self.match_length = 0
        if history <= n + m + 1:
            return NOTHING
        start = newest(self.text, self.text[-n:], 1, history - n - 1)  # 0 stands for none, so is never found
        length = min(m, history - (start + n))
        if not start or length < n:  # the lookup's size, though it is the draft's that is meant
            return NOTHING
        self.match_length = n
        return self.text[start + n : start + n + length]

    def classes(self, count: int) -> NDArray[np.int16]:
        return classes(self._n, count)
