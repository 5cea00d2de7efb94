"""Transformers' stopping criteria, as a limit, end tokens and criteria of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StopStringCriteria

from draftwood.decoding.stopping import Criterion
from draftwood.engines.transformers.plugin.text import PaddedText
from draftwood.engines.transformers.processors import own_copy
from draftwood.errors import UsageError

Scores = Callable[[], "tuple[Tensor, ...] | None"]
"""The scores of all emitted tokens, one [1, vocab] each, where the caller asked for them."""


@dataclass(slots=True)
class Ends:
    """What ends the texts of a call: most tokens, end-of-sequence tokens, and criteria asked after every token."""

    limit: int
    end_ids: frozenset[int] = frozenset()
    others: list[Any] = field(default_factory=list)

    @classmethod
    def of(cls, criteria: Sequence[Any], prompt_length: int, limit: int) -> Ends:
        """Read transformers' list; its two usual members become our loop's own limit and end tokens."""
        ends = cls(limit)
        for criterion in criteria:
            if type(criterion) is MaxLengthCriteria:
                # transformers asks a criterion only after a token, so one token is always written
                ends.limit = min(ends.limit, max(1, criterion.max_length - prompt_length))
            elif type(criterion) is EosTokenCriteria:
                ends.end_ids |= frozenset(criterion.eos_token_id.reshape(-1).tolist())
            else:
                ends.others.append(criterion)
        return ends

    def criteria(self, text: PaddedText, scores: Scores, *, copied: bool) -> list[Criterion]:
        """Return the other criteria for one row; ``copied`` gives the row a state of its own."""
        own = [own_copy(c) if copied and not _stateless(c) else c for c in self.others]
        return [_asking(criterion, text, scores) for criterion in own]


class Together:
    """Rows that go on until each has met a criterion, as transformers writes them where no end token is set. Our
    rows advance at different speeds, so longer ones are cut to the length of the last afterwards."""

    def __init__(self, rows: int) -> None:
        self._met: list[int | None] = [None] * rows

    @property
    def length(self) -> int | None:
        """How many tokens every row has when all have met their criteria; None before."""
        known = [length for length in self._met if length is not None]
        return max(known) if len(known) == len(self._met) else None

    def criterion(self, row: int, criteria: Sequence[Criterion]) -> Criterion:
        """Return what ends this row: every row has met a criterion, and this one is as long as the longest."""

        def ended(emitted: Sequence[int]) -> bool:
            met = [criterion(emitted) for criterion in criteria]
            if any(met) and self._met[row] is None:
                self._met[row] = len(emitted)
            return self.length is not None and len(emitted) >= self.length

        return ended


def stop_strings(strings: str | Sequence[str] | None, tokenizer: Any) -> list[Any]:
    """Return transformers' criterion for these stop strings, in a list that is empty without any."""
    if strings is None or not len(strings):
        return []
    if tokenizer is None:
        raise UsageError("stop strings need a tokenizer: decode_with(stop_strings=..., tokenizer=...)")
    return [StopStringCriteria(tokenizer, [strings] if isinstance(strings, str) else list(strings))]


def _stateless(criterion: Any) -> bool:
    # Those of transformers itself keep no state; a copy of one of them would hold tables of the whole vocabulary.
    return type(criterion).__module__.startswith("transformers.")


def _asking(criterion: Any, text: PaddedText, scores: Scores) -> Criterion:
    def met(emitted: Sequence[int]) -> bool:
        answer = criterion(text.after(emitted), scores())
        return bool(torch.as_tensor(answer).any())

    return met
