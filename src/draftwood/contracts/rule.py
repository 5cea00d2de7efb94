"""The rule: which draft tokens are accepted, so that the text stays the model's own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts.target import Scores
from draftwood.tree import TokenTree


class Noise(Protocol):
    """Noise as a function of (seed, sequence, position, token), so reading it consumes nothing."""

    @property
    def temperature(self) -> float:
        """Log-probabilities are divided by this before the noise is added; the largest sum is chosen."""
        ...

    def gumbel(self, position: int, ids: NDArray[Any]) -> NDArray[np.float64]:
        """Gumbel noise of these tokens at this position of the text, float64[len(ids)]."""
        ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen from the scores.

    Attributes
    ----------
    temperature
        0 is greedy; the settings below it then have no effect, `repetition_penalty` excepted.
    top_k, top_p, min_p
        Restrict the support, applied in this order after the temperature; None leaves it whole.
    repetition_penalty
        Scores of tokens already in the text are divided (positive) or multiplied (negative) by it
        (CTRL, arXiv 1909.05858).
    penalty_last_n
        The penalty is for this many last tokens of the text, as some GGUF files ask for; None: for all.
    seed
        Seed of the noise; the same seed gives the same text.
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0
    penalty_last_n: int | None = None
    seed: int = 0

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


Processor = Callable[[NDArray[np.int64], Any], Any]
"""``processor(prefix int64[length], row) -> row``: called once per emitted token, in order, with the committed
text; the row has the target's own array type."""

Ended = Callable[[int], "str | None"]
"""``ended(token)``: called with each emitted token in order; returns why the text ends with it, or None."""


class Verdict(NamedTuple):
    """What a rule decided about one scored tree.

    Attributes
    ----------
    path
        Accepted nodes, from the first below the root.
    emitted
        The accepted tokens, then the target's own next one, which is missing where the text ends with an accepted
        node.
    finish
        Why the text ends here, or None.
    error
        Why no token can be chosen after the last node of the path; the text ends with that node.
    """

    path: tuple[int, ...]
    emitted: tuple[int, ...]
    finish: str | None = None
    error: Exception | None = None


class RuleSession(ABC):
    """The rule's side of one request: owns the committed text, the noise and the processors."""

    noise: Noise | None = None
    """The noise that tokens are chosen with, for drafters to read; None when greedy."""

    @abstractmethod
    def verify(self, tree: TokenTree, scores: Scores, ended: Ended) -> Verdict:
        """Walk down from the root while the target's own choice is a child; stop where the text ends.

        Raises if no token can be chosen at the root; further down, the verdict holds the accepted path and the
        error.
        """

    @abstractmethod
    def extend(self, ids: Sequence[int]) -> None:
        """Take in committed text that was read, not chosen."""


class Rule(ABC):
    """Decides which draft tokens are accepted."""

    name: ClassVar[str] = "rule"

    @property
    def lossy(self) -> bool:
        """Whether it may change the text."""
        return True

    @abstractmethod
    def open(
        self, prompt: Sequence[int], sampling: Sampling, processors: Sequence[Processor] = (), sequence: int = 0
    ) -> RuleSession:
        """Start a request. ``sequence`` is the number of the returned sequence, never the row of a batch."""
