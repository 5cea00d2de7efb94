"""llama.cpp's drafters that copy what followed the last n tokens: ``ngram-simple``, ``ngram-map-k``, ``-k4v``.

Source: llama.cpp (ggml-org/llama.cpp), common/speculative.cpp and common/ngram-map.cpp. Apparent mistakes below
are llama.cpp's; ``ngram`` and ``lookup`` copy better.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
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

VALUES = 4  # of a key
MOST = 16380  # counts stop here
HASHES = 1 << 18
_FACTOR = 2654435761


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


@dataclass(frozen=True)
class NgramMapKDrafter(CopyDrafter):
    """Copies what followed the last size_n tokens, as far as that was accepted before (llama.cpp's ngram-map-k).

    Parameters
    ----------
    size_n
        Tokens of a key, 1 to 1024.
    size_m
        Most tokens it proposes, 1 to 1024.
    """

    name: ClassVar[str] = "ngram-map-k"

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        return MapSession(prompt, self, None)


@dataclass(frozen=True)
class NgramMapK4vDrafter(CopyDrafter):
    """Copies what followed the last size_n tokens if most of up to 4 values agree (llama.cpp's ngram-map-k4v).

    Parameters
    ----------
    size_n
        Tokens of a key, 1 to 1024.
    size_m
        Tokens of a value and most it proposes, 1 to 1024.
    min_hits
        Least number of times that the key was looked up, at least 1.
    """

    name: ClassVar[str] = "ngram-map-k4v"

    min_hits: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_range("min_hits", 1, (1 << 31) - 1)

    def open(self, prompt: Sequence[int], noise: Noise | None) -> DraftSession:
        return MapSession(prompt, self, self.min_hits & 0xFFFF)  # llama.cpp stores it in 16 bits


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
        tokens = self.propose()[:nodes]
        return draft_tree(tokens, self._evidence[: len(tokens)], accept_rates)

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


def hashes(text: Ints, first: int, last: int, size: int, factor: int) -> NDArray[np.uint32]:
    """Return the lowest 32 bits of the hash of the ``size`` tokens at each start in ``range(first, last)``."""
    found = np.zeros(last - first, dtype=np.uint32)
    for i in range(size):
        found = found * np.uint32(factor) + text[first + i : last + i].astype(np.uint32)
    return found


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


@dataclass(slots=True)
class Key:
    """An n-gram that was looked up, by its position in the text.

    Values 0 to 3: where each begins (0: free), how often it was counted, how much of its last draft was accepted.
    """

    position: int
    last_accepted: list[int]
    counted_to: int = 0
    lookups: int = 0
    begins: list[int] = field(default_factory=lambda: [0] * VALUES)
    counts: list[int] = field(default_factory=lambda: [0] * VALUES)

    def forget(self, cut: int) -> None:
        """Drop values that begin at ``cut`` or later; later ones move up, the last keeps its accepted length."""
        kept = [value for value in range(VALUES) if self.begins[value] < max(cut, 1)]
        for column, last in ((self.begins, 0), (self.counts, 0), (self.last_accepted, self.last_accepted[-1])):
            column[:] = [column[value] for value in kept] + [last] * (VALUES - len(kept))


class MapSession(ReferenceSession):
    """``ngram-map-k4v`` of one text; without ``min_hits`` it counts no values and is ``ngram-map-k``."""

    def __init__(self, prompt: Sequence[int], drafter: CopyDrafter, min_hits: int | None) -> None:
        self._n, self._m, self._min_hits = drafter.size_n, drafter.size_m, min_hits
        self._hashes = np.zeros(HASHES, dtype=np.int32)
        self._keys: list[Key] = []
        self._begun = self._checked = self._indexed = 0
        self._drafted: tuple[Key, int] | None = None
        super().__init__(prompt, classes(drafter))

    def begin(self) -> None:
        length, n, m = self._length, self._n, self._m
        cut = self._begun
        if cut > length:
            cut = length - n - m if length > n + m else 0
        if length < self._checked:
            self._hashes[self._hashes >= cut] = 0
            self._indexed = max(cut - 1, 0)
            self._keys = [key for key in self._keys if key.position < cut]
            if self._min_hits is not None:
                for key in self._keys:
                    key.forget(cut)
                self._keys = [key for key in self._keys if key.begins[0]]
        self._checked = self._begun = length

    def propose(self) -> Ints:
        self.match_length, self._drafted = 0, None
        n, m, history = self._n, self._m, self._length - 1
        if history < 2 * n + m or self._checked > history:  # at the second, llama.cpp aborts
            return NOTHING
        self._checked = history
        text = self.text[:history]
        pattern = self.text[-n:]
        match = self._find(text, pattern)
        self._index(text)
        if not match:
            return NOTHING
        key = self._key(text, pattern, match)
        key.lookups = min(key.lookups + 1, MOST)
        value = 0 if self._min_hits is None else self._count(text, pattern, key, match)
        if value < 0:
            return NOTHING
        proposal = text[match + n :][: min(m, key.last_accepted[value])]  # from the match, whichever value won
        if len(proposal):
            self.match_length, self._drafted = n, (key, value)
        return proposal

    def accept(self, accepted: int) -> None:
        if self._drafted is not None:
            key, value = self._drafted
            key.last_accepted[value] = accepted

    def _ranges(self, history: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """First and last start (inclusive) that were not indexed yet, in the prompt and after it.

        The last ``n + m + 1`` starts of the prompt are in neither.
        """
        room = self._n + self._m + 1
        prompt = (self._indexed + 1, self._begun - room if self._begun > room else 0)
        return prompt, (max(self._begun, self._indexed) + 1, history - room)

    def _find(self, text: Ints, pattern: Ints) -> int:
        n, last = self._n, len(text) - self._n - self._m - 1
        slot = 0
        for token in pattern.tolist():
            slot = (slot * _FACTOR + token) & 0xFFFFFFFF
        start = int(self._hashes[slot % HASHES])
        if 0 < start < last and (text[start : start + n] == pattern).all():
            return start
        prompt, answer = self._ranges(len(text))
        return newest(text, pattern, *prompt) or newest(text, pattern, *answer)

    def _index(self, text: Ints) -> None:
        n = self._n
        for first, last in self._ranges(len(text)):
            if last < first:
                continue
            h = hashes(text, first, last + 1, n, _FACTOR)
            slots, back = np.unique(h[::-1] % HASHES, return_index=True)  # the latest start of each slot
            free = self._hashes[slots] == 0
            self._hashes[slots[free]] = last - back[free]
        self._indexed = max(len(text) - n - self._m - 1, self._indexed)

    def _key(self, text: Ints, pattern: Ints, match: int) -> Key:
        starts = np.array([key.position for key in self._keys], dtype=np.int64)
        same = np.flatnonzero(text[starts] == pattern[0]) if len(starts) else starts
        for index in same.tolist():
            start = self._keys[index].position
            if np.array_equal(text[start : start + self._n], pattern):
                return self._keys[index]
        key = Key(match, [self._m] * VALUES)
        self._keys.append(key)
        return key

    def _count(self, text: Ints, pattern: Ints, key: Key, match: int) -> int:
        """Count what followed from the last counted occurrence up to the match; returns the winner or -1."""
        n, m = self._n, self._m
        if key.lookups < (self._min_hits or 0):
            return -1
        for start in occurrences(text, pattern, key.counted_to, match).tolist():
            value = text[start + n : start + n + m]
            for v in range(VALUES):
                if not key.begins[v]:
                    key.begins[v], key.counts[v] = start + n, 1
                    break
                if np.array_equal(value, text[key.begins[v] : key.begins[v] + m]):
                    key.counts[v] = min(key.counts[v] + 1, MOST)
                    break
        key.counted_to = match
        winner = int(np.argmax(key.counts))
        others = sum(key.counts) - key.counts[winner]
        return -1 if others and key.counts[winner] < 2 * others else winner
