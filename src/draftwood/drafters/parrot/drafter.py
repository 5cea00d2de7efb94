"""Drafter ``parrot``: proposes the likeliest tokens of an n-gram model while their probability stays above ``p``.

Source: Kim, Kim and Oh, "Autocomplete Algorithm for Language Models" (KAIST), section 3. Its Algorithm 1 as
printed goes on after the first token that differs; the text, and the loop here, stop there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from draftwood.contracts import DraftTexts, Feedback, Floats, Noise, Takes
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
    """One text after its context, and the counts of what followed in both, up to the answer."""

    def __init__(self, drafter: ParrotDrafter, prompt: Sequence[int]) -> None:
        from draftwood.drafters.parrot import kernel  # loads kernels, so only when needed

        self._drafter, self._kernel = drafter, kernel
        self._out = np.empty((2, drafter.length), dtype=np.int32)
        self._clear()
        self._offset = len(drafter.context)
        ids = np.empty(self._offset + len(prompt), dtype=np.int32)
        ids[: self._offset], ids[self._offset :] = drafter.context, prompt
        super().__init__(ids)

    def _clear(self) -> None:
        self._table = np.full((1024, self._kernel.COLUMNS), -1, dtype=np.int32)
        self._head = np.zeros(self._kernel.FOUND + 1, dtype=np.int64)

    def _run(self, nodes: int) -> int:
        """Count new text, as far as it may be learnt from; write suggestions after it and return how many."""
        drafter = self._drafter
        if self._length + nodes > len(self._buffer):
            self._buffer = np.append(self._buffer, np.empty(len(self._buffer) + nodes, dtype=np.int32))
        until = self._length if drafter.learn else self.start
        limits = until, self._length, drafter.order, nodes
        try:
            self._table = self._kernel.suggest(self._table, self._head, self._buffer, limits, drafter.p, self._out)
        except BaseException:  # Ctrl-C, raised as the kernel returns: the table that moved is lost
            self._clear()
            raise
        return int(self._head[self._kernel.FOUND])

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        n = self._run(min(nodes, self._drafter.length)) if nodes > 0 else 0
        self.match_length = int(self._out[0, 0]) if n else 0
        if not n:
            return TokenTree.empty()
        evidence = self._out[1, :n].astype(np.int32)
        tokens = self._buffer[self._length : self._length + n].copy()
        return draft_tree(tokens, evidence, accept_rates[evidence])

    def learn(self, feedback: Feedback) -> None:
        super().learn(feedback)
        if self._drafter.learn:
            self._run(0)

    def extend(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().extend(ids)
        self._run(0)

    def begin_answer(self, ids: Sequence[int] | NDArray[Any]) -> None:
        super().begin_answer(ids)
        self._run(0)

    def truncate(self, length: int) -> None:
        super().truncate(max(0, length) + self._offset)
        if self._head[self._kernel.READ] > (self._length if self._drafter.learn else self.start):
            self._clear()  # counts cannot be subtracted: read again
        self._run(0)

    def fork(self) -> Self:
        twin = super().fork()
        twin._table, twin._head, twin._out = self._table.copy(), self._head.copy(), self._out.copy()
        return twin

    def close(self) -> None:
        super().close()
        self._offset = 0
        self._clear()
