"""How far another way of computing strays from plain decoding: another rule, another precision, a wide pass.

Along a text, position by position, the distributions of the next token are compared: the Kullback-Leibler
divergence KL(plain || other) = sum over tokens of p log(p / q), in nats (Kullback and Leibler, "On Information and
Sufficiency", 1951), and the perplexity of the text under each. Distributions are softmax of the raw scores: before
temperature and truncation, which would make the smallest difference at a border infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from draftwood.api.prompts import Prompt, as_ids
from draftwood.api.setup import DrafterSpec, Setup
from draftwood.contracts import Floats, Planner, Rule, Target
from draftwood.decoding.loop import decode
from draftwood.decoding.request import Request
from draftwood.errors import UsageError
from draftwood.measure.watched import Watched, WatchedRule
from draftwood.planning.load import DEFAULT as DEFAULT_PLANNER
from draftwood.tree import TokenTree
from draftwood.verify.exact import SampleAndMatch
from draftwood.verify.noise import KeyedNoise
from draftwood.verify.sampling import choose, penalise


@dataclass(slots=True)
class Drift:
    """What was found along one text, or along several (`total`).

    Attributes
    ----------
    kl
        KL(plain || other) per token, in nats; never negative.
    surprise_plain, surprise_other
        -log probability of each token of the text under each side, in nats.
    same
        Per token, whether both sides choose the same one after the same text.
    ids
        The text.
    """

    kl: list[float] = field(default_factory=list)
    surprise_plain: list[float] = field(default_factory=list)
    surprise_other: list[float] = field(default_factory=list)
    same: list[bool] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def tokens(self) -> int:
        """Tokens that were compared."""
        return len(self.kl)

    @property
    def kl_mean(self) -> float:
        """Mean KL per token; 0 without tokens."""
        return math.fsum(self.kl) / len(self.kl) if self.kl else 0.0

    @property
    def kl_max(self) -> float:
        """Largest KL of a token; 0 without tokens."""
        return max(self.kl, default=0.0)

    @property
    def perplexity_plain(self) -> float | None:
        """Perplexity of the text under plain decoding: exp of the mean surprise; None without tokens."""
        return _perplexity(self.surprise_plain)

    @property
    def perplexity_other(self) -> float | None:
        """Perplexity of the same text under the other side."""
        return _perplexity(self.surprise_other)

    @property
    def equal_share(self) -> float | None:
        """Share of the tokens where both sides choose the same one; None without tokens."""
        return sum(self.same) / len(self.same) if self.same else None

    @property
    def first_difference(self) -> int | None:
        """Index of the first token that the sides choose differently; None where they never do.

        Up to it both would have written this text, and from it on another one.
        """
        return None if self.text_identical else self.same.index(False)

    @property
    def text_identical(self) -> bool:
        """Whether both sides write this very text."""
        return all(self.same)

    def to_json(self, *, positions: bool = False) -> dict[str, Any]:
        """Return the figures, JSON-ready; with ``positions`` the lists as well."""
        names: tuple[str, ...] = (
            "tokens", "kl_mean", "kl_max", "perplexity_plain", "perplexity_other",
            "equal_share", "first_difference", "text_identical",
        )  # fmt: skip
        if positions:
            names += ("ids", "kl", "surprise_plain", "surprise_other")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def total(cls, found: Sequence[Drift]) -> Drift:
        """Put texts together: means over all tokens; the first difference counts through them."""
        whole = cls()
        for one in found:
            for name in ("kl", "surprise_plain", "surprise_other", "same", "ids"):
                getattr(whole, name).extend(getattr(one, name))
        return whole

    def add(self, token: int, plain: Floats, other: Floats, *, same: bool) -> None:
        """Take in a token of the text and the raw scores, float32[vocab], that each side had for it."""
        p, q = log_softmax(plain), log_softmax(other)
        self.kl.append(divergence(p, q))
        self.surprise_plain.append(-float(p[token]))
        self.surprise_other.append(-float(q[token]))
        self.same.append(same)
        self.ids.append(token)


def log_softmax(row: Floats) -> NDArray[np.float64]:
    """Log probabilities of raw scores, float64[vocab]."""
    wide = row.astype(np.float64)
    wide -= wide.max()
    wide -= math.log(np.exp(wide).sum())
    return wide


def divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> float:
    """Return KL(p || q) of two log distributions, in nats; infinite where q excludes what p allows."""
    possible = p > -np.inf
    there = p[possible]
    # Terms cancel, so that equal distributions may come out a rounding below zero, which no divergence is.
    return max(0.0, float((np.exp(there) * (there - q[possible])).sum()))


def drift(
    model: Any,
    prompt: Prompt,
    *,
    other: Any = None,
    tokenizer: Any = None,
    drafters: DrafterSpec = "default",
    planner: str | Planner = DEFAULT_PLANNER,
    rule: Rule | None = None,
    into: Drift | None = None,
    on_token: Callable[[int], None] = lambda _tokens: None,
    **settings: Any,
) -> Drift:
    """Compare plain decoding with drafted decoding, with another rule, or with another model.

    Without ``other``: the drafted loop writes an answer; the rows of its wide passes, from which each token was
    taken, are compared with those that single-token passes over the same text give.

    With ``other``: plain decoding by ``model`` writes an answer, and ``other`` (the same model in another
    precision, for instance) reads the same tokens, one per pass.

    Parameters
    ----------
    model, prompt, tokenizer, drafters, planner, **settings
        As in `draftwood.generate`; logits processors and stop strings are not taken.
    other
        Another model or `Target` of the same vocabulary; drafters, planner and rule have then no part in it.
    rule
        What turns scores into tokens in the drafted loop; by default the exact one. Of a lossy rule the rows tell
        rounding alone: what it does is told by the perplexity of its text and by ``equal_share``.
    into
        Filled token by token, so that an interrupt loses nothing.
    on_token
        Told how many tokens were compared.

    Raises
    ------
    UsageError
        If the vocabularies differ, for settings that are not taken, and whatever `draftwood.generate` raises.
    """
    result = Drift() if into is None else into
    if refused := {"logits_processor", "stop"} & {name for name, given in settings.items() if given is not None}:
        raise UsageError(f"drift does not take {' or '.join(sorted(refused))}: leave it out")
    setup = Setup(model, tokenizer, "none" if other is not None else drafters, planner)
    request = setup.request(as_ids(prompt, setup.tokenizer), **settings)
    request.check(setup.target.capabilities)
    if other is None:
        _along_the_drafted(setup, request, rule or SampleAndMatch(), result, on_token)
    else:
        against = Setup(other, setup.tokenizer, "none", "fixed:0").target
        _along_the_plain(setup, request, against, result, on_token)
    return result


def _along_the_drafted(
    setup: Setup, request: Request, rule: Rule, result: Drift, on_token: Callable[[int], None]
) -> None:
    """The drafted loop writes; plain decoding reads, and says what it would have chosen."""
    own, seen = _Choices(request), Watched()
    with closing(_Reader(setup.target, request.prompt, request.limit)) as plain:
        for _ in decode(setup.target, setup.drafters, setup.planner, WatchedRule(rule, seen), [request]):
            for token, row in seen.take():  # after the step, so that the target is in the middle of none
                result.add(token, plain.row, row, same=own.choice(plain.row) == token)
                own.commit(token)
                plain.read(token)
                on_token(result.tokens)


def _along_the_plain(
    setup: Setup, request: Request, against: Target, result: Drift, on_token: Callable[[int], None]
) -> None:
    """Plain decoding writes; the other side reads, and says what it would have chosen."""
    sizes = setup.target.capabilities.vocab_size, against.capabilities.vocab_size
    if sizes[0] != sizes[1]:
        raise UsageError(
            f"vocabularies of {sizes[0]} and {sizes[1]} tokens cannot be compared: give one model twice"
        )
    own, seen = _Choices(request), Watched()
    with closing(_Reader(against, request.prompt, request.limit)) as other:
        for _ in decode(setup.target, (), setup.planner, WatchedRule(SampleAndMatch(), seen), [request]):
            for token, row in seen.take():
                result.add(token, row, other.row, same=own.choice(other.row) == token)
                own.commit(token)
                other.read(token)
                on_token(result.tokens)


class _Reader:
    """Reads a text as plain decoding does, a token per pass; `row` is what it says about the next token."""

    def __init__(self, target: Target, prompt: Sequence[int], limit: int) -> None:
        self._target = target
        self._last = target.capabilities.max_positions
        ((self._session, scores),) = target.open([prompt], reserve=limit)
        self.row: Floats = scores.numpy(scores.raw(0))

    def read(self, token: int) -> None:
        if self._session.length >= self._last:  # the text ends at the model's positions
            return
        (scores,) = self._target.score([(self._session, token, TokenTree.empty())])
        self._session.keep(())
        self.row = scores.numpy(scores.raw(0))

    def close(self) -> None:
        self._session.close()


class _Choices:
    """What the exact rule would take at each position of a given text."""

    def __init__(self, request: Request) -> None:
        self._sampling = request.sampling
        self._noise = None if request.sampling.greedy else KeyedNoise(request.sampling.seed, request.sequence)
        self._text = list(request.prompt)

    def choice(self, row: Floats) -> int:
        if self._sampling.repetition_penalty != 1:
            row = penalise(row, np.unique(self._text), self._sampling.repetition_penalty)
        return choose(row, self._sampling, self._noise, len(self._text))

    def commit(self, token: int) -> None:
        self._text.append(token)


def _perplexity(surprise: Sequence[float]) -> float | None:
    return math.exp(math.fsum(surprise) / len(surprise)) if surprise else None
