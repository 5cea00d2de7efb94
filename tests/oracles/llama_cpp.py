"""``ngram-simple``, ``ngram-map-k``, ``ngram-map-k4v`` and ``ngram-mod`` of llama.cpp, rule by rule."""

from __future__ import annotations

from collections.abc import Sequence

HASHES = 1 << 18
SLOTS = 4 * 1024 * 1024  # of ngram-mod


def simple(history: Sequence[int], sampled: int, n: int, m: int) -> list[int]:
    """Return what ngram-simple drafts."""
    length = len(history)
    if length <= n + m + 1:
        return []
    pattern = [*history, sampled][-n:]
    for start in range(length - n - 1, 0, -1):
        if list(history[start : start + n]) == pattern:
            draft = list(history[start + n : start + n + m])
            return draft if len(draft) >= n else []
    return []


def _slot(key: Sequence[int]) -> int:
    h = 0
    for token in key:
        h = (h * 2654435761 + token) % 2**32
    return h % HASHES


class NaiveMap:
    """One sequence of ngram-map-k (``min_hits`` None) or ngram-map-k4v."""

    def __init__(self, n: int, m: int, min_hits: int | None) -> None:
        self.n, self.m, self.min_hits = n, m, min_hits
        self.table: dict[int, int] = {}
        self.begun = self.checked = self.indexed = 0
        self.keys: list[dict[str, int]] = []
        self.last: tuple[dict[str, int], int] | None = None

    def begin(self, prompt: Sequence[int]) -> None:
        """Read a prompt."""
        length = len(prompt)
        cut = self.begun
        if cut > length:
            cut = max(length - self.n - self.m, 0)
        if length < self.checked:
            self.table = {slot: start for slot, start in self.table.items() if start < cut}
            self.indexed = max(cut - 1, 0)
            self.keys = [key for key in self.keys if key["position"] < cut]
            if self.min_hits is not None:
                for key in self.keys:
                    self._cut_values(key, cut)
                self.keys = [key for key in self.keys if key["begin0"]]
        self.checked = self.begun = length

    @staticmethod
    def _cut_values(key: dict[str, int], cut: int) -> None:
        for v in (3, 2, 1, 0):
            if key[f"begin{v}"] and key[f"begin{v}"] >= cut:
                for w in range(v, 3):
                    for what in ("begin", "count", "accepted"):
                        key[f"{what}{w}"] = key[f"{what}{w + 1}"]
                key["begin3"] = key["count3"] = 0

    def draft(self, history: Sequence[int], sampled: int) -> list[int]:
        """Return the draft after the history and the token sampled last."""
        n, m, length = self.n, self.m, len(history)
        self.last = None
        if length < 2 * n + m or self.checked > length or self.begun > length:
            return []
        self.checked = length
        history = list(history)
        pattern = [*history, sampled][-n:]
        e = length - n - m - 1

        prompt = range(self.begun - n - m - 1, self.indexed, -1) if self.begun > n + m + 1 else range(0)
        written = range(e, max(self.begun, self.indexed), -1)
        start = self.table.get(_slot(pattern), 0)
        match = start if start and start < e and history[start : start + n] == pattern else 0
        for start in (*prompt, *written):
            if not match and history[start : start + n] == pattern:
                match = start
        for start in (*prompt, *written):
            self.table.setdefault(_slot(history[start : start + n]), start)
        self.indexed = max(e, self.indexed)
        if not match:
            return []

        for key in self.keys:
            if history[key["position"] : key["position"] + n] == pattern:
                break
        else:
            key = {"position": match, "counted": 0, "lookups": 0}
            for v in range(4):
                key |= {f"begin{v}": 0, f"count{v}": 0, f"accepted{v}": m}
            self.keys.append(key)
        key["lookups"] = min(key["lookups"] + 1, 16380)
        value = 0 if self.min_hits is None else self._count(history, pattern, key, match)
        if value is None:
            return []
        draft = history[match + n : match + n + min(m, key[f"accepted{value}"])]
        if draft:
            self.last = key, value
        return draft

    def _count(
        self, history: Sequence[int], pattern: Sequence[int], key: dict[str, int], match: int
    ) -> int | None:
        n, m = self.n, self.m
        if key["lookups"] < (self.min_hits or 0):
            return None
        for start in range(key["counted"], match + 1):
            if history[start : start + n] != pattern:
                continue
            for v in range(4):
                begin = key[f"begin{v}"]
                if not begin:
                    key[f"begin{v}"], key[f"count{v}"] = start + n, 1
                    break
                if history[begin : begin + m] == history[start + n : start + n + m]:
                    key[f"count{v}"] = min(key[f"count{v}"] + 1, 16380)
                    break
        key["counted"] = match
        counts = [key[f"count{v}"] for v in range(4)]
        value = counts.index(max(counts))
        others = sum(counts) - counts[value]
        return None if others and counts[value] < 2 * others else value

    def accept(self, accepted: int) -> None:
        """Take in how many of the draft's tokens were right."""
        if self.last is not None:
            key, value = self.last
            key[f"accepted{value}"] = accepted


class NaivePool:
    """The map of ngram-mod, slot -> token; what is missing is empty."""

    def __init__(self, n: int) -> None:
        self.n = n
        self.entries: dict[int, int] = {}

    def slot(self, key: Sequence[int]) -> int:
        """Where this n-gram's next token stands."""
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

    def __init__(self, pool: NaivePool, n_min: int, n_max: int) -> None:
        self.pool, self.n_min, self.n_max = pool, n_min, n_max
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
        if len(self.pool.entries) > 0.25 * SLOTS:
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
