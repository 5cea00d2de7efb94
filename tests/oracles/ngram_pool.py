"""``ngram-mod`` as its rules read, insertion by insertion."""

from __future__ import annotations

from collections.abc import Sequence

SLOTS = 4 * 1024 * 1024


class NaivePool:
    """Slot -> token; what is missing is empty. ``keyed`` keeps n-grams themselves, so that nothing collides."""

    def __init__(self, n: int, *, keyed: bool = False) -> None:
        self.n, self.keyed = n, keyed
        self.entries: dict[int | tuple[int, ...], int] = {}

    def slot(self, key: Sequence[int]) -> int | tuple[int, ...]:
        """Where this n-gram's next token stands."""
        if self.keyed:
            return tuple(key)
        r = 0
        for token in key:
            r = (r * 6364136223846793005 + token) % 2**64
        return r % SLOTS

    def insert(self, text: Sequence[int], start: int) -> None:
        """Map the n-gram that starts there to the token after it."""
        self.entries[self.slot(text[start : start + self.n])] = text[start + self.n]

    def follow(self, text: Sequence[int], most: int) -> list[int]:
        """Return the hits after the text, one found by the other."""
        hits: list[int] = []
        while len(hits) < most:
            token = self.entries.get(self.slot([*text, *hits][-self.n :]))
            if token is None:
                break
            hits.append(token)
        return hits


class NaiveMod:
    """One sequence of llama.cpp's ngram-mod on a pool."""

    def __init__(self, pool: NaivePool, n_min: int, n_max: int, *, full: float = 0.25 * SLOTS) -> None:
        self.pool, self.n_min, self.n_max, self.full = pool, n_min, n_max, full
        self.i_last = self.n_draft_last = self.n_low = 0

    def begin(self, prompt: Sequence[int]) -> int:
        """Read the prompt; returns how many insertions that were."""
        self.i_last = self.n_draft_last = 0
        n = self.pool.n
        if len(prompt) < n:
            return 0
        for i in range(len(prompt) - n):
            self.pool.insert(prompt, i)
        self.i_last = len(prompt) - n
        if len(self.pool.entries) > self.full:
            self.pool.entries.clear()
        return self.i_last

    def draft(self, history: Sequence[int], sampled: int) -> list[int]:
        """Return the draft after the history and the token sampled last."""
        self.n_draft_last = 0
        n, length = self.pool.n, len(history)
        if length < n:
            return []
        if self.i_last + 32 < length:
            for i in range(self.i_last, length - n):
                self.pool.insert(history, i)
            self.i_last = length - n
        hits = self.pool.follow([*history, sampled], self.n_max)
        if len(hits) < self.n_max and len(hits) < self.n_min:
            return []
        self.n_draft_last = len(hits)
        return hits

    def accept(self, accepted: int) -> None:
        """Take in how many of the draft's tokens were right."""
        if not self.n_draft_last:
            return
        if accepted / self.n_draft_last >= 0.25:
            self.n_low = 0
            return
        self.n_low += 1
        if self.n_low == 5:
            self.pool.entries.clear()
            self.n_low = self.i_last = 0
