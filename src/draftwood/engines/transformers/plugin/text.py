"""Prompts with transformers' padding: how long it is, and the padded text as processors see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.errors import PromptError


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


class PaddedText:
    """A prompt int64[length], of which the first ``padding`` tokens are no text, and what was written since."""

    def __init__(self, prompt: Tensor, padding: int) -> None:
        self._padding, self._start = padding, len(prompt)
        self._filled = len(prompt)
        self._room = prompt.new_empty(len(prompt) + 256)
        self._room[: len(prompt)] = prompt

    def after(self, emitted: Sequence[int]) -> Tensor:
        """Return padding, prompt and all emitted tokens, int64[1, length]; a view that is not written to again."""
        return self._with(emitted[self._filled - self._start :])

    def committed(self, prefix: NDArray[np.int64]) -> Tensor:
        """Return the same for the committed text without its padding."""
        return self._with(prefix[self._filled - self._padding :])

    def _with(self, fresh: Sequence[int] | NDArray[Any]) -> Tensor:
        end = self._filled + len(fresh)
        if end > len(self._room):
            room = self._room.new_empty(2 * end)
            room[: self._filled] = self._room[: self._filled]
            self._room = room
        if len(fresh):
            self._room[self._filled : end] = torch.as_tensor(np.asarray(fresh))
            self._filled = end
        return self._room[None, :end]
