"""Drafter ``logits-extend``: proposes the runners-up of the last pass as next tokens, each with a copied branch.

Source: Liu and others, "LogitSpec: Accelerating Retrieval-based Speculative Decoding via Next Next Token
Speculation", arXiv 2507.01449.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Needs, Noise
from draftwood.drafters.base import BaseDrafter, TextSession, draft_tree, fixed_rates
from draftwood.tree import TokenTree

RANKS = (1, 2, 4)  # upper bounds (inclusive) of the classes of ranks; one more class follows
PROBABILITIES = (0.01, 0.03, 0.1, 0.3)  # lower bounds of the classes of probability, from the second on
REASONS = 5
"""Why a runner-up was proposed: 0 it is new to the text, 1 it occurred, 2 it occurred right after the last token;
3 and 4 are the later nodes of branches whose first node has 1 and 2."""

_BY_RANK = (
    (0.018, 0.034, 0.85, 0.14, 0.79),  # the first runner-up, for each reason
    (0.009, 0.021, 0.70, 0.14, 0.79),  # the second
    (0.009, 0.021, 0.57, 0.14, 0.79),  # the third and fourth
    (0.004, 0.015, 0.53, 0.14, 0.79),  # later ones
)
PRIOR = fixed_rates([rates for rates in _BY_RANK for _ in range(len(PROBABILITIES) + 1)])
"""Acceptance rate per evidence class: rank times probability times reason. Measured on 15 answers of SmolLM2 to
prompts of five kinds, where the probability made little difference."""

_PLACES = 1 << 32


@dataclass(frozen=True)
class LogitsExtendDrafter(BaseDrafter):
    """Proposes the runners-up of the last pass as the next token, each with what followed it before (LogitSpec).

    Parameters
    ----------
    roots
        Number of runners-up that it proposes.
    length
        Longest branch that it proposes, the runner-up included.
    """

    name: ClassVar[str] = "logits-extend"
    prior: ClassVar[Floats] = PRIOR

    roots: int = 8
    length: int = 8

    def __post_init__(self) -> None:
        self.check_range("roots", 1, 64)
        self.check_range("length", 1, 1 << 10)

    @property
    def needs(self) -> Needs:
        return Needs(top_k=self.roots + 1)  # one of them may be the token that came

    def open(self, prompt: Sequence[int], noise: Noise | None) -> LogitsExtendSession:
        return LogitsExtendSession(self, prompt)


class LogitsExtendSession(TextSession):
    """One text, the latest position of each token and pair of tokens in it, and the top tokens of the last row."""

    def __init__(self, drafter: LogitsExtendDrafter, prompt: Sequence[int]) -> None:
        self._drafter = drafter
        self._clear()
        super().__init__(prompt)

    def _clear(self) -> None:
        self._singles: dict[int, int] = {}  # token -> its latest position
        self._pairs: dict[int, int] = {}  # the same, by the token and the one before it
        self._indexed = 0
        self._row: tuple[list[int], list[float]] | None = None  # ids and probabilities that gave the last token

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        branches = self._branches() if nodes > 0 else []
        self.match_length = int(any(reason == 2 for _, _, reason in branches))
        believed = accept_rates.tolist()
        heap = [(-believed[first + reason], i, 0, -1) for i, (_, first, reason) in enumerate(branches)]
        heapify(heap)
        tree: list[tuple[int, int, int]] = []  # token, parent, evidence
        while heap and len(tree) < nodes:
            worth, which, depth, parent = heap[0]
            branch, first, reason = branches[which]
            tree.append((branch[depth], parent, first + reason + (2 if depth else 0)))
            if depth + 1 < len(branch):
                heapreplace(heap, (worth * believed[first + reason + 2], which, depth + 1, len(tree) - 1))
            else:
                heappop(heap)
        tokens, parents, evidence = np.array(tree).reshape(-1, 3).T
        return draft_tree(tokens, evidence, accept_rates, parents)

    def _branches(self) -> list[tuple[list[int], int, int]]:
        """Tokens of each branch, the first evidence class of its rank and probability, the reason of its root."""
        if self._row is None:
            return []
        text, length, last = self._buffer, self._drafter.length, int(self._buffer[self._length - 1])
        found: list[tuple[list[int], int, int]] = []
        for token, probability in zip(*self._row, strict=True):
            if token == last or len(found) == self._drafter.roots:
                continue
            place, reason = self._pairs.get(last * _PLACES + token, -1), 2
            if place < 0:
                place, reason = self._singles.get(token, -1), 1
            reason = reason if place >= 0 else 0
            copied = text[place + 1 : min(place + length, self._length)].tolist() if place >= 0 else []
            rank = bisect(RANKS, len(found))
            first = REASONS * (rank * (len(PROBABILITIES) + 1) + bisect(PROBABILITIES, probability))
            found.append(([token, *copied], first, reason))
        return found

    def learn(self, feedback: Feedback) -> None:
        super().learn(feedback)
        if feedback.top_k is not None and len(feedback.emitted):
            # The row that gave the last token: where the text ends with an accepted node, not that node's own.
            row = 1 + (-1, *feedback.path)[len(feedback.emitted) - 1]
            ids, probabilities = feedback.top_k
            self._row = ids[row].tolist(), probabilities[row].tolist()

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        if not len(ids):
            return
        self._row = None
        first, end = self._indexed, self._length - 1  # nothing follows the last one yet
        new = self._buffer[first:end].tolist()
        self._singles.update(zip(new, range(first, end), strict=True))
        if first:
            new.insert(0, int(self._buffer[first - 1]))
        keys = [before * _PLACES + token for before, token in pairwise(new)]
        self._pairs.update(zip(keys, range(end - len(keys), end), strict=True))
        self._indexed = end

    def truncate(self, length: int) -> None:
        if length < self._length:
            kept = self._buffer[: max(0, length)].copy()
            self._clear()
            self._length = 0
            self.extend(kept)
