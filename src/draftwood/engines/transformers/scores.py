"""Scores of a pass; what the rule and the drafters ask of them is computed when they ask."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwood.engines.top_k import Bits, best_of_rows
from draftwood.errors import CapabilityError

WATCHED = 256  # most rows of scores of one pass over a prompt: each takes up to a megabyte

_ROWS = 64  # rows whose best tokens a graphics card searches at a time, which bounds the memory for copies

_NO_STATES: Mapping[int, Tensor] = MappingProxyType({})


class TorchScores:
    """Scores from logits [rows, vocab], and hidden states [rows, width] of the layers that were asked for.

    On a CPU only rows that are asked for are looked at.
    """

    def __init__(self, logits: Tensor, hidden: Mapping[int, Tensor] = _NO_STATES) -> None:
        self._logits, self._hidden = logits, hidden
        self._best: list[int] | None = None
        self._on_cpu = logits.device.type == "cpu"
        if not self._on_cpu:  # a card computes on after the call, and planners go by the time that a pass took
            torch.accelerator.synchronize(logits.device)

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
        if self._on_cpu:
            return best_of_rows(_bits(self._logits), k)
        with torch.inference_mode():
            parts = [_best(some.float(), k) for some in self._logits.split(_ROWS)]
            ids, probabilities = (torch.cat(part) for part in zip(*parts, strict=True))
        return ids.to("cpu", torch.int32).numpy(), probabilities.cpu().numpy()

    def hidden(self, layer: int) -> Tensor:
        if layer not in self._hidden:
            raise CapabilityError(f"the states of layer {layer} were not kept: ask for them before the pass")
        return self._hidden[layer]


def _bits(logits: Tensor) -> Bits:
    """Bits of float32, or of bfloat16 as they are: converting them would take as long as the search."""
    if logits.dtype == torch.bfloat16:
        return logits.view(torch.int16).numpy().view(np.uint16)
    return logits.float().numpy().view(np.int32)


def _best(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Ids int64[rows, k] and probabilities float32[rows, k] of each row's best tokens, as `Scores.top_k` says."""
    ids, lead = logits.topk(k, dim=-1).indices, logits.argmax(-1)
    # Of equal scores the lowest id comes first: swap it there where it is further back.
    ids = torch.where(ids == lead[:, None], ids[:, :1], ids)
    ids[:, 0] = lead
    probabilities = torch.exp(logits.gather(1, ids) - logits.logsumexp(-1, keepdim=True))
    return ids, probabilities.nan_to_num(nan=0.0)
