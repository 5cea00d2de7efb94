"""Scores of a pass; what the rule and the drafters ask of them is computed when they ask."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.engines.top_k import best_of_rows
from draftwood.errors import CapabilityError

WATCHED = 256  # most rows of scores of one pass over a prompt: each takes up to a megabyte

_NO_STATES: Mapping[int, Tensor] = MappingProxyType({})


class TorchScores:
    """Scores from logits [rows, vocab], and hidden states [rows, width] of the layers that were asked for.

    On a CPU only rows that are asked for are looked at.
    """

    def __init__(self, logits: Tensor, hidden: Mapping[int, Tensor] = _NO_STATES) -> None:
        self._logits, self._hidden = logits, hidden
        self._best: list[int] | None = None
        self._on_cpu = logits.device.type == "cpu"

    def argmax(self, row: int) -> int:
        if self._on_cpu:
            scores = self._logits[row].float().numpy()
            first = int(scores.argmax())
            return first if scores[first] > -np.inf else -1  # argmax finds a NaN first, which compares as False
        if self._best is None:
            best, ids = self._logits.max(-1)
            self._best = torch.where(best > -torch.inf, ids, -1).tolist()
        return self._best[row]

    def raw(self, row: int) -> Tensor:
        return self._logits[row].float()

    def first(self, rows: int) -> TorchScores:
        """Return the scores of so many rows."""
        return TorchScores(self._logits[:rows], {layer: states[:rows] for layer, states in self._hidden.items()})

    def last(self) -> TorchScores:
        """Return the scores of the last row, without keeping the others in memory."""
        return self if len(self._logits) == 1 else TorchScores(self._logits[-1:].clone())

    def numpy(self, array: Any) -> NDArray[np.float32]:
        """Float32 on the host; shares memory with a float32 tensor on the CPU."""
        host: NDArray[np.float32] = array.detach().to("cpu", torch.float32).numpy()
        return host

    def top_k(self, k: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        k = min(k, self._logits.shape[-1])
        return best_of_rows(self._logits.float().cpu().numpy().view(np.int32), k)

    def hidden(self, layer: int) -> Tensor:
        if layer not in self._hidden:
            raise CapabilityError(
                f"the hidden states of layer {layer} were not kept: ask for them before the pass"
            )
        return self._hidden[layer]
