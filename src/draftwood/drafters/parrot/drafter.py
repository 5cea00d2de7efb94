"""Drafter ``parrot``: proposes the likeliest tokens of an n-gram model while their probability stays above ``p``.

Source: Kim, Kim and Oh, "Autocomplete Algorithm for Language Models" (KAIST), section 3. Its Algorithm 1 as
printed goes on after the first token that differs; the text, and the loop here, stop there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import ClassVar

import numpy as np

from draftwood.contracts import DraftTexts, Floats, Ints, Noise, Takes
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
"""Acceptance rate per evidence class, from 168 answers of SmolLM2 in ``benchmarks/results``. All rates are lower
than the relative frequency, most of all after a single occurrence. Columns: the token followed its context in less
than half of the cases, in half and more, in 0.8 and more, always (but it occurred once), always."""

SIZES, SHARES = 4, 5  # rows and columns after contexts


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
    """One text after its context. Nothing is counted before it is asked for: a draft looks through the text."""

    def __init__(self, drafter: ParrotDrafter, prompt: Sequence[int]) -> None:
        self._drafter, self._offset = drafter, len(drafter.context)
        super().__init__([*drafter.context, *prompt])

    def draft(self, nodes: int, lookahead_nodes: int, accept_rates: Floats) -> TokenTree:
        drafter = self._drafter
        tail = self.text[-drafter.order :].tolist()
        nothing = np.full(drafter.order, -1, dtype=np.int32)  # no context begins before the text
        known = np.append(nothing, self.text if drafter.learn else self.text[: self.start])
        self.match_length, promised = 0, 1.0
        tokens: list[int] = []
        classes: list[int] = []
        while len(tokens) < min(nodes, drafter.length):
            size, after = _followers(known, tail, drafter.order - 1)
            if not len(after):
                break
            token, count = _most_frequent(after)
            promised *= count / len(after)
            if promised < drafter.p:
                break
            if not tokens:
                self.match_length = size
            classes.append(_class(size, len(after), count, len(tokens)))
            tokens.append(token)
            tail.append(token)
        evidence = np.array(classes, dtype=np.int32)
        return draft_tree(np.array(tokens, dtype=np.int32), evidence, accept_rates[evidence])

    def truncate(self, length: int) -> None:
        super().truncate(max(0, length) + self._offset)

    def close(self) -> None:
        super().close()
        self._offset = 0


def _followers(known: Ints, tail: list[int], most: int) -> tuple[int, Ints]:
    """Return the size of the longest end of ``tail`` that something followed, at most ``most``, and what did."""
    places = np.flatnonzero(known[:-1] == tail[-1]) + 1 if most and tail else known[:0]
    if not len(places):
        return 0, known[known >= 0]
    size = 1
    while size < min(most, len(tail)):
        longer = places[known[places - size - 1] == tail[-size - 1]]
        if not len(longer):
            break
        places, size = longer, size + 1
    return size, known[places]


def _most_frequent(tokens: Ints) -> tuple[int, int]:
    """Return the token that occurs most often, the latest of equals, and how often."""
    return max(Counter(tokens[::-1].tolist()).items(), key=itemgetter(1))


def _class(size: int, total: int, count: int, depth: int) -> int:
    if not size:
        return 0
    if count == total:
        share = 3 if total == 1 else 4
    else:
        share = 2 if 5 * count >= 4 * total else int(2 * count >= total)
    return 1 + SHARES * (min(size + (size == SIZES - 1 <= depth), SIZES) - 1) + share
