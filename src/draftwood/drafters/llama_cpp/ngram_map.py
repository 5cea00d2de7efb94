"""Drafters ``ngram-map-k`` and ``ngram-map-k4v`` as llama.cpp has them.

Both look up what followed the last n tokens in a table of positions. Source: ``common_ngram_map`` of llama.cpp
(ggml-org/llama.cpp, common/ngram-map.cpp). Apparent mistakes below are llama.cpp's.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from draftwood.contracts import DraftSession, Ints, Noise
from draftwood.drafters.llama_cpp.ngram_simple import (
    NOTHING,
    CopyDrafter,
    ReferenceSession,
    classes,
    newest,
    occurrences,
)

VALUES = 4
MOST = 16380  # counts stop here
HASHES = 1 << 18
_FACTOR = 2654435761


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
        if history < 2 * n + m or max(self._checked, self._begun) > history:  # at the second, llama.cpp aborts
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
            h = np.zeros(last + 1 - first, dtype=np.uint32)
            for i in range(n):
                h = h * np.uint32(_FACTOR) + text[first + i : last + 1 + i].astype(np.uint32)
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

    def fork(self) -> MapSession:
        twin = super().fork()
        twin._hashes = self._hashes.copy()
        twin._keys, twin._drafted = copy.deepcopy((self._keys, self._drafted))  # in one call: they share keys
        return twin

    def close(self) -> None:
        super().close()
        self._hashes, self._keys, self._drafted = np.zeros(0, dtype=np.int32), [], None
