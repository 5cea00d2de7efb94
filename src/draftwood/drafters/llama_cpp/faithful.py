"""Sessions of the faithful modes: called as llama.cpp calls its speculators; its ngram-simple and its maps.

Source: llama.cpp (ggml-org/llama.cpp), common/speculative.cpp and ``common_ngram_map`` of common/ngram-map.cpp.
Apparent mistakes below are llama.cpp's; ``docs/drafters/ngram-simple.md`` and ``ngram-map-k.md`` list them.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Ints
from draftwood.drafters.base import TextSession
from draftwood.tree import TokenTree

NOTHING = np.empty(0, dtype=np.int32)

VALUES = 4
MOST = 16380  # counts stop here
HASHES = 1 << 18
_FACTOR = 2654435761


class ReferenceSession(TextSession):
    """A session that is called as llama.cpp calls its speculators, for the faithful modes.

    ``begin`` is called when a prompt or a turn was read, ``accept`` when part of a proposal was scored.
    llama.cpp's history is the text without its last token.
    """

    _evidence: NDArray[np.int32]  # class of each token of the longest proposal

    def begin(self) -> None:
        """The text was read as a prompt."""

    @abstractmethod
    def propose(self) -> Ints:
        """Return the whole proposal, before the caller's limit."""

    def accept(self, accepted: int) -> None:
        """So many tokens of the last proposal were accepted."""

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        if nodes < 1:  # the reference does not call a speculator then
            return TokenTree.empty()
        tokens = self.propose()[:nodes] if self._length > 1 else NOTHING
        evidence = self._evidence[: len(tokens)]
        return TokenTree.build(tokens.copy(), belief=accept_rates[evidence], evidence=evidence)

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
    block = 4096
    while last >= first:  # from the end, in ever larger blocks: most matches are near
        begin = max(first, last + 1 - block)
        if len(starts := occurrences(text, pattern, begin, last)):
            return int(starts[-1])
        last, block = begin - 1, 2 * block
    return 0


class FaithfulSimple(ReferenceSession):
    """``ngram-simple``: without state, searching the whole text at every draft."""

    def __init__(self, prompt: Sequence[int], n: int, evidence: NDArray[np.int32]) -> None:
        self._n, self._m, self._evidence = n, len(evidence), evidence
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


class FaithfulMap(ReferenceSession):
    """``ngram-map-k4v`` of one text; without ``min_hits`` it counts no values and is ``ngram-map-k``."""

    def __init__(self, prompt: Sequence[int], n: int, evidence: NDArray[np.int32], min_hits: int | None) -> None:
        self._n, self._m, self._evidence = n, len(evidence), evidence
        self._min_hits = None if min_hits is None else min_hits & 0xFFFF  # llama.cpp stores it in 16 bits
        self._hashes = np.zeros(HASHES, dtype=np.int32)
        self._keys: list[Key] = []
        self._begun = self._checked = self._indexed = 0
        self._drafted: tuple[Key, int] | None = None
        super().__init__(prompt)

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
        if history < 2 * n + m:
            return NOTHING
        if self._checked > history or self._begun > history:
            return NOTHING  # llama.cpp aborts here
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
        behind = self._n + self._m + 1
        prompt = (self._indexed + 1, self._begun - behind if self._begun > behind else 0)
        return prompt, (max(self._begun, self._indexed) + 1, history - behind)

    def _find(self, text: Ints, pattern: Ints) -> int:
        n, last = self._n, len(text) - self._n - self._m - 1
        slot = 0
        for token in pattern.tolist():
            slot = (slot * _FACTOR + token) & 0xFFFFFFFF
        start = int(self._hashes[slot % HASHES])
        if 0 < start < last and (text[start : start + n] == pattern).all():
            return start
        prompt, behind = self._ranges(len(text))
        return newest(text, pattern, *prompt) or newest(text, pattern, *behind)

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

    def fork(self) -> FaithfulMap:
        twin = super().fork()
        twin._hashes = self._hashes.copy()
        twin._keys, twin._drafted = copy.deepcopy((self._keys, self._drafted))  # in one call: they share keys
        return twin

    def close(self) -> None:
        super().close()
        self._hashes, self._keys, self._drafted = np.zeros(0, dtype=np.int32), [], None
