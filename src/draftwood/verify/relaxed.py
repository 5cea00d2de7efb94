"""Lossy rules: a draft token that the target likes well enough is accepted in place of the target's own choice.

Both rules take the target's own choice first, as `SampleAndMatch` does. If no child of the node equals it, they
may allow other children, of which the one with the largest target probability is followed; one of probability 0
never is. That probability is of the distribution that tokens are sampled from; for greedy decoding it is the
softmax, at temperature 1, of the scores after penalty and processors.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from draftwood.contracts import Floats, Processor, Rule, Sampling, Scores
from draftwood.errors import LARGEST, number
from draftwood.tree import TokenTree
from draftwood.verify.exact import ExactSession
from draftwood.verify.sampling import distribution

_AT_ONE = Sampling(temperature=1.0)


@dataclass(frozen=True)
class RelaxedRule(Rule):
    """What the lossy rules share."""

    def open(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> ExactSession:
        """Start a request; raises `UsageError` if a sampling setting is out of its range."""
        session = RelaxedSession(prompt, sampling, processors, sequence)
        session.allowed = self.allowed
        return session

    @abstractmethod
    def allowed(self, row: Floats, token: int, p: float, draft_prob: float) -> bool:
        """Return whether a child of a node is accepted.

        ``row`` float32[vocab] has the scores after penalty and processors, ``p`` is what the target gives the
        token, and ``draft_prob`` what a drafting model gave it (NaN for copied tokens).
        """


@dataclass(frozen=True)
class Threshold(RelaxedRule):
    """Accept a draft token while its probabilities under drafting model and target differ by less than ``tau``.

    Lossy, except at ``tau`` 0. Tokens without a probability from a model (copied ones) must equal the target's own
    choice. Document 2 of docs/sources.md recommends 0.15. `UsageError` for ``tau`` outside [0, 1].
    """

    name: ClassVar[str] = "threshold"
    tau: float = 0.15

    def __post_init__(self) -> None:
        number(self.tau, 0, 1, "tau must lie in [0, 1], got {}")

    @property
    def lossy(self) -> bool:
        return self.tau > 0

    def allowed(self, row: Floats, token: int, p: float, draft_prob: float) -> bool:  # noqa: ARG002 - as others
        return abs(draft_prob - p) < self.tau  # NaN, of copied tokens, is never below


@dataclass(frozen=True)
class TopK(RelaxedRule):
    """Accept a draft token, copied ones too, that is among the target's ``k`` best by its processed scores.

    Lossy; with ``k`` 1 greedy text is exact and sampled text is not. Of equal scores the lower ids are better.
    `UsageError` for ``k`` below 1.
    """

    name: ClassVar[str] = "top-k"
    k: int = 2

    def __post_init__(self) -> None:
        number(self.k, 1, LARGEST, "k must be a whole number from 1 on, got {}", whole=True)

    def allowed(self, row: Floats, token: int, p: float, draft_prob: float) -> bool:  # noqa: ARG002 - as others
        better = np.count_nonzero(row > row[token]) + np.count_nonzero(row[:token] == row[token])
        return bool(better < self.k)


class RelaxedSession(ExactSession):
    """An `ExactSession` that asks its rule (`allowed`) which token follows a node that has children."""

    allowed: Callable[[Floats, int, float, float], bool]

    def _next(self, tree: TokenTree, node: int, scores: Scores) -> int:
        children = tree.children(node)
        if not len(children):
            return super()._next(tree, node, scores)
        row = self._processed(scores, node + 1)
        choice, tokens = self._choice(row), tree.tokens[children]
        if (tokens == choice).any():
            return choice
        p = distribution(row, _AT_ONE if self.sampling.greedy else self.sampling)[tokens]
        flat = zip(p.tolist(), tokens.tolist(), tree.draft_prob[children].tolist(), strict=True)
        liked = [
            (likely, token) for likely, token, own in flat if likely and self.allowed(row, token, likely, own)
        ]
        return max(liked, key=lambda one: one[0])[1] if liked else choice
