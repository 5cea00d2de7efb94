"""Drafter ``prediction``: copies from a text that the user expects, also after a difference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from draftwood.contracts import DraftTexts, Floats, Noise, Takes
from draftwood.drafters.base import AnswerSession, BaseDrafter, checked_ids, draft_tree, read_rates
from draftwood.index.arguments import for_kernel
from draftwood.tree import TokenTree

if TYPE_CHECKING:
    from draftwood.drafters.prediction.kernel import Expected

PRIOR = read_rates(__file__)


@dataclass(frozen=True)
class PredictionDrafter(BaseDrafter):
    """Copies from texts that the user expects, and finds its place again after a difference.

    Parameters
    ----------
    length
        Most tokens it proposes.
    window
        After a difference, a single matching token suffices in the next ``window`` tokens of the prediction and in
        a quarter as many before; elsewhere three tokens must match.
    floor
        A node less likely to be reached and accepted than this is not proposed.
    texts
        Token ids of the expected texts, each as it would be written in the answer; see
        `draftwood.api.user_texts.variants`.
    """

    name: ClassVar[str] = "prediction"
    modules: ClassVar[Sequence[str]] = ("draftwood.drafters.prediction.kernel",)
    prior: ClassVar[Floats] = PRIOR
    takes: ClassVar[Takes] = Takes(prediction=True)

    length: int = 64
    window: int = 256
    floor: float = 0.01
    texts: tuple[tuple[int, ...], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.check_range("length", 1, 1 << 16)
        self.check_range("window", 4, 1 << 16)
        self.check_range("floor", 0, 1)
        for text in self.texts:
            checked_ids(text, "prediction: each text in texts")

    def with_user_texts(self, texts: DraftTexts) -> PredictionDrafter:
        return replace(self, texts=tuple(dict.fromkeys((*self.texts, *texts.prediction))))

    @cached_property
    def expected(self) -> Expected:
        """The texts, indexed at the first use; shared by all sessions."""
        from draftwood.drafters.prediction.kernel import Expected  # loads kernels, so only when needed

        return Expected([np.asarray(text, dtype=np.int64) for text in self.texts])

    def open(self, prompt: Sequence[int], noise: Noise | None) -> PredictionSession:
        return PredictionSession(self, prompt)


class PredictionSession(AnswerSession):
    """One answer, and its place in the prediction."""

    def __init__(self, drafter: PredictionDrafter, prompt: Sequence[int]) -> None:
        from draftwood.drafters.prediction import kernel

        self._kernel = kernel
        self._drafter, self._expected = drafter, drafter.expected
        self._state = np.zeros(kernel.STATE, dtype=np.int64)
        self._out = np.empty((3, drafter.length), dtype=np.int32)
        super().__init__(prompt)

    def _restart(self) -> None:
        """Put the cursor where the answer begins."""
        self._state[:] = 0
        self._state[[self._kernel.SEEN, self._kernel.START]] = self.start

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        if self._state[self._kernel.START] != self.start:  # another answer has begun
            self._restart()
        drafter, expected, out = self._drafter, self._expected, self._out
        n = 0
        if len(expected.starts):
            texts = expected.flat, expected.heads, expected.chain, expected.starts
            limits = min(nodes, drafter.length), float(drafter.floor)
            rates = for_kernel(accept_rates, len(drafter.prior))
            answer = self._buffer, self._length
            n = self._kernel.draft(texts, answer, self._state, drafter.window, limits, rates, out)
        self.match_length = int(self._state[self._kernel.MATCH])
        tokens, parents, evidence = out[:, :n]
        return draft_tree(tokens, evidence, accept_rates, parents)

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._restart()  # the next draft reads the rest of the answer again
