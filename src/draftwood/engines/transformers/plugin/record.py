"""Scores and logits per token, where a call of ``model.generate`` asks for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.contracts import Processor


class Recorder:
    """Keeps what each token of one text was chosen from, as the first and the last of its processors: a float32[1,
    vocab] per token in ``logits`` (before) and ``scores`` (after them); None where not asked for."""

    def __init__(self, device: torch.device, *, logits: bool, scores: bool) -> None:
        self._device = device
        self.logits: list[Tensor] | None = [] if logits else None
        self.scores: list[Tensor] | None = [] if scores else None

    def around(self, processors: Sequence[Processor]) -> list[Processor]:
        """Return the processors between those that record."""
        before = [] if self.logits is None else [self._into(self.logits)]
        behind = [] if self.scores is None else [self._into(self.scores)]
        return [*before, *processors, *behind]

    def so_far(self) -> tuple[Tensor, ...] | None:
        """Return the scores of the tokens so far, as stopping criteria get them."""
        return None if self.scores is None else tuple(self.scores)

    def _into(self, kept: list[Tensor]) -> Processor:
        def record(_: NDArray[np.int64], row: Any) -> Any:
            kept.append(row.detach().to(self._device, torch.float32, copy=True)[None])
            return row

        return record


def batched(rows: Sequence[Sequence[Tensor] | None], pad: int) -> tuple[Tensor, ...] | None:
    """Put the rows of a batch together: per token one [rows, vocab]. A row that has ended is certain of its
    padding: 0 at the token ``pad``, minus infinity elsewhere."""
    known = [row for row in rows if row is not None]
    if len(known) < len(rows):
        return None
    longest = max(known, key=len)
    ended = torch.full_like(longest[0], -torch.inf)
    ended[:, pad] = 0
    return tuple(
        torch.cat([row[index] if index < len(row) else ended for row in known]) for index in range(len(longest))
    )
