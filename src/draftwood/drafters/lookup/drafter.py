"""Drafter ``lookup``: prompt lookup, the simplest method; a reference, and the drafter to read first.

Source: Apoorv Saxena, "Prompt Lookup Decoding" (2023), github.com/apoorvumang/prompt-lookup-decoding. The
original takes the oldest match of an n-gram; this one takes the newest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from draftwood.contracts import Floats, Noise
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree
from draftwood.errors import UsageError
from draftwood.tree import TokenTree


@dataclass(frozen=True)
class LookupDrafter(BaseDrafter):
    """Copies what followed the newest occurrence of the last few tokens (prompt lookup).

    Parameters
    ----------
    max_ngram, min_ngram
        The last ``max_ngram`` tokens are looked for first, then ever fewer, down to ``min_ngram``.
    length
        Most tokens it proposes.
    """

    name: ClassVar[str] = "lookup"

    max_ngram: int = 3
    min_ngram: int = 1
    length: int = 10

    def __post_init__(self) -> None:
        if not 1 <= self.min_ngram <= self.max_ngram <= 1024:
            raise UsageError("lookup: min_ngram must be at least 1, max_ngram at least that and at most 1024")
        self.check_range("length", 1, 1 << 16)

    @property
    def prior(self) -> Floats:
        """One evidence class per n-gram size: longer matches are right more often."""
        return (1 - 0.6 * 0.8 ** np.arange(self.max_ngram)).astype(np.float32)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> LookupSession:
        return LookupSession(self, prompt)


class LookupSession(TextSession):
    """One text, searched as a whole at every draft."""

    def __init__(self, drafter: LookupDrafter, prompt: Sequence[int]) -> None:
        self._drafter = drafter
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        size, start = self._find()
        self.match_length = size
        if size < self._drafter.min_ngram:
            return TokenTree.empty()
        n = max(0, min(nodes, self._drafter.length))
        return draft_tree(self.text[start : start + n], size - 1, accept_rates)

    def _find(self) -> tuple[int, int]:
        """Size of the longest n-gram at the end that occurs earlier, and where its newest occurrence ends."""
        text, size, start = self.text, 0, 0
        ends = np.flatnonzero(text[:-1] == text[-1:])  # occurrences of the last token, itself excepted
        while ends.size and size < self._drafter.max_ngram:
            size, start = size + 1, int(ends[-1]) + 1
            ends = ends[ends >= size]  # of those, the ones preceded by one more token of the text's end
            ends = ends[text[ends - size] == text[-1 - size]]
        return size, start
