"""Lossy rules: a draft token that the target likes well enough is accepted in place of the target's own choice.

The text is then not the one that plain decoding writes. It still depends on nothing but the model, the drafts,
the settings and the seed. Both rules take the target's own choice first, exactly as `SampleAndMatch` does. If a
child of the node equals it, that child is followed. Otherwise the rule may allow other children, and of those the
one with the largest target probability is followed. A token that the target gives probability 0, as one that a
processor or top-k masks, is never accepted. At the end of the path the target's own choice is emitted.

The target's probability is that of the distribution that tokens are sampled from. Greedy decoding has none of its
own; there it is the softmax, at temperature 1, of the scores after penalty and processors. The drafting model's
probability is the one that its tree carries (`TokenTree.draft_prob`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Processor, Rule, Sampling, Scores
from draftwood.errors import UsageError
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
        return RelaxedSession(self, prompt, sampling, processors, sequence)

    @abstractmethod
    def allowed(
        self, row: Floats, tokens: NDArray[np.int32], p: NDArray[np.float64], draft_prob: Floats
    ) -> NDArray[np.bool_]:
        """Return which children of a node the rule accepts, bool[n].

        ``row`` float32[vocab] has the scores after penalty and processors. Of each child: its token, what the
        target gives it (``p``), and what a drafting model gave it (NaN for copied tokens).
        """


@dataclass(frozen=True)
class Threshold(RelaxedRule):
    """Accept a draft token while its probabilities under drafting model and target differ by less than ``tau``.

    Lossy, except at ``tau`` 0. Tokens without a probability from a model (copied ones) must equal the target's own
    choice. Source document 2 recommends 0.15. `UsageError` for ``tau`` outside [0, 1].
    """

    name: ClassVar[str] = "threshold"
    tau: float = 0.15

    def __post_init__(self) -> None:
        if not 0 <= self.tau <= 1:  # NaN fails every comparison
            raise UsageError(f"tau must lie in [0, 1], got {self.tau}")

    @property
    def lossy(self) -> bool:
        return self.tau > 0

    def allowed(
        self, row: Floats, tokens: NDArray[np.int32], p: NDArray[np.float64], draft_prob: Floats
    ) -> NDArray[np.bool_]:
        del row, tokens
        return np.abs(draft_prob - p) < self.tau  # NaN, of copied tokens, is never below


@dataclass(frozen=True)
class TopK(RelaxedRule):
    """Accept a draft token, copied ones too, that is among the target's ``k`` best by its processed scores.

    Lossy; with ``k`` 1 greedy text is exact and sampled text is not. Of equal scores the lower ids are better.
    `UsageError` for ``k`` below 1.
    """

    name: ClassVar[str] = "top-k"
    k: int = 2

    def __post_init__(self) -> None:
        if self.k < 1:
            raise UsageError(f"k must be a whole number from 1 on, got {self.k}")

    def allowed(
        self, row: Floats, tokens: NDArray[np.int32], p: NDArray[np.float64], draft_prob: Floats
    ) -> NDArray[np.bool_]:
        del p, draft_prob
        better = [
            np.count_nonzero(row > row[token]) + np.count_nonzero(row[:token] == row[token])
            for token in tokens.tolist()
        ]
        return np.array(better) < self.k


class RelaxedSession(ExactSession):
    """An `ExactSession` that asks its rule which token follows a node that has children."""

    def __init__(
        self, rule: RelaxedRule, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (),
        sequence: int = 0,
    ) -> None:  # fmt: skip
        self._rule = rule
        super().__init__(prompt, sampling, processors, sequence)

    def _next(self, tree: TokenTree, node: int, scores: Scores) -> int:
        children = tree.children(node)
        if not len(children):
            return super()._next(tree, node, scores)
        row = self._processed(scores, node + 1)
        choice, tokens = self._choice(row), tree.tokens[children]
        if (tokens == choice).any():
            return choice
        p = distribution(row, _AT_ONE if self.sampling.greedy else self.sampling)[tokens]
        allowed = self._rule.allowed(row, tokens, p, tree.draft_prob[children]) & (p > 0)
        return int(tokens[np.where(allowed, p, -1.0).argmax()]) if allowed.any() else choice
