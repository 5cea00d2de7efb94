"""Lossy rules: a draft token that the target likes well enough is accepted in place of the target's own choice.

The text is then not the one that plain decoding writes. It still depends on nothing but the model, the drafts,
the settings and the seed. All rules take the target's own choice first, exactly as `SampleAndMatch` does. If a
child of the node equals it, that child is followed. Otherwise the rule may allow other children, and of those the
one with the largest target probability is followed. A token that the target gives probability 0, as one that a
processor or top-k masks, is never accepted. At the end of the path the target's own choice is emitted.

The target's probability is that of the distribution that tokens are sampled from. Greedy decoding has none of its
own; there it is the softmax, at temperature 1, of the scores after penalty and processors. The drafting model's
probability is the one that its tree carries (`TokenTree.draft_prob`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Floats, Noise, Processor, Sampling, Scores
from draftwood.errors import UsageError
from draftwood.tree import TokenTree
from draftwood.verify.exact import ExactSession
from draftwood.verify.sampling import distribution

Bools = NDArray[np.bool_]

_AT_ONE = Sampling(temperature=1.0)


class Place:
    """A node whose children are judged: its processed scores, the target's own choice, and the children.

    Attributes
    ----------
    row : float32[vocab]
        Scores after penalty and processors.
    choice
        The target's own choice.
    tokens : int32[n]
        Tokens of the children.
    draft_prob : float32[n]
        What a drafting model gave each; NaN for copied tokens.
    position
        Index in the text of the token that is chosen here.
    noise
        What sampled tokens are chosen with; None when greedy.
    """

    def __init__(
        self, row: Floats, choice: int, tree: TokenTree, children: NDArray[np.intp], sampling: Sampling,
        noise: Noise | None, position: int,
    ) -> None:  # fmt: skip
        self.row, self.choice, self.position, self.noise = row, choice, position, noise
        self.tokens, self.draft_prob = tree.tokens[children], tree.draft_prob[children]
        self._sampling = sampling

    @cached_property
    def probabilities(self) -> NDArray[np.float64]:
        """The target's distribution, float64[vocab]; greedy: at temperature 1."""
        return distribution(self.row, _AT_ONE if self._sampling.greedy else self._sampling)


@dataclass(frozen=True)
class RelaxedRule:
    """What the lossy rules share; fulfils `draftwood.contracts.Rule`."""

    name: ClassVar[str]

    @property
    def lossy(self) -> bool:
        """Whether the text may differ from that of plain decoding, whatever the other settings."""
        return True

    def open(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> ExactSession:
        """Start a request; raises `UsageError` if a sampling setting is out of its range."""
        return RelaxedSession(self, prompt, sampling, processors, sequence)

    def pick(self, place: Place) -> int:
        """Return the token to emit after a node that has drafted children."""
        if (place.tokens == place.choice).any():
            return place.choice
        p = place.probabilities[place.tokens]
        allowed = self.allowed(place, p) & (p > 0)
        return int(place.tokens[np.where(allowed, p, -1.0).argmax()]) if allowed.any() else place.choice

    def allowed(self, place: Place, p: NDArray[np.float64]) -> Bools:
        """Return which children the rule accepts, bool[n]; ``p`` float64[n] is what the target gives each."""
        raise NotImplementedError


@dataclass(frozen=True)
class Threshold(RelaxedRule):
    """Accept a draft token while its probabilities under drafting model and target differ by less than ``tau``.

    Lossy, except at ``tau`` 0. Tokens without a probability from a model (copied ones) must equal the target's own
    choice. Source document 2 recommends 0.15. `UsageError` for ``tau`` outside [0, 1].
    """

    name: ClassVar[str] = "threshold"
    tau: float = 0.15

    def __post_init__(self) -> None:
        _check_share("tau", self.tau)

    @property
    def lossy(self) -> bool:
        return self.tau > 0

    def allowed(self, place: Place, p: NDArray[np.float64]) -> Bools:
        return np.abs(place.draft_prob - p) < self.tau  # NaN, of copied tokens, is never below


@dataclass(frozen=True)
class Typical(RelaxedRule):
    """Accept draft tokens, copied ones too, of a target probability above min(epsilon, delta * exp(-entropy)).

    Lossy. Typical acceptance of Cai et al., "Medusa", arXiv 2401.10774. The entropy, in nats, is that of the
    target's distribution at the node. The defaults are those of Medusa's own program; delta is the square root of
    epsilon, as the paper suggests. `UsageError` for ``epsilon`` outside [0, 1] and ``delta`` below 0.
    """

    name: ClassVar[str] = "typical"
    epsilon: float = 0.09
    delta: float = 0.3

    def __post_init__(self) -> None:
        _check_share("epsilon", self.epsilon)
        if not 0 <= self.delta < math.inf:
            raise UsageError(f"delta must be a finite number from 0 on, got {self.delta}")

    def allowed(self, place: Place, p: NDArray[np.float64]) -> Bools:
        possible = place.probabilities[place.probabilities > 0]
        entropy = -float((possible * np.log(possible)).sum())
        return p > min(self.epsilon, self.delta * math.exp(-entropy))


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

    def allowed(self, place: Place, p: NDArray[np.float64]) -> Bools:  # noqa: ARG002 - scores decide
        row = place.row
        better = [
            np.count_nonzero(row > row[token]) + np.count_nonzero(row[:token] == row[token])
            for token in place.tokens.tolist()
        ]
        return np.array(better) < self.k


@dataclass(frozen=True)
class Ensemble(RelaxedRule):
    """Emit the best of children and own choice by the mixture (1 - weight) p_target + weight p_draft.

    Lossy, except at ``weight`` 0. Only children with a probability from a drafting model take part, and the
    target's own choice, whose p_draft counts as 0 if it is no such child. Sampled, keyed noise is added to the
    logarithm of the mixture. As everywhere, a token of target probability 0 cannot win. `UsageError` for
    ``weight`` outside [0, 1).

    transformers mixes in the same way in assisted generation: its ``assistant_ensemble_weight`` is the target's
    share, so 1 - ``weight`` ("DIVERSE", arXiv 2604.07622). There a draft token is accepted at random, with
    probability min(1, mixture / p_draft); here the best token of the mixture is taken.
    """

    name: ClassVar[str] = "ensemble"
    weight: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.weight < 1:
            raise UsageError(f"weight must lie in [0, 1), got {self.weight}")

    @property
    def lossy(self) -> bool:
        return self.weight > 0

    def pick(self, place: Place) -> int:
        known = ~np.isnan(place.draft_prob) & (place.probabilities[place.tokens] > 0)
        tokens, q = place.tokens[known], place.draft_prob[known].astype(np.float64)
        if not self.lossy or not len(tokens):
            return place.choice
        if not (tokens == place.choice).any():
            tokens, q = np.append(tokens, place.choice), np.append(q, 0.0)
        total = np.log((1 - self.weight) * place.probabilities[tokens] + self.weight * q)
        if place.noise is not None:
            total += place.noise.gumbel(place.position, tokens.astype(np.int64))
        return int(tokens[total.argmax()])


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
        choice = self._choice(row)
        place = Place(row, choice, tree, children, self.sampling, self.noise, self._text.length)
        return self._rule.pick(place)


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:  # NaN fails every comparison
        raise UsageError(f"{name} must lie in [0, 1], got {value}")
