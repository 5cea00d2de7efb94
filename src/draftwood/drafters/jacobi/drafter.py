"""Drafter ``jacobi``: a block of guessed tokens, corrected by every pass until all are right.

Source: Santilli and others, "Accelerating Transformer Inference for Translation via Parallel Decoding", arXiv
2305.10427. There it is for greedy decoding; since the noise of each position is fixed here, a sampled text is a
fixed point as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import Feedback, Floats, Needs, Noise
from draftwood.drafters.base import AnswerSession, BaseDrafter, draft_tree, fixed_rates
from draftwood.errors import UsageError
from draftwood.tree import TokenTree

STARTS = ("prompt", "previous")
LONGEST = 1024
TOP_K = 8  # best tokens of each row that are needed to choose, with the noise, the guesses off the accepted path
PLACES = (1, 2, 4, 8)  # upper bounds (inclusive) of the classes of places in the block; one more class follows

STATES = 3
FRESH, CHANGED, STEADY = range(STATES)
"""State of a guess: no pass has scored it yet; the last pass changed it; the last pass confirmed it."""

PRIOR = fixed_rates(
    (
        *(0.01, 0.04, 0.04),  # the first guess: fresh, changed by the last pass, not changed
        *(0.01, 0.07, 0.07),  # the second
        *(0.01, 0.10, 0.10),  # the third and fourth
        *(0.01, 0.10, 0.10),  # to the eighth
        *(0.01, 0.10, 0.10),  # later ones
    )
)
"""Acceptance rate per evidence class, ``STATES`` of each place: the first two places measured on 45 answers of
SmolLM2, the others estimated, since the guesses before them were accepted too seldom."""
_PLACE = STATES * np.searchsorted(PLACES, np.arange(1, LONGEST + 1)).astype(np.int32)


@dataclass(frozen=True)
class JacobiDrafter(BaseDrafter):
    """Guesses a block of tokens and lets each pass correct all of them at once (Jacobi decoding).

    Parameters
    ----------
    block
        Number of guessed tokens.
    start
        Where the first guesses come from: ``prompt``, random tokens of the prompt; ``previous``, the last tokens
        of the text.
    seed
        Seed of the random guesses.
    """

    name: ClassVar[str] = "jacobi"
    prior: ClassVar[Floats] = PRIOR
    needs: ClassVar[Needs] = Needs(top_k=TOP_K, choice=True)

    block: int = 16
    start: str = "prompt"
    seed: int = 0

    def __post_init__(self) -> None:
        self.check_range("block", 1, LONGEST)
        if self.start not in STARTS:
            raise UsageError(f"jacobi: start must be one of {', '.join(STARTS)}, not {self.start!r}")

    def open(self, prompt: Sequence[int], noise: Noise | None) -> JacobiSession:
        return JacobiSession(self, prompt)


class JacobiSession(AnswerSession):
    """One text and the guesses after it."""

    def __init__(self, drafter: JacobiDrafter, prompt: Sequence[int]) -> None:
        self._drafter = drafter
        self._guesses: list[int] = []
        self._states: list[int] = []
        super().__init__(prompt)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        if nodes <= 0 or not self._length:
            return TokenTree.empty()
        if not self._guesses:  # all of the last block is text: the next one begins
            places = range(self._length, self._length + self._drafter.block)
            self._guesses, self._states = [self._guess(place) for place in places], [FRESH] * len(places)
        n = min(nodes, len(self._guesses))
        return draft_tree(self._guesses[:n], _PLACE[:n] + self._states[:n], accept_rates)

    def _guess(self, place: int) -> int:
        """Return a first guess; a random one depends on nothing but seed and place."""
        drafter = self._drafter
        if drafter.start == "previous" and place >= drafter.block:
            return int(self._buffer[place - drafter.block])
        return int(self._buffer[_mixed(drafter.seed, place) % (self.start or self._length)])

    def learn(self, feedback: Feedback) -> None:
        """Drop the guesses that were emitted; replace the others by what the target chooses at their place."""
        guesses, states, done = list(self._guesses), list(self._states), len(feedback.emitted)
        choice = feedback.choice.tolist()
        for place, row in enumerate(feedback.node_map.tolist(), 1):  # the guess after a node
            taken = choice[1 + row] if row >= 0 else -1
            if taken >= 0 and place < len(guesses):  # else not scored: the guess stays
                states[place] = STEADY if guesses[place] == taken else CHANGED
                guesses[place] = taken
        super().learn(feedback)
        self._guesses, self._states = guesses[done:], states[done:]

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        if len(ids):
            self._forget()

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().begin_answer(ids)
        self._forget()

    def truncate(self, length: int) -> None:
        super().truncate(length)
        self._forget()

    def _forget(self) -> None:
        """Drop the guesses: they were for another text."""
        self._guesses, self._states = [], []


def _mixed(seed: int, place: int) -> int:
    """A pseudo-random number: SplitMix64 (Steele and others, OOPSLA 2014)."""
    z = (seed * 0xD1B54A32D192ED03 + (place + 1) * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


_MASK = (1 << 64) - 1
