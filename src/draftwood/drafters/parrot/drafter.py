"""Drafter ``parrot``: proposes the likeliest tokens of an n-gram model while their probability stays above ``p``.

Source: Kim, Kim and Oh, "Autocomplete Algorithm for Language Models" (KAIST), section 3. Its Algorithm 1 as
printed goes on after the first token that differs; the text, and the loop here, stop there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from draftwood.contracts import DraftTexts, Floats, Noise, Takes
from draftwood.drafters.base import AnswerSession, BaseDrafter, checked_ids, draft_tree, fixed_rates
from draftwood.tree import TokenTree

PRIOR = fixed_rates(
    (
        *(0.03,),  # without context
        *(0.13, 0.15, 0.40, 0.27, 0.60),  # after a context of one token; by the share of its occurrences
        *(0.16, 0.35, 0.65, 0.57, 0.75),  # after two
        *(0.42, 0.42, 0.75, 0.84, 0.95),  # after three
        *(0.42, 0.52, 0.88, 0.91, 0.96),  # after more, or three deep in a suggestion
    )
)
"""Acceptance rate per evidence class (see `draftwood.drafters.parrot.kernel`), from 168 answers of SmolLM2 in
``benchmarks/results``. All rates are lower than the relative frequency, most of all after a single occurrence."""


@dataclass(frozen=True)
class ParrotDrafter(BaseDrafter):
    """Suggests the likeliest next tokens by an n-gram model of the prompt (N-gram Parrot).

    Parameters
    ----------
    order
        N of the model: a token depends on the ``order - 1`` before it, or on as many of them as occurred.
    p
        It goes on while the product of relative frequencies is at least this.
    length
        Most tokens it proposes.
    learn
        Train on the answer too; the paper trains once, on the prompt.
    context
        Token ids of further text to train on, for example what a search returned.
    """

    name: ClassVar[str] = "parrot"
    prior: ClassVar[Floats] = PRIOR
    takes: ClassVar[Takes] = Takes(context=True)

    order: int = 4
    p: float = 0.5
    length: int = 16
    learn: bool = False
    context: tuple[int, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        self.check_range("order", 1, 64)
        self.check_range("p", 0, 1)
        self.check_range("length", 1, 1 << 16)
        checked_ids(self.context, "parrot: context")

    def with_user_texts(self, texts: DraftTexts) -> ParrotDrafter:
        return replace(self, context=(*self.context, *(i for text in texts.context for i in text)))

    def open(self, prompt: Sequence[int], noise: Noise | None) -> ParrotSession:
        return ParrotSession(self, prompt)


class ParrotSession(AnswerSession):
    """One text after its context; what followed its end in both is counted at each draft, up to the answer."""

    def __init__(self, drafter: ParrotDrafter, prompt: Sequence[int]) -> None:
        from draftwood.drafters.parrot.kernel import suggest  # loads kernels, so only when needed

        self._drafter, self._suggest, self._offset = drafter, suggest, len(drafter.context)
        self._forget()
        ids = np.empty(self._offset + len(prompt), dtype=np.int32)
        ids[: self._offset], ids[self._offset :] = drafter.context, prompt
        super().__init__(ids)

    def _forget(self) -> None:
        """Read the text again at the next draft, at some nanoseconds a token."""
        self._head = np.zeros(2, dtype=np.int64)
        self._links = self._places = np.empty(0, dtype=np.int32)
        self._tokens = np.zeros((3, 0), dtype=np.int32)

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        n, self.match_length = min(nodes, self._drafter.length), 0
        if n < 1 or not self._length:
            return TokenTree.empty()
        if self._length + n > len(self._buffer):
            self._buffer = np.append(self._buffer, np.empty(len(self._buffer) + n, dtype=np.int32))
        until, out = self._length if self._drafter.learn else self.start, np.empty((2, n), dtype=np.int32)
        if len(self._links) < until:
            self._links = np.append(self._links, np.empty(len(self._buffer) - len(self._links), dtype=np.int32))
            self._places = np.empty(len(self._buffer), dtype=np.int32)
        read, known = int(self._head[0]), self._tokens.shape[1]
        if read < until and (highest := int(self.text[read:until].max())) >= known:
            self._tokens = np.pad(self._tokens, ((0, 0), (0, 2 * highest + 1 - known)))
            self._tokens[0, known:] = -1
        limits, lists = (until, self._length, self._drafter.order - 1, n), (self._links, self._places)
        n = self._suggest(self._buffer, limits, self._drafter.p, self._head, lists, self._tokens, out)
        self.match_length = int(out[0, 0]) if n else 0
        return draft_tree(self._buffer[self._length : self._length + n], out[1, :n], accept_rates)

    def truncate(self, length: int) -> None:
        super().truncate(max(0, length) + self._offset)
        self._forget()
