"""Drafter ``lookahead``: collects n-grams from the target's own guesses ahead, and drafts from them.

Source: Fu, Bailis, Stoica and Zhang, "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding",
arXiv 2402.02057, and their code; llama.cpp's example of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Needs, Noise
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, read_rates
from draftwood.drafters.lookahead.window import VARIANTS, Window, most_nodes
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

MOST = 1 << 15  # n-grams of one pool, some 250 bytes each; then those of the least recently used first token go
TEXT, WINDOW = 1, 2  # where an n-gram was seen; both is their sum
_DEPTHS, _RANKS = 4, 4
CLASSES = 3 * _DEPTHS * _RANKS * 2
"""Evidence classes: where it was seen, depth, rank among its siblings (latest first), in one n-gram or more."""

PRIOR = read_rates(__file__)


@dataclass(frozen=True)
class LookaheadDrafter(BaseDrafter):
    """Lets the target guess ahead in every pass, and drafts the n-grams it guesses (lookahead decoding).

    Parameters
    ----------
    window
        W, columns of the window: how many places ahead it guesses, at least 1.
    ngram
        N, tokens of an n-gram, at least 2; the window has N - 1 levels. N = 2 is Jacobi iteration.
    guesses
        G, most n-grams of one first token; 0: as many as ``window``.
    prompt
        Read n-grams from the text too: from the prompt, and from the answer as it grows.
    forward_one
        Move the window by one place per step, however many tokens the step emitted.
    variant
        How it moves otherwise: as in the code of the ``authors``, or as in ``llama.cpp``.
    vocabulary
        Draw guesses from the token ids below this; 0: from the text.
    seed
        Seed of the random guesses.
    """

    name: ClassVar[str] = "lookahead"
    prior: ClassVar[Floats] = PRIOR

    window: int = 7
    ngram: int = 5
    guesses: int = 0
    prompt: bool = True
    forward_one: bool = False
    variant: str = "authors"
    vocabulary: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_range("window", 1, 1 << 12)
        self.check_range("ngram", 2, 64)
        if self.guesses < 0:
            raise UsageError("lookahead: guesses must not be negative; 0 means as many as the window is wide")
        if not 0 <= self.vocabulary <= 1 << 31:
            raise UsageError("lookahead: vocabulary must be a number of tokens, or 0 to draw from the text")
        if self.variant not in VARIANTS:
            raise UsageError(f"lookahead: variant must be one of {', '.join(VARIANTS)}, not {self.variant!r}")

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1, lookahead_nodes=most_nodes(self.window, self.ngram))

    def open(self, prompt: Sequence[int], noise: Noise | None) -> LookaheadSession:
        return LookaheadSession(self, prompt)


class LookaheadSession(TextSession):
    """One text, the window ahead of it, and the n-grams collected so far."""

    def __init__(self, drafter: LookaheadDrafter, prompt: Sequence[int]) -> None:
        self.window = Window(drafter)
        self.collected = NgramPool(drafter.ngram, drafter.guesses or drafter.window, read_text=drafter.prompt)
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        drafts = self.collected.grow(nodes, accept_rates)
        self.match_length = self.collected.match_length
        block = self.window.tokens
        if not 0 < len(block) <= lookahead_nodes or not len(self.text):
            return drafts
        n = len(drafts)
        below = [parent + n if parent >= 0 else -1 for parent in self.window.parents]
        rest = TokenTree.build(block, below, belief=float(accept_rates[0]), lookahead=True)
        return _joined(drafts, rest) if n else rest

    def learn(self, feedback: Feedback) -> None:
        guesses = self._guesses(feedback)
        root, emitted = int(self.text[-1]), len(feedback.emitted)
        super().extend(feedback.emitted)
        if guesses is None:
            self.window.skip(emitted, self.text)
        else:
            if self.window.full:
                for first, ngram in self.window.ngrams(root, guesses):
                    self.collected.add(first, ngram)
            self.window.move(guesses, emitted, self.text)
        self.collected.read(feedback.emitted)

    def _guesses(self, feedback: Feedback) -> list[int] | None:
        """The level of guesses that the pass adds; None if part of the window was not scored."""
        size = len(self.window.tokens)
        rows = feedback.node_map[len(feedback.node_map) - size :].tolist() if size else []
        if feedback.top_k is None or feedback.proposal.n_lookahead != size or -1 in rows:
            return None
        return self.window.guesses([1 + row for row in rows], feedback.top_k[0][:, 0].tolist())

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self.collected.read(ids)
        if len(ids) or not self.window.levels:  # no column of the old window guesses at what follows this text
            self.window.start(self.text)

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self.collected.read(ids)
        self.window.skip(len(ids), self.text)

    def truncate(self, length: int) -> None:
        if length < self._length:
            super().truncate(max(0, length))
            self.collected.reread(self.text)
            self.window.start(self.text)


class NgramPool:
    """N-grams of ``size`` tokens by first token, and the last tokens of the text, whose own n-grams it may add.

    Of one first token it keeps at most ``limit``.
    """

    def __init__(self, size: int, limit: int, *, read_text: bool) -> None:
        self._size, self._limit, self._reads = size, limit, read_text
        # First token -> n-grams without it -> where each was seen (`TEXT`, `WINDOW`); both ordered, latest last.
        self.followers: dict[int, dict[tuple[int, ...], int]] = {}
        self._held = 0
        self._tail: tuple[int, ...] = ()
        self.match_length = 0

    def read(self, ids: Sequence[int] | NDArray[Any]) -> None:
        """Read more committed text; only the end of a text longer than the pool can hold."""
        size = self._size
        before = self._tail if len(ids) <= MOST else ()
        text = (*before, *np.asarray(ids[-MOST:], dtype=np.int32).tolist())
        if self._reads:
            for start in range(len(text) - size + 1):
                self.add(text[start], text[start + 1 : start + size], TEXT)
        self._tail = text[1 - size :]

    def add(self, first: int, ngram: tuple[int, ...], seen: int = WINDOW) -> None:
        """Add an n-gram, or mark it as just used."""
        if not self._limit:
            return
        known = self.followers[first] = self.followers.pop(first, {})
        before = known.pop(ngram, 0)
        if not before:
            if len(known) == self._limit:
                del known[next(iter(known))]
            else:
                self._held += 1
        known[ngram] = before | seen
        if self._held > MOST:
            self._held -= len(self.followers.pop(next(iter(self.followers))))

    def reread(self, text: NDArray[Any]) -> None:
        """Replace the text, which was cut: it is read again, then the n-grams of the window are added again."""
        kept = [(f, n) for f, known in self.followers.items() for n, seen in known.items() if seen & WINDOW]
        self.followers, self._held, self._tail = {}, 0, ()
        self.read(text)
        for first, ngram in kept:
            self.add(first, ngram)

    def grow(self, nodes: int, accept_rates: Floats) -> TokenTree:
        """Return the n-grams of the last token as branches, likeliest first."""
        known = self.followers.get(self._tail[-1]) if self._tail else None
        self.match_length = 1 if known and nodes > 0 else 0
        if not known or nodes < 1:
            return TokenTree.empty()
        rates: list[float] = accept_rates.tolist()
        tree: list[tuple[int, int, int]] = []  # token, parent, evidence
        number = count()  # on a tie, the older entry comes first
        heap: list[tuple[float, int, int, int, int, int, _Group]] = []
        parent, depth, worth, group = -1, 0, 1.0, list(known.items())[::-1]
        while True:
            if depth < self._size - 1:
                for token, which, some in _branches(group, depth):
                    heappush(heap, (-worth * rates[which], next(number), token, parent, which, depth, some))
            if not heap or len(tree) == nodes:
                break
            negative, _, token, above, which, depth, group = heappop(heap)
            parent, depth, worth = len(tree), depth + 1, -negative
            tree.append((token, above, which))
        tokens, parents, evidence = np.array(tree).T
        return draft_tree(tokens, evidence, accept_rates, parents)


_Group = list[tuple[tuple[int, ...], int]]  # n-grams that share a beginning, latest first, and where each was seen


def _branches(group: _Group, depth: int) -> list[tuple[int, int, _Group]]:
    """Next tokens at this depth, latest first: token, evidence class, and the n-grams that have it there."""
    by_token: dict[int, _Group] = {}
    for item in group:
        by_token.setdefault(item[0][depth], []).append(item)
    found = []
    for rank, (token, some) in enumerate(by_token.items()):
        seen = 0
        for _, where in some:
            seen |= where
        found.append((token, _class(seen, depth, rank, len(some)), some))
    return found


def _class(seen: int, depth: int, rank: int, times: int) -> int:
    rank = rank if rank < 2 else 2 if rank < 4 else 3
    return (((seen - 1) * _DEPTHS + min(depth, _DEPTHS - 1)) * _RANKS + rank) * 2 + (times > 1)


def _joined(a: TokenTree, b: TokenTree) -> TokenTree:
    names = ("tokens", "parents", "belief", "source", "evidence", "draft_prob", "lookahead")
    columns: dict[str, Any] = {name: np.concatenate((getattr(a, name), getattr(b, name))) for name in names}
    return TokenTree(**columns)
