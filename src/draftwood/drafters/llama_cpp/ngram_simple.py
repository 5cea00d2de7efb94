"""Drafter ``ngram-simple`` as llama.cpp has it, and what sessions of its other n-gram drafters share.

Source: llama.cpp (ggml-org/llama.cpp), common/speculative.cpp. Apparent mistakes below are llama.cpp's; ``ngram``
and ``lookup`` copy better.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftSession, Feedback, Floats, Ints, Noise
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, fixed_rates
from draftwood.tree import TokenTree

PRIOR = fixed_rates((0.30, 0.53, 0.66, 0.78, 0.87, 0.93, 0.97, 0.98))
"""Acceptance rate per evidence class: how many tokens match before a node, drafted ones included, in buckets that
begin at `FLOORS`. Measured on recorded answers of large models and of SmolLM2."""

FLOORS = (1, 3, 5, 8, 12, 18, 28, 48)

NOTHING = np.empty(0, dtype=np.int32)


@dataclass(frozen=True)
class CopyDrafter(BaseDrafter):
    """The options of ngram-simple and the two maps."""

    prior: ClassVar[Floats] = PRIOR

    size_n: int = 12
    size_m: int = 48

    def __post_init__(self) -> None:
        self.check_range("size_n", 1, 1024)
        self.check_range("size_m", 1, 1024)


@dataclass(frozen=True)
class NgramSimpleDrafter(CopyDrafter):
    """Copies what followed the newest occurrence of the last size_n tokens (llama.cpp's ngram-simple).

    Parameters
    ----------
    size_n
        Tokens that must match, 1 to 1024.
    size_m
        Most tokens it proposes, 1 to 1024.
    """

    name: ClassVar[str] = "ngram-simple"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        return SimpleSession(prompt, self)


class ReferenceSession(TextSession):
    """A session that is called as llama.cpp calls its speculators; its history is the text but the last token."""

    def __init__(self, prompt: Sequence[int], evidence: NDArray[np.int32]) -> None:
        self._evidence = evidence  # class of each token of the longest proposal
        super().__init__(prompt)

    def begin(self) -> None:
        """Called when a prompt or a turn was read."""

    @abstractmethod
    def propose(self) -> Ints:
        """Return the whole proposal, before the caller's limit."""

    def accept(self, accepted: int) -> None:
        """Called when part of a proposal was scored: so many of its tokens were accepted."""

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        if nodes < 1 or self._length < 2:  # llama.cpp does not call a speculator then
            return TokenTree.empty()
        tokens = self.propose()[:nodes].copy()
        evidence = self._evidence[: len(tokens)].copy()
        return draft_tree(tokens, evidence, accept_rates[evidence])

    def learn(self, feedback: Feedback) -> None:
        if (feedback.node_map >= 0).any():
            path = set(feedback.path)
            self.accept(len(list(takewhile(path.__contains__, feedback.node_map.tolist()))))
        super().extend(feedback.emitted)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self.begin()

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)


def occurrences(text: Ints, pattern: Ints, first: int, last: int) -> NDArray[np.int64]:
    """Return the starts from ``first`` to ``last``, both included, where the text has the pattern."""
    starts = np.flatnonzero(text[first : last + 1] == pattern[0]) + first
    for i in range(1, len(pattern)):
        if not len(starts):
            break
        starts = starts[text[starts + i] == pattern[i]]
    return starts


def newest(text: Ints, pattern: Ints, first: int, last: int) -> int:
    """Return the last start from ``first`` to ``last``, both included, where the text has the pattern; else 0."""
    starts = occurrences(text, pattern, first, last) if first <= last else NOTHING
    return int(starts[-1]) if len(starts) else 0


def classes(drafter: CopyDrafter) -> NDArray[np.int32]:
    """Return the class of each token of the longest proposal."""
    matched = drafter.size_n + np.arange(drafter.size_m)
    return (np.searchsorted(FLOORS, matched, side="right") - 1).astype(np.int32)


class SimpleSession(ReferenceSession):
    """``ngram-simple``: without state, searching the whole text at every draft."""

    def __init__(self, prompt: Sequence[int], drafter: CopyDrafter) -> None:
        self._n, self._m = drafter.size_n, drafter.size_m
        super().__init__(prompt, classes(drafter))

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
