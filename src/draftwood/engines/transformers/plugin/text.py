"""Texts as transformers has them: prompts with padding, criteria that end them, streamers that follow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.generation.stopping_criteria import EosTokenCriteria, MaxLengthCriteria, StopStringCriteria

from draftwood.decoding.request import Criterion
from draftwood.engines.transformers.processors import own_copy
from draftwood.errors import PromptError, UsageError


def left_padding(input_ids: Tensor, mask: Tensor | None) -> list[int]:
    """Return the number of padding tokens in front of each prompt, from a mask [rows, length] with 1 for text and
    0 for padding (None: no padding). Raises `PromptError` for a mask of anything else."""
    if mask is None:
        return [0] * len(input_ids)
    if mask.shape != input_ids.shape:
        raise PromptError(
            f"attention_mask has shape {list(mask.shape)} and input_ids {list(input_ids.shape)}: they must "
            "be equal, with a cache too, whose prompt is given in full"
        )
    shown = (mask != 0).cpu().numpy()
    return [_padding_of(row, number) for number, row in enumerate(shown)]


def _padding_of(shown: NDArray[np.bool_], number: int) -> int:
    where = np.flatnonzero(shown)
    if not len(where):
        raise PromptError(f"row {number} of attention_mask masks its whole prompt: give some text")
    if not shown[-1]:
        raise PromptError(f"row {number} is padded on the right: set tokenizer.padding_side = 'left'")
    if len(where) != len(shown) - where[0]:
        raise PromptError(
            f"row {number} of attention_mask has holes, which drafting cannot follow; without a mask they are "
            "where the prompt has pad_token_id in its text: pass attention_mask"
        )
    return int(where[0])


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

    def criteria(self, prompt: Tensor, scores: Callable[[], Any], *, copied: bool) -> list[Criterion]:
        """Return the other criteria for one row, a padded prompt int64[length]; ``scores`` gives those of all
        emitted tokens, one [1, vocab] each, where the caller asked for them, ``copied`` the row a state of its
        own."""

        def asking(criterion: Any) -> Criterion:
            # Those of transformers itself keep no state; a copy would hold tables of the whole vocabulary.
            is_theirs = type(criterion).__module__.startswith("transformers.")
            own = own_copy(criterion) if copied and not is_theirs else criterion

            def met(emitted: Sequence[int]) -> bool:
                text = torch.cat((prompt, torch.from_numpy(np.asarray(emitted, dtype=np.int64)).to(prompt)))
                return bool(torch.as_tensor(own(text[None], scores()), device=prompt.device).any())

            return met

        return [asking(criterion) for criterion in self.others]


def stop_strings(strings: str | Sequence[str] | None, tokenizer: Any) -> list[Any]:
    """Return transformers' criterion for these stop strings, in a list that is empty without any."""
    if strings is None or not len(strings):
        return []
    if tokenizer is None:
        raise UsageError("stop strings need a tokenizer: decode_with(stop_strings=..., tokenizer=...)")
    return [StopStringCriteria(tokenizer, [strings] if isinstance(strings, str) else list(strings))]


class Feed:
    """Feeds one streamer, or none: ``ours`` was given to the callable and has seen nothing yet, ``theirs`` to
    ``model.generate``, which has put the prompt already."""

    def __init__(self, ours: Any, theirs: Any) -> None:
        given = (theirs,) if ours is theirs else (theirs, ours)
        self._streamers = [streamer for streamer in given if streamer is not None]
        self._prompt_is_put = theirs is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        """Call the streamer's ``end``, however the block is left: a reader may wait for it."""
        for streamer in self._streamers:
            with nullcontext() if kind is None else suppress(Exception):  # the first error is the one to report
                streamer.end()

    def prompt(self, input_ids: Tensor) -> None:
        """Put the prompt, unless ``model.generate`` has."""
        if len(self._streamers) > 1:
            raise UsageError("two streamers were given, to generate() and to decode_with(): give one")
        if self._streamers and len(input_ids) > 1:
            raise UsageError(f"a streamer takes one text and the batch has {len(input_ids)}: leave streamer out")
        for streamer in [] if self._prompt_is_put else self._streamers:
            streamer.put(input_ids.cpu())

    def token(self, token: int) -> None:
        for streamer in self._streamers:
            streamer.put(torch.tensor([token], device="cpu"))
